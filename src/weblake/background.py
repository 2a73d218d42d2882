"""Run functions in daemon threads.

These threads are never joined: the caller may exit with an exception or Ctrl-C, and the process may end while they run.
So functions that run in them must need no cleanup.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run a function in a new thread and return a future of its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - the thread that waits for the result raises it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="weblake-ahead", daemon=True).start()
    return future
