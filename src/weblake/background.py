"""Run functions in daemon threads.

These threads are never joined: the caller may exit with an exception or Ctrl-C, and the process may end while they run.
So functions that run in them must need no cleanup.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar

from weblake import free_memory

T = TypeVar("T")


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run a function in a new thread and return a future of its result.

    Raises:
        MemoryError: There is no memory for another thread.
        RuntimeError: The system cannot start another thread.
    """
    future: Future[T] = Future()
    _start_thread(partial(_complete, future, work, BaseException))
    return future


def run_in_two_threads(items: Iterator[Callable[[], T]], max_results: int = 6) -> Iterator[T]:
    """Yield the result of calling each item, in order; the calling thread and one more thread call them.

    Only one thread takes an item from `items` at a time, but both may call their items at the same time, so neither
    thread is idle while there are items. At most `max_results` items (two or more) have been taken and not yet yielded.

    An exception of `items`, or of calling an item, is raised in the order of the results; an interrupt of the calling
    thread is raised at once. If the caller stops early, no further item is called. Raises as `run_in_thread`.
    """
    queue = _WorkQueue(items, max_results)
    _start_thread(queue.run_until_empty)
    try:
        while True:
            if not queue.first_is_done() and queue.run_next():
                continue
            if not queue.results:
                return
            yield queue.first()
    finally:
        queue.close()


class _WorkQueue(Generic[T]):
    """The queue of results whose items have been taken and not yet yielded, in order."""

    def __init__(self, items: Iterator[Callable[[], T]], max_results: int) -> None:
        self.results: deque[Future[T]] = deque()
        self._items = items
        self._turn = threading.Lock()
        self._free_slots = threading.Semaphore(max_results)
        self._ended = False  # set after the last result is in `results`, so a thread that reads True sees all results

    def first_is_done(self) -> bool:
        return bool(self.results) and self.results[0].done()

    def first(self) -> T:
        """Wait for the first result, remove it and return it."""
        result = self.results.popleft().result()
        self._free_slots.release()
        return result

    def run_next(self) -> bool:
        """Call the next item if there is one and a free slot for its result; return whether it was called."""
        return not self._ended and self._free_slots.acquire(blocking=False) and self._run_next(Exception)

    def run_until_empty(self) -> None:
        while True:
            self._free_slots.acquire()
            if self._ended or not self._run_next(BaseException):
                return

    def close(self) -> None:
        self._ended = True
        self._free_slots.release()

    def _run_next(self, captured: type[BaseException]) -> bool:
        future: Future[T] = Future()
        with self._turn:
            try:
                item = None if self._ended else next(self._items, None)
            except captured as error:
                future.set_exception(error)
                self.results.append(future)
                self._ended = True
                return False
            if item is None:
                self._ended = True
                return False
            self.results.append(future)
        _complete(future, item, captured)
        return True


def _start_thread(work: Callable[[], None]) -> None:
    free_memory.require(free_memory.THREAD_BYTES)
    # In the caller's context, so that events and spans of the thread belong to the caller's load.
    threading.Thread(target=copy_context().run, args=(work,), name="weblake-ahead", daemon=True).start()


def _complete(future: Future[T], work: Callable[[], T], captured: type[BaseException]) -> None:
    """Call `work` and complete the future; exceptions of class `captured` go into it, others are raised here."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except captured as error:
        future.set_exception(error)
    else:
        future.set_result(result)
