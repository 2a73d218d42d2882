"""Reply bodies, decompressed under a bound while they arrive. Imports: steps.

A body of 300 KB can hold 64 MB and more: what it says of its own size is never believed.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress

from weblake.steps import Reply, Request

#: Bytes that one step of decompression may put out, so that a bomb is noticed before it is held.
STEP = 1 << 20


class BodyRefused(Exception):
    """A body that is too large, cut off, or compressed in a way nobody asked for."""

    def __init__(self, text: str, *, final: bool) -> None:
        super().__init__(text)
        #: Whether reading it again would end the same way.
        self.final = final


class BoundedBody:
    """Collects one reply's body; `feed` says when enough is there."""

    def __init__(self, raw_headers: Iterable[tuple[bytes, bytes]], request: Request) -> None:
        self.headers = _headers(raw_headers)
        self._request = request
        self._data, self._size = request.buffer(), 0
        self._enough = False
        self._inflate = _inflater(self.headers.get("content-encoding", ""))

    def feed(self, part: bytes) -> bool:
        """Adds bytes from the wire; returns True when no more are wanted."""
        if self._inflate is None:
            self._grow(part)
        else:
            for piece in self._inflate.pieces(part):
                self._grow(piece)
        enough = self._request.enough
        if enough is not None and not self._enough:
            with memoryview(self._data)[: self._size] as so_far:
                self._enough = enough(so_far)
        return self._enough

    def room(self, most: int) -> memoryview | None:
        """Returns where the next bytes of a body that is not compressed may be put, at most so many; then `filled`."""
        if self._inflate is not None:
            return None
        ends = min(self._size + most, self._request.max_body + 1)
        if ends > len(self._data):
            self._data.extend(bytes(ends - len(self._data)))
        return memoryview(self._data)[self._size : ends]

    def filled(self, count: int) -> None:
        """Takes the bytes that were put there; the view of them has to be gone."""
        self._size += count
        self._bounded(self._size)

    def reply(self, status: int, wall: float) -> Reply:
        """The finished reply; a compressed body that was cut off is refused."""
        if self._inflate is not None and not self._enough and not self._inflate.finished:
            raise BodyRefused("the compressed body was cut off", final=False)
        del self._data[self._size :]
        return Reply(status, self.headers, self._data, not self._enough, wall)

    def _grow(self, piece: bytes) -> None:
        size = self._size + len(piece)
        self._bounded(size)
        self._data[self._size : size] = piece
        self._size = size

    def _bounded(self, size: int) -> None:
        if size > self._request.max_body:
            limit = self._request.max_body >> 20
            raise BodyRefused(f"the body is larger than {limit} MiB, the most that is read of one reply", final=True)


class Spares:
    """Buffers of bodies that have been read, for those still to come: memory that is new to a process is dear."""

    def __init__(self) -> None:
        self._spares: list[_Spare] = []
        self._one_at_a_time = threading.Lock()

    def take(self) -> bytearray:
        """Returns a buffer that nobody has, with anything in it."""
        with self._one_at_a_time:
            for at, spare in enumerate(self._spares):
                with suppress(BufferError):  # somebody has a view of it: a document still lies there
                    spare.pop()
                    return self._spares.pop(at)
        return _Spare()

    def give(self, body: bytes | bytearray) -> None:
        """Takes a body back of which nobody has more than views; one that did not come from here is left alone."""
        if isinstance(body, _Spare) and body:
            with self._one_at_a_time:
                self._spares.append(body)


class _Spare(bytearray):
    """A buffer that is ours to use again."""


class _Inflater:
    """gzip (with several members) and deflate (with and without a zlib header)."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding in ("gzip", "x-gzip")
        self._decompressor = zlib.decompressobj(31 if self._gzip else 15)
        self._begun = False
        self.finished = True

    def pieces(self, part: bytes) -> Iterable[bytes]:
        while part:
            if self._decompressor.eof:
                if not self._gzip or not part.startswith(b"\x1f"):
                    return  # padding after the stream
                self._decompressor = zlib.decompressobj(31)
            self.finished = False
            try:
                piece = self._decompressor.decompress(part, STEP)
            except zlib.error:
                if self._gzip or self._begun:
                    raise BodyRefused("the body is not what its Content-Encoding says", final=False) from None
                self._begun, self._decompressor = True, zlib.decompressobj(-15)
                continue
            self._begun = True
            if self._decompressor.eof:
                self.finished, part = True, self._decompressor.unused_data
            else:
                part = self._decompressor.unconsumed_tail
            yield piece


def _inflater(encoding: str) -> _Inflater | None:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Inflater(encoding)
    raise BodyRefused(f"the body came with Content-Encoding {encoding[:40]!r}, which was not asked for", final=True)


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
