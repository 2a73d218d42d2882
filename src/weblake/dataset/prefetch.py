"""Many files, read in their order with the small ones ahead: a file of a few rows costs its opening and little else, on
an object store a round trip or two.

A small file is read whole and turned into what is wanted of it by one of several threads; a larger one is streamed when
its turn comes, so that memory holds one row group of it. What is held ahead is bounded in files and bytes.
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
#: What a file is read from.
Source: TypeAlias = IO[bytes] | pa.BufferReader
#: Most bytes of a file that is read ahead.
SMALL = 256 << 10
#: Files that are read at a time where each waits for a network; a local root has as many as there are processors.
READERS = 16
#: Below so many files no thread is begun.
FEW = 4


def in_order(storage: Storage, names: Sequence[str], read: Callable[[str, Source], Iterable[T]]) -> Iterator[T]:
    """What `read` makes of each file, file by file; it is called in several threads.

    Raises:
        StorageRefused: A file cannot be read, or is gone.
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
    """Each name with what `do` makes of it, in their order; so many threads are ahead by `most` of them."""
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
    """What is made of a small file; None of a larger one."""
    with opened(storage, name) as source:
        if source.seek(0, os.SEEK_END) > SMALL:
            return None
        source.seek(0)
        content = source.read()
    return list(read(name, pa.BufferReader(content)))
