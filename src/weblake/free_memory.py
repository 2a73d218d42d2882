"""Checks whether memory is available before code allocates it that does not survive a failure.

msgspec 0.22, and RapidJSON within Arrow, do not check the result of an allocation: if it fails, the process ends
instead of raising an error. `threading.Thread.start` waits for ever for a thread that had no memory to begin
(https://github.com/python/cpython/issues/140746).
"""

from __future__ import annotations

import mmap

#: Bytes that a new thread, or the first use of a thread pool, takes: a stack, and the initial mapping of its allocator.
THREAD_BYTES = 24 << 20


def require(count: int) -> None:
    """Raise MemoryError if this process cannot allocate `count` more bytes; `count` is at least 1.

    The bytes are mapped and never touched, which takes some microseconds. Known limitation: another thread may allocate
    the memory between this check and its use.
    """
    try:
        mmap.mmap(-1, count).close()
    except OSError as error:
        raise MemoryError(f"There is no memory for {count} bytes.") from error
