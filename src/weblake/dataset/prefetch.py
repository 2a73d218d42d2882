"""Reads many files in order and prefetches the small ones, whose cost is mainly opening: one or two round trips on an
object store.

A small file is read whole and processed in one of several threads. A larger file is streamed when its turn comes, so
that at most one row group of it is in memory. The number and the bytes of prefetched files are bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TypeAlias, TypeVar

import pyarrow as pa

from weblake.dataset import parallel
from weblake.dataset.arrow_files import opened
from weblake.storage import Storage

T = TypeVar("T")
#: Sources that a file is read from.
Source: TypeAlias = IO[bytes] | pa.BufferReader
#: Maximum bytes of a file that is prefetched.
SMALL = 256 << 10
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
    threads = parallel.readers(storage)
    small = parallel.in_order(names, lambda name: _small(storage, read, name), threads=threads, most=2 * threads)
    for name, made in zip(names, small, strict=True):
        if isinstance(made, list):
            yield from made
            continue
        with made as source:
            yield from read(name, source)


def _small(storage: Storage, read: Callable[[str, Source], Iterable[T]], name: str) -> list[T] | IO[bytes]:
    """Return the results of `read` for a small file; or a larger one, open: opening it again is another request."""
    source = opened(storage, name)
    larger = source.seek(0, os.SEEK_END) > SMALL
    source.seek(0)
    if larger:
        return source
    with source:
        content = source.read()
    return list(read(name, pa.BufferReader(content)))
