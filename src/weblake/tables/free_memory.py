"""Whether there is memory for what comes next.

Compiled decoders (msgspec 0.22, and RapidJSON within Arrow) do not look whether they got what they asked for: without
it they do not raise, they end the process.
"""

from __future__ import annotations

import mmap

#: What the first use of a thread pool takes: a stack, and what its allocator maps at once.
THREAD_BYTES = 24 << 20


def need(count: int) -> None:
    """Raises MemoryError where this process cannot have so many bytes more, of which there is at least one.

    They are mapped, never touched: it costs some microseconds, and whoever else takes memory at the same moment may
    still be the quicker.
    """
    try:
        mmap.mmap(-1, count).close()
    except OSError as error:
        raise MemoryError(f"There is no memory for {count} bytes.") from error
