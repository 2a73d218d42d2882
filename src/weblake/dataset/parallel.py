"""Calls a function for many items in several threads, and yields its results in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from weblake.storage import Storage

A = TypeVar("A")
B = TypeVar("B")
#: Threads that wait for an object store.
READERS = 16
#: How the names of the threads begin.
_THREADS = "weblake-items"


def readers(storage: Storage) -> int:
    """Return how many threads read a root: local reads are bound by the processors and not by a network."""
    return READERS if storage.local_path("x") is None else max(2, os.cpu_count() or 1)


def in_order(
    items: Iterable[A], do: Callable[[A], B], *, threads: int = READERS, most: int = 16 * READERS
) -> Iterator[B]:
    """Yield the result of `do` for each item, in order; `threads` threads work on at most `most` items ahead."""
    waiting: deque[Future[B]] = deque()
    left = iter(items)
    pool = ThreadPoolExecutor(threads, _THREADS)
    try:
        while True:
            for item in islice(left, most - len(waiting)):
                waiting.append(pool.submit(do, item))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        # A generator that was not read to its end may be closed in a thread of its own pool: Polars releases a source
        # in any thread that calls Polars. A thread cannot wait for itself.
        pool.shutdown(wait=not threading.current_thread().name.startswith(_THREADS), cancel_futures=True)
