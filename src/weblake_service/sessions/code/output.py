"""Captures the output of a process up to a size."""

from __future__ import annotations

import asyncio
import codecs
import os

#: Bytes of one stream that are kept.
MOST = 1_000_000
_READ = 1 << 16


class BoundedOutput:
    """One stream of a process: all of it is read, so that the process never waits; its beginning is kept.

    The pipe is ours and not asyncio's own for processes, whose `wait` waits for everybody who holds the pipe.
    """

    def __init__(self) -> None:
        self._read, self.end = os.pipe()
        self._kept = bytearray()
        self._dropped = 0

    def release(self) -> None:
        """Close the end that the process writes to, which it has by now."""
        os.close(self.end)

    async def read(self) -> None:
        """Read until nobody is there who could write, or until it is cancelled."""
        stream = asyncio.StreamReader()
        pipe = os.fdopen(self._read, "rb", 0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        try:
            while data := await stream.read(_READ):
                room = MOST - len(self._kept)
                self._kept += data[:room]
                self._dropped += max(len(data) - room, 0)
        finally:
            transport.close()

    def text(self) -> str:
        """What was read so far, as text, with a last line that says so when it was cut."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Where it was cut, half a character may stand, which is no fault of the process.
        text = decoder.decode(bytes(self._kept), final=not self._dropped)
        if self._dropped:
            text += f"\n[cut here: {self._dropped} more bytes were printed; write what is large to a file]\n"
        return text
