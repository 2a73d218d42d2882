"""Run a function in a daemon thread.

The thread is never joined: the caller may exit with an exception or Ctrl-C, and the process may end while it runs. So
a function that runs in it must need no cleanup.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run a function in a new thread and return a future of its result.

    Raises:
        RuntimeError: The system cannot start another thread.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - `Future.result` raises it
            future.set_exception(error)

    # In the caller's context, so that events and spans of the thread belong to the caller's load.
    threading.Thread(target=copy_context().run, args=(run,), name="weblake-ahead", daemon=True).start()
    return future
