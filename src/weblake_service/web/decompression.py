"""Decompresses response bodies as they arrive, within a size limit.

The bytes decide whether and how a body is compressed, because its Content-Encoding is often wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from weblake_service.page.content_types import ContentKind, is_readable, kind_of
from weblake_service.page_failure import PageFailure

#: Maximum output bytes of one decompression step, so that a decompression bomb is detected before it fills the memory.
_MAX_STEP_BYTES = 1 << 20
#: Maximum members of a gzip body; each costs as much as thousands of bytes.
_MAX_MEMBERS = 10_000
_CODINGS = frozenset(["gzip", "x-gzip", "deflate"])
_MAX_CODINGS = 4


class BodyDecoder:
    """Collects one body. Over `limit` bytes, compressed or not, it raises PageFailure, or truncates with `cut`.

    A coding that is not known, or that the bytes do not have, is ignored if the body then reads as its media type says.
    """

    def __init__(self, encoding: str, limit: int, url: str, *, cut: bool = False, content_type: str = "") -> None:
        self.data = bytearray()
        #: Whether reading stopped at the limit.
        self.full = False
        self._limit, self._url, self._cut = limit, url, cut
        self._label, self._content_type = encoding, content_type
        self._received = 0
        codings = [coding for coding in encoding.lower().replace(" ", "").split(",") if coding not in {"", "identity"}]
        if len(codings) > _MAX_CODINGS:
            raise self._broken_failure(f"has {len(codings)} codings")
        self._doubtful = not _CODINGS.issuperset(codings)
        if content_type and kind_of(content_type, b"") in {ContentKind.HTML, ContentKind.TEXT}:
            codings.insert(0, "")
        #: In the order in which the codings are undone.
        self._stages = [_Inflater(coding) for coding in reversed(codings) if coding in {"", *_CODINGS}]

    def feed(self, part: bytes) -> None:
        """Add bytes as they arrive from the network."""
        self._received += len(part)
        if self._received > self._limit and not self._cut:
            raise self._too_large_failure()
        self._undo(0, part)

    def finish(self) -> bytes:
        """Return the whole body; one that ends inside its compressed data, or cannot be read, raises PageFailure."""
        for number, stage in enumerate(self._stages):
            self._undo(number + 1, stage.start)
            if stage.broken and not self.full:
                raise self._broken_failure("breaks off")
            self._doubtful = self._doubtful or (stage.plain and stage.coding != "")
        if self._doubtful and not is_readable(self._content_type, bytes(self.data)):
            message = f"{self._url} answered with the coding {self._label!r}, which cannot be read. Leave this URL out."
            raise PageFailure("SCRAPE_SITE_ERROR", message)
        return bytes(self.data)

    def _undo(self, number: int, part: bytes) -> None:
        """Undo the codings from this stage on."""
        if number == len(self._stages):
            self._grow(part)
            return
        stage = self._stages[number]
        try:
            for piece in stage.feed(part):
                self._undo(number + 1, piece)
                stage.size += len(piece)
                self.full = self.full or stage.size > self._limit
                if self.full and not self._cut:
                    raise self._too_large_failure()
                if self.full:
                    return
        except zlib.error as error:
            raise self._broken_failure(f"cannot be decompressed ({error})") from error

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


class _Inflater:
    """Undoes one coding; an empty one is gzip without a label."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        #: Bytes that are too few to see whether they are compressed.
        self.start = b""
        #: Whether the bytes are not compressed.
        self.plain = False
        self.size = self._members = 0
        self._inflate: zlib._Decompress | None = None

    @property
    def broken(self) -> bool:
        """Return whether the bytes so far end inside the compressed data."""
        return self._inflate is not None and not self._inflate.eof

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of a part, in steps."""
        if self._inflate is None and not self.plain:
            part, self.start = self.start + part, b""
            if len(part) < 2:
                self.start = part
                return
            window = self._window(part)
            self.plain = window == 0
            self._inflate = zlib.decompressobj(window) if window else None
        if self._inflate is None:
            yield part
            return
        more = True
        while more:
            if self._inflate.eof:
                # A gzip body can have several members, and padding after the last one.
                if not part.startswith(b"\x1f"):
                    return
                self._members += 1
                if self._members >= _MAX_MEMBERS:
                    raise zlib.error(f"it has more than {_MAX_MEMBERS} members")
                self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
            piece = self._inflate.decompress(part, _MAX_STEP_BYTES)
            yield piece
            part = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            # Output may still be buffered although all input is consumed: only a shorter piece shows that none is.
            more = bool(part) or len(piece) == _MAX_STEP_BYTES

    def _window(self, start: bytes) -> int:
        """Return zlib's parameter for data that begins like this; 0 if it is not compressed."""
        if start.startswith(b"\x1f\x8b"):
            return 16 + zlib.MAX_WBITS
        if self.coding and start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0:
            return zlib.MAX_WBITS
        # "deflate" means the zlib format, but some servers send raw deflate data, which is hardly ever ASCII.
        is_text = len(start) >= 20 and start[:64].isascii()
        return -zlib.MAX_WBITS if self.coding == "deflate" and not is_text else 0
