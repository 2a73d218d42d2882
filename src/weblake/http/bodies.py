"""Response bodies: bounded decompression while they arrive.

A compressed body of 300 KB can contain 64 MB and more, so the size that a response declares is not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import httpx

from weblake.api.steps import Request, Response

if TYPE_CHECKING:
    import zlib
else:
    try:
        from isal import isal_zlib as zlib  # the extra weblake[isal]: the same interface, less than half of the time
    except ImportError:
        import zlib

#: Maximum output bytes of one decompression step, so that a decompression bomb is detected before it fills the memory.
MAX_STEP_BYTES = 1 << 20
#: The `wbits` value of zlib for a gzip header and trailer.
_GZIP_WBITS = 31


class BodyRefused(Exception):
    """A body that is too large, truncated, or compressed with an encoding that was not requested."""

    def __init__(self, text: str, *, final: bool) -> None:
        super().__init__(text)
        #: Whether requesting it again would fail the same way.
        self.final = final


class BoundedBody:
    """Collects the body of one response, up to `Request.max_body` bytes or until `Request.stop_when` is true."""

    def __init__(self, raw_headers: Iterable[tuple[bytes, bytes]], request: Request) -> None:
        self.headers = dict(httpx.Headers([*raw_headers], encoding="latin-1").items())
        self._request = request
        self._data = bytearray()
        self._stopped = False
        self._gzip = _gzip(self.headers.get("content-encoding", ""))

    def feed(self, part: bytes) -> bool:
        """Add bytes as received; return True if no more are needed."""
        if self._gzip is None:
            self._grow(part)
        else:
            for piece in self._gzip.pieces(part):
                self._grow(piece)
        stop_when = self._request.stop_when
        if stop_when is not None and not self._stopped:
            with memoryview(self._data) as so_far:
                self._stopped = stop_when(so_far)
        return self._stopped

    def response(self, status: int, received_at: float) -> Response:
        """Return the response with its body; raise BodyRefused if a compressed body was truncated."""
        if self._gzip is not None and not self._stopped and not self._gzip.finished:
            raise BodyRefused("the compressed body was cut off", final=False)
        return Response(status, self.headers, self._data, received_at)

    def _grow(self, piece: bytes) -> None:
        if len(self._data) + len(piece) > self._request.max_body:
            limit = self._request.max_body >> 20
            raise BodyRefused(f"the body is larger than {limit} MiB, the most that is read of one response", final=True)
        self._data += piece


class _Gzip:
    """Decompresses gzip data of one or several members."""

    def __init__(self) -> None:
        self._decompressor = zlib.decompressobj(_GZIP_WBITS)
        self.finished = True

    def pieces(self, part: bytes) -> Iterable[bytes]:
        """Yield what `part` decompresses to, at most MAX_STEP_BYTES bytes at a time."""
        while part:
            if self._decompressor.eof:
                if not part.startswith(b"\x1f"):
                    return  # padding after the last member
                self._decompressor = zlib.decompressobj(_GZIP_WBITS)
            self.finished = False
            try:
                piece = self._decompressor.decompress(part, MAX_STEP_BYTES)
            except zlib.error:
                raise BodyRefused("the body is not what its Content-Encoding says", final=False) from None
            if self._decompressor.eof:
                self.finished, part = True, self._decompressor.unused_data
            else:
                part = self._decompressor.unconsumed_tail
            yield piece


def _gzip(encoding: str) -> _Gzip | None:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    raise BodyRefused(f"the body came with Content-Encoding {encoding[:40]!r}, which was not asked for", final=True)
