"""Work that is done in a thread of its own while its result is not wanted yet. Imports nothing of ours.

Nobody waits for such a thread: whoever loses interest, by an exception or Ctrl-C, goes, and the process may end
meanwhile. So what it does must need no tidying up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

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

    So an item is made in two halves. The first is always made ahead. The second is made here where this side waits for
    it, or has waited longer for the other side than that for this one; ahead otherwise. So the slower one is relieved.

    What `items` raises is raised here in its turn, and so is what calling an item raises. Left early, nothing is made
    but what is in the making.
    """
    made: SimpleQueue[tuple[Callable[[], T] | None, BaseException | None]] = SimpleQueue()
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
                if makers.seconds >= takers.seconds and not takers.waiting:
                    item = partial(_given, item())
                made.put((item, None))
                del item  # what waits here for room would keep one more alive
        except BaseException as error:  # noqa: BLE001 - it is raised where its turn comes
            made.put((None, error))

    threading.Thread(target=make, name="weblake-ahead", daemon=True).start()
    try:
        item, error = takers.timed(made.get)
        takers.seconds = 0.0  # nobody could have spared us that
        while True:
            room.release()
            if error is not None:
                raise error
            if item is None:
                return
            whole = item()
            del item
            yield whole
            del whole
            item, error = takers.timed(made.get)
    finally:
        left.set()
        room.release()


class _Waited:
    """How many seconds one side has waited in all, and whether it waits now."""

    seconds, waiting = 0.0, False

    def timed(self, wait: Callable[[], U]) -> U:
        begun_at, self.waiting = time.monotonic(), True
        try:
            return wait()
        finally:
            self.seconds, self.waiting = self.seconds + time.monotonic() - begun_at, False


def _given(whole: T) -> T:
    return whole
