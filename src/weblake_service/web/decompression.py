"""Decompresses response bodies as they arrive, within a size limit."""

from __future__ import annotations

import zlib

from weblake_service.page_failure import PageFailure

#: Maximum output bytes of one decompression step, so that a decompression bomb is detected before it fills the memory.
_MAX_STEP_BYTES = 1 << 20
#: Maximum members of a gzip body; each costs as much as thousands of bytes.
_MAX_MEMBERS = 10_000


class BodyDecoder:
    """Collects one body. Over `limit` bytes, compressed or not, it raises PageFailure, or truncates with `cut`."""

    def __init__(self, encoding: str, limit: int, url: str, *, cut: bool = False) -> None:
        self.data = bytearray()
        #: Whether reading stopped at the limit.
        self.full = False
        self._limit, self._url, self._cut = limit, url, cut
        self._received = self._members = 0
        codings = [coding for coding in encoding.lower().replace(" ", "").split(",") if coding not in {"", "identity"}]
        if codings not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            message = f"{url} answered compressed with {encoding!r}, which was not asked for. Leave this URL out."
            raise PageFailure("SCRAPE_SITE_ERROR", message)
        self._coding = codings[0] if codings else ""
        self._inflate: zlib._Decompress | None = None

    def feed(self, part: bytes) -> None:
        """Add bytes as they arrive from the network."""
        self._received += len(part)
        if self._received > self._limit and not self._cut:
            raise self._too_large_failure()
        if not self._coding:
            self._grow(part)
            return
        more = True
        while more and not self.full:
            part, more = self._step(part)

    def finish(self) -> bytes:
        """Return the whole body; one that ends inside its compressed data raises PageFailure."""
        if self._coding and self._received and not self.full and (self._inflate is None or not self._inflate.eof):
            raise self._broken_failure("breaks off")
        return bytes(self.data)

    def _step(self, part: bytes) -> tuple[bytes, bool]:
        """Decompress once; return the remaining compressed bytes, and whether there is more to do."""
        if self._inflate is None or self._inflate.eof:
            # A gzip body can have several members; after the last one, and after a deflate body, only padding follows.
            if not part or (self._inflate is not None and (self._coding == "deflate" or part[:1] != b"\x1f")):
                return b"", False
            self._members += 1
            if self._members > _MAX_MEMBERS:
                raise self._broken_failure(f"has more than {_MAX_MEMBERS} members")
            self._inflate = zlib.decompressobj(self._window(part))
        try:
            piece = self._inflate.decompress(part, _MAX_STEP_BYTES)
        except zlib.error as error:
            raise self._broken_failure(f"cannot be decompressed ({error})") from error
        self._grow(piece)
        rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        # All input may be consumed while output is still buffered: only an output below the maximum shows that none is.
        return rest, bool(rest) or len(piece) == _MAX_STEP_BYTES

    def _window(self, part: bytes) -> int:
        if self._coding != "deflate":
            return 16 + zlib.MAX_WBITS
        # "deflate" means the zlib format, but some servers send raw deflate data, which differs in the first byte.
        return zlib.MAX_WBITS if part[0] & 0x0F == 8 else -zlib.MAX_WBITS

    def _grow(self, piece: bytes) -> None:
        room = self._limit - len(self.data)
        if len(piece) > room:
            if not self._cut:
                raise self._too_large_failure()
            self.full, piece = True, piece[:room]
        self.data += piece

    def _too_large_failure(self) -> PageFailure:
        size = f"{self._limit >> 20} MiB" if self._limit >= 1 << 20 else f"{self._limit} bytes"
        message = f"{self._url} is larger than {size}, the most that is read of one page. Leave this URL out."
        return PageFailure("SCRAPE_SITE_ERROR", message)

    def _broken_failure(self, how: str) -> PageFailure:
        return PageFailure("SCRAPE_SITE_ERROR", f"The compressed answer of {self._url} {how}. Try again later.")
