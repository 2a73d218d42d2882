"""A function that runs in a thread of its own: its result, or its error, is there for whoever waits for it."""

from __future__ import annotations

import threading

import pytest

from weblake.background import run_in_thread


def test_what_is_begun_runs_at_once_and_is_had_once() -> None:
    ran = threading.Event()
    made = run_in_thread(lambda: ran.set() or threading.current_thread().name)
    assert ran.wait(30)
    assert made.result() != threading.current_thread().name
    failed = run_in_thread(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
