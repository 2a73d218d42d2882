"""Captures the output of a process up to a size limit."""

from __future__ import annotations

import asyncio
import codecs
import os

#: Maximum bytes of one stream that are kept.
MAX_BYTES = 1_000_000
_READ_BYTES = 1 << 16


class BoundedOutput:
    """One output stream of a process. All of it is read, so that the process never blocks; its beginning is kept.

    It uses its own pipe: the `wait` of asyncio's processes also waits for every other process that holds the pipe.
    """

    def __init__(self) -> None:
        self._read, self.end = os.pipe()
        self._kept = bytearray()
        self._dropped = 0

    def release(self) -> None:
        """Close the write end in this process, after the child has inherited it."""
        os.close(self.end)

    async def read(self) -> None:
        """Read until all writers have closed the pipe, or until cancelled."""
        stream = asyncio.StreamReader()
        pipe = os.fdopen(self._read, "rb", 0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        try:
            while data := await stream.read(_READ_BYTES):
                room = MAX_BYTES - len(self._kept)
                self._kept += data[:room]
                self._dropped += max(len(data) - room, 0)
        finally:
            transport.close()

    def text(self) -> str:
        """Return the output as text, with a last line that says so if it was truncated."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Truncation may split a character, which is not an error of the process.
        text = decoder.decode(bytes(self._kept), final=not self._dropped)
        if self._dropped:
            text += f"\n[cut here: {self._dropped} more bytes were printed; write what is large to a file]\n"
        return text
