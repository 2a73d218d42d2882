"""Reads many files in order and prefetches the small ones, whose cost is mainly opening: one or two round trips on an
object store.

A small file is read whole and processed in one of several threads. A larger file is streamed when its turn comes, so
that at most one row group of it is in memory. The number and the bytes of prefetched files are bounded.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import IO, TypeAlias, TypeVar

import pyarrow as pa

from weblake.dataset.arrow_files import opened
from weblake.storage import Storage

T = TypeVar("T")
#: Sources that a file is read from.
Source: TypeAlias = IO[bytes] | pa.BufferReader
#: Maximum bytes of a file that is prefetched.
SMALL = 256 << 10
#: Files that are read concurrently over a network; on a local root the number is that of the processors.
READERS = 16
#: Minimum number of files for which threads are started.
FEW = 4


def in_order(storage: Storage, names: Sequence[str], read: Callable[[str, Source], Iterable[T]]) -> Iterator[T]:
    """Yield the results of `read` for each file, in order; `read` is called in several threads.

    Raises:
        StorageRefused: A file cannot be read or no longer exists.
    """
    if len(names) < FEW:
        for name in names:
            with opened(storage, name) as source:
                yield from read(name, source)
        return
    readers = READERS if storage.local_path("x") is None else max(2, os.cpu_count() or 1)
    for name, made in each_ahead(names, lambda name: _small(storage, read, name), readers, 2 * readers):
        if made is not None:
            yield from made
            continue
        with opened(storage, name) as source:
            yield from read(name, source)


def each_ahead(names: Iterable[str], do: Callable[[str], T], threads: int, most: int) -> Iterator[tuple[str, T]]:
    """Yield each name with the result of `do`, in order; `threads` threads work on at most `most` names ahead."""
    waiting: deque[tuple[str, Future[T]]] = deque()
    left = iter(names)
    with ThreadPoolExecutor(threads, "weblake-read") as pool:
        try:
            while True:
                for name in islice(left, most - len(waiting)):
                    waiting.append((name, pool.submit(do, name)))
                if not waiting:
                    return
                name, future = waiting.popleft()
                yield name, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _small(storage: Storage, read: Callable[[str, Source], Iterable[T]], name: str) -> list[T] | None:
    """Return the results of `read` for a small file, or None for a larger one."""
    with opened(storage, name) as source:
        if source.seek(0, os.SEEK_END) > SMALL:
            return None
        source.seek(0)
        content = source.read()
    return list(read(name, pa.BufferReader(content)))
