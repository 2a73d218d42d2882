"""Tests of threads beside the caller's."""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from functools import partial

import pytest

from weblake.loads.download import run_in_thread


def test_a_submitted_call_starts_at_once_and_its_result_is_taken_once() -> None:
    ran = threading.Event()
    made = run_in_thread(lambda: ran.set() or threading.current_thread().name)
    assert ran.wait(30)
    assert made.result() != threading.current_thread().name
    failed = run_in_thread(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    ended = run_in_thread(partial(sys.exit, 3))
    with pytest.raises(SystemExit):
        ended.result(10)


def test_a_thread_has_the_context_of_its_caller_and_keeps_no_process_alive() -> None:
    """The events of a thread belong to the load of its caller."""
    load = ContextVar("load", default="")
    load.set("a")
    assert run_in_thread(lambda: (load.get(), threading.current_thread().daemon)).result() == ("a", True)
