"""One step of a pipeline that works ahead of the next: its items are made in a thread of their own. Imports nothing of
ours.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from contextlib import closing, suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class _End(Generic[T]):
    """The last thing that a thread hands over: why there is no more."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yields what `items` yields, while the next one is made in a thread: at most one is ready and one in the making.

    What the generator raises is raised here in its turn. Left early, by an exception or `close`, it lets the thread
    make the item that it is at and no other; nobody waits for that, since it may be a reply that takes its time.
    """
    ready: queue.Queue[T | _End[T]] = queue.Queue(maxsize=1)
    wanted = threading.Event()
    wanted.set()

    def work() -> None:
        error: BaseException | None = None
        try:
            with closing(items):
                for item in items:
                    ready.put(item)
                    del item  # the one that waits in the queue is the only one that is held
                    if not wanted.is_set():
                        return
        except BaseException as raised:  # noqa: BLE001 - it is raised where the items are taken
            error = raised
        ready.put(_End(error))

    thread = threading.Thread(target=work, name="weblake-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
            del item
        thread.join()
        if item.error is not None:
            raise item.error
    finally:
        wanted.clear()
        with suppress(queue.Empty):
            ready.get_nowait()  # room for the one that it is at
