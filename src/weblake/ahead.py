"""Work that is done in a thread of its own while its result is not wanted yet. Imports nothing of ours.

Nobody waits for such a thread: whoever loses interest, by an exception or Ctrl-C, goes, and the process may end
meanwhile. So what it does must need no tidying up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


def begun(work: Callable[[], T]) -> Future[T]:
    """Begins it and returns what it will come to; what it raises is raised where the result is taken."""
    made: Future[T] = Future()

    def do() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            made.set_exception(error)
        else:
            made.set_result(result)

    threading.Thread(target=do, name="weblake-ahead", daemon=True).start()
    return made


def ahead(items: Iterator[Callable[[], T]], most: int = 1) -> Iterator[T]:
    """Yields what calling each item returns, in their order, while the next are in the making: never more than `most`.

    So an item is made in two halves. The first is always made ahead. The second is made by whichever of the two sides
    has waited longer for the other so far: the slower one is relieved, and both come to their end together.

    What `items` raises is raised here in its turn, and so is what calling an item raises, which then may be called
    twice. Left early, nothing is made but what is in the making.
    """
    made: SimpleQueue[tuple[_Half[T] | None, BaseException | None]] = SimpleQueue()
    room, left = threading.Semaphore(most), threading.Event()
    makers, takers = _Waited(), _Waited()

    def make() -> None:
        try:
            while True:
                makers.timed(room.acquire)
                if left.is_set():
                    return
                item = next(items, None)
                if item is None:
                    made.put((None, None))
                    return
                half = _Half(item)
                del item  # what waits here for room would keep one more alive
                made.put((half, None))
                if makers.seconds >= takers.seconds:
                    half.make()
                del half
        except BaseException as error:  # noqa: BLE001 - it is raised where its turn comes
            made.put((None, error))

    threading.Thread(target=make, name="weblake-ahead", daemon=True).start()
    try:
        while True:
            half, error = takers.timed(made.get)
            room.release()
            if error is not None:
                raise error
            if half is None:
                return
            yield half.take()
            del half
    finally:
        left.set()
        room.release()


class _Waited:
    """How many seconds one side has waited in all."""

    seconds = 0.0

    def timed(self, wait: Callable[[], U]) -> U:
        begun_at = time.monotonic()
        try:
            return wait()
        finally:
            self.seconds += time.monotonic() - begun_at


class _Half(Generic[T]):
    """The second half of an item, made once, by whoever comes first."""

    def __init__(self, item: Callable[[], T]) -> None:
        self._item: Callable[[], T] | None = item
        self._made: list[T] = []
        self._lock = threading.Lock()

    def make(self) -> None:
        """Makes it, if nobody has. What goes wrong is left for the one who wants it."""
        with self._lock, suppress(Exception):
            if self._item is not None:
                self._made.append(self._item())
                self._item = None

    def take(self) -> T:
        """What came of it; it is held here no longer."""
        with self._lock:
            item, self._item = self._item, None
            return self._made.pop() if item is None else item()
