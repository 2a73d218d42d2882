"""Work that is done in a thread of its own while others go on.

Nobody waits for such a thread: whoever loses interest, by an exception or Ctrl-C, goes, and the process may end
meanwhile. So what it does must need no tidying up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


def begun(work: Callable[[], T]) -> Future[T]:
    """Begins it and returns what it will come to; what it raises is raised where the result is taken."""
    made: Future[T] = Future()
    _thread(partial(_settle, made, work, BaseException))
    return made


def by_two(items: Iterator[Callable[[], T]], most: int = 6) -> Iterator[T]:
    """Yields what calling each item returns, in their order: this thread and another make them side by side.

    Only one of them takes an item from `items` at a time, but both may call theirs at once. So each does whatever is to
    be done next, and neither waits for the other while there is something to do. Where `most` items, two at least, have
    been taken and not yielded, no other one is.

    What `items` raises is raised here in its turn, and so is what calling an item raises; what interrupts this thread
    is raised at once. Left early, nothing is made but what is in the making.
    """
    line = _Line(items, most)
    _thread(line.help)
    try:
        while True:
            if not line.first_is_made() and line.make():
                continue
            if not line.made:
                return
            yield line.first()
    finally:
        line.leave()


class _Line(Generic[T]):
    """Items that have been taken and not handed over yet, in their order."""

    def __init__(self, items: Iterator[Callable[[], T]], most: int) -> None:
        self.made: deque[Future[T]] = deque()
        self._items = items
        self._turn = threading.Lock()
        self._room = threading.Semaphore(most)
        self._ended = False  # set behind the last of `made`: whoever sees it sees them all

    def first_is_made(self) -> bool:
        return bool(self.made) and self.made[0].done()

    def first(self) -> T:
        """Waits for the first item and takes it off."""
        made = self.made.popleft().result()
        self._room.release()
        return made

    def make(self) -> bool:
        """Takes the next item and makes it, if there is one, and room for it."""
        return not self._ended and self._room.acquire(blocking=False) and self._make(Exception)

    def help(self) -> None:
        while True:
            self._room.acquire()
            if self._ended or not self._make(BaseException):
                return

    def leave(self) -> None:
        self._ended = True
        self._room.release()

    def _make(self, kept: type[BaseException]) -> bool:
        made: Future[T] = Future()
        with self._turn:
            try:
                item = None if self._ended else next(self._items, None)
            except kept as error:
                made.set_exception(error)
                self.made.append(made)
                self._ended = True
                return False
            if item is None:
                self._ended = True
                return False
            self.made.append(made)
        _settle(made, item, kept)
        return True


def _thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="weblake-ahead", daemon=True).start()


def _settle(made: Future[T], work: Callable[[], T], kept: type[BaseException]) -> None:
    """Does the work; what it raises of this kind is raised where the result is taken, and anything else here."""
    if not made.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except kept as error:
        made.set_exception(error)
    else:
        made.set_result(result)
