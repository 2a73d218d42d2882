"""Work that is done in a thread of its own while its result is not wanted yet. Imports nothing of ours.

Nobody waits for such a thread: whoever loses interest, by an exception or Ctrl-C, goes, and the process may end
meanwhile. So what it does must need no tidying up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_END = object()


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


def ahead(items: Iterator[T], most: int = 1) -> Iterator[T]:
    """Yields what `items` yields, in the same order, while the next ones are in the making: never more than `most`.

    What `items` raises is raised here in its turn. Left early, nothing is made but the one that is in the making.
    """
    made: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()
    room, left = threading.Semaphore(most), threading.Event()

    def make() -> None:
        try:
            while True:
                room.acquire()
                if left.is_set():
                    return
                item = next(items, _END)
                made.put((item, None))
                if item is _END:
                    return
                del item  # what waits here for room would keep one more alive
        except BaseException as error:  # noqa: BLE001 - it is raised where its turn comes
            made.put((None, error))

    threading.Thread(target=make, name="weblake-ahead", daemon=True).start()
    try:
        while True:
            item, error = made.get()
            room.release()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item  # type: ignore[misc]
            del item
    finally:
        left.set()
        room.release()
