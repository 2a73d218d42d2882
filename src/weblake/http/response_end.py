"""Find the end of an HTTP/1.1 response in the bytes of a connection.

httpcore keeps bytes that follow a response on a keep-alive connection and reads them as the response to the next
request. With a faulty proxy, one job could so get the documents of another job. A connection that delivered such bytes
is not reused.
"""

from __future__ import annotations

import re

_BLANK_LINE = re.compile(rb"\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.\d (\d{3})")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d+)[ \t]*\r?\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[^\n]*chunked[ \t]*\r?\n", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,16})")
#: Maximum bytes of an incomplete head or chunk-size line that are kept.
_MAX_HELD_BYTES = 200 << 10


class ResponseEnd:
    """Parser state of one connection, which must not be reused once `exceeded` is True."""

    def __init__(self) -> None:
        #: Whether bytes arrived after the end of a response, or its end could not be found.
        self.exceeded = False
        self._held = b""
        #: Remaining bytes of a body or a chunk; None while a head or a line is read.
        self._left: int | None = None
        #: State of the parser: `idle`, `head`, `length`, `size`, `chunk` or `trailers`.
        self._reads = "idle"

    def expect_response(self) -> None:
        """Expect a response; further calls before it ends change nothing."""
        if self._reads == "idle":
            self._reads = "head"

    def feed(self, data: bytes) -> None:
        """Parse bytes that the peer sent."""
        if self.exceeded:
            return
        at = 0
        if self._held:
            data, self._held = self._held + data, b""
        while at < len(data) and not self.exceeded:
            if self._reads in ("length", "chunk"):
                assert self._left is not None
                step = min(self._left, len(data) - at)
                at, self._left = at + step, self._left - step
                if not self._left:
                    self._reads = "idle" if self._reads == "length" else "size"
            elif self._reads == "head":
                at = self._head(data, at)
            elif self._reads in ("size", "trailers"):
                at = self._line(data, at)
            else:
                self.exceeded = True

    def _head(self, data: bytes, at: int) -> int:
        end = _BLANK_LINE.search(data, at)
        if end is None:
            return self._hold(data, at)
        head = data[at : end.end()]
        status = _STATUS.match(head)
        if status is None:
            self.exceeded = True
        elif status[1].startswith(b"1"):
            pass  # an interim response before the final one
        elif status[1] in (b"204", b"304"):
            self._reads = "idle"
        elif _CHUNKED.search(head):
            self._reads = "size"
        elif (length := _LENGTH.search(head)) is not None:
            self._left = int(length[1])
            self._reads = "length" if self._left else "idle"
        else:
            # It ends with the connection, or h11 finds a length that this parser does not (`2, 2`, a folded line).
            self.exceeded = True
        return end.end()

    def _line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1
        if not end:
            return self._hold(data, at)
        line = data[at:end].strip(b"\r\n")
        if self._reads == "trailers":
            self._reads = "trailers" if line else "idle"
        elif (size := _CHUNK_SIZE.match(line)) is None:
            self.exceeded = bool(line)  # the line end after a chunk is read as an empty line
        elif int(size[1], 16):
            self._left, self._reads = int(size[1], 16), "chunk"
        else:
            self._reads = "trailers"
        return end

    def _hold(self, data: bytes, at: int) -> int:
        self._held = data[at:]
        self.exceeded = len(self._held) > _MAX_HELD_BYTES
        return len(data)
