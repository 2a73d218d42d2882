"""Tests of threads beside the caller's, and of the memory that they need."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextvars import ContextVar
from functools import partial

import pytest
from catalogue import proves

from weblake.background import run_in_thread


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


#: Starts a thread with so much address space that its stack fits in, and little else.
WITHOUT_MEMORY = """
import resource
from weblake.background import run_in_thread
from weblake.dataset.parallel import in_order
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
resource.setrlimit(resource.RLIMIT_AS, [used + (max(stack, 0) + (1 << 20))] * 2)
for start in (
    lambda: run_in_thread(int).result(),
    lambda: [*in_order("x", str)],
):
    try:
        print(start())
    except MemoryError:
        print("MemoryError")
"""


@proves(
    "P12",
    at="src/weblake/background.py",
    line="    free_memory.require(free_memory.THREAD_BYTES)",
    becomes="    pass",
)
@proves(
    "P12",
    at="src/weblake/dataset/parallel.py",
    line="                free_memory.require(free_memory.THREAD_BYTES)  # `submit` may start a thread",
    becomes="                pass",
)
def test_p12_no_thread_is_started_without_the_memory_to_begin() -> None:
    """`Thread.start` would wait for ever for a thread that had none: https://github.com/python/cpython/issues/140746."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["MemoryError"] * 2, done.stderr
