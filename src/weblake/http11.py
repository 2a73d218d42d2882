"""What HTTP/1.1 says on one connection, as bytes out and bytes in: no I/O, so threads and event loops share it. Imports
nothing of ours.

h11 says what the bytes mean, as it does for httpcore. Only a body that has a length goes past it, once its head is
read: h11 copies each byte twice, and what such a body means is nothing but how many bytes it has.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import h11
import httpcore

#: As talkative as httpcore's own loggers, for whoever looks for an error: no header is ever in it.
_LOG = logging.getLogger(__name__)

#: Bytes asked for at once, of a head and of a body that is known to have more.
READ, BODY_READ = 1 << 16, 1 << 20
#: The most bytes of a reply's head.
MOST_HEAD = 100 << 10
#: Seconds that an idle connection is kept.
KEEP_S = 15.0


class Conversation:
    """Requests and replies of one connection, one after another.

    For each: write what `outgoing` yields; until `head` returns one, read at most `asks` bytes and `receive` them;
    until `part` returns None, the same for the body; then `over` says whether the connection can take another request.
    """

    def __init__(self) -> None:
        self._h11 = _client()
        #: Of a body that has one, its length; what h11 gave of it; what is left, once it goes past h11.
        self._length: int | None = None
        self._given = 0
        self._left: int | None = None
        self._came = b""
        #: Whether it waits for another request; False before the first one, too.
        self.idle = False
        self._expires = 0.0

    def outgoing(self, request: httpcore.Request) -> Iterator[bytes]:
        """The bytes of a request; raises httpcore.LocalProtocolError for one that cannot be sent."""
        self.idle = False
        _LOG.debug("request %r for %r", request.method, request.url.target)
        assert isinstance(request.stream, Iterable)
        try:
            yield (
                self._h11.send(h11.Request(method=request.method, target=request.url.target, headers=request.headers))
                or b""
            )
            for part in request.stream:
                yield self._h11.send(h11.Data(data=part)) or b""
            end = self._h11.send(h11.EndOfMessage())
            if end:
                yield end
        except h11.LocalProtocolError as error:
            raise httpcore.LocalProtocolError(str(error)) from error

    def receive(self, data: bytes) -> None:
        """Takes what was read; nothing is the end of the connection."""
        if self._left:
            self.passed(len(data))
            self._came = data
        elif not data and self._h11.their_state is h11.SEND_RESPONSE:
            raise httpcore.RemoteProtocolError("the server closed the connection without a reply")
        else:
            self._h11.receive_data(data)

    def passed(self, count: int) -> None:
        """Counts bytes of a body that has a length, read by somebody else; none is the end of the connection."""
        assert self._left is not None
        if not count:
            raise httpcore.RemoteProtocolError(f"the server closed the connection {self._left} bytes before the end")
        assert count <= self._left, "more was read than was asked for"
        self._left -= count

    def head(self) -> httpcore.Response | None:
        """The head of the reply, which has no content yet; None: read on."""
        event = self._event()
        while isinstance(event, h11.InformationalResponse):
            event = self._event()
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Response):
            raise httpcore.RemoteProtocolError("the server closed the connection without a reply")
        headers = event.headers.raw_items()
        self._length = _length(headers)
        _LOG.debug("reply %d", event.status_code)
        return httpcore.Response(event.status_code, headers=headers)

    def part(self) -> bytes | None:
        """The next bytes of the body; b"": read on; None: that was all of it."""
        if self._came:
            part, self._came = self._came, b""
            return part
        if self._left is not None:
            return b"" if self._left else None
        event = self._event()
        if isinstance(event, h11.Data):
            self._given += len(event.data)
            return bytes(event.data)
        if event is not h11.NEED_DATA:
            return None
        if self._length is not None:
            self._left = self._length - self._given
        return b""

    @property
    def counts(self) -> bool:
        """Whether nothing but their number matters of the bytes to be read now."""
        return bool(self._left)

    @property
    def asks(self) -> int:
        """The most bytes to read now: never one behind the end of a body that has a length."""
        return READ if self._left is None else min(self._left, BODY_READ)

    def over(self) -> bool:
        """Says that the reply was read, or will not be; whether the connection can take another request."""
        whole = self._h11.our_state is h11.DONE  # not, where a side has said that it closes
        if self._left is not None:
            whole = whole and not self._left
        else:
            # Bytes behind a reply would be taken for the next one's.
            whole = whole and self._h11.their_state is h11.DONE and not self._h11.trailing_data[0]
        if whole and self._left is None:
            self._h11.start_next_cycle()
        else:
            self._h11 = _client()
        self._length, self._given, self._left, self._came = None, 0, None, b""
        self.idle, self._expires = whole, time.monotonic() + KEEP_S
        return whole

    @property
    def stale(self) -> bool:
        """Whether it was idle for too long."""
        return time.monotonic() > self._expires

    def _event(self) -> object:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise httpcore.RemoteProtocolError(str(error)) from error


class Stream(Protocol):
    """What is asked about the socket of either kind."""

    def get_extra_info(self, info: str) -> Any:
        """`is_readable`: whether the server has closed it, or said something."""


class Connection:
    """What a connection of a thread and one of an event loop have alike: whether it is idle, at work, or closed."""

    def __init__(self, origin: httpcore.Origin, ssl_context: ssl.SSLContext | None) -> None:
        self._origin = origin
        self._ssl = ssl_context
        self._stream: Stream | None = None
        self._said = Conversation()
        self._closed = False

    def info(self) -> str:
        """What a person wants to know."""
        return "idle" if self._said.idle else "closed" if self._closed else "at work"

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        """Whether a request belongs here."""
        return origin == self._origin

    def is_available(self) -> bool:
        """Whether it can take a request."""
        return self._said.idle

    def has_expired(self) -> bool:
        """Whether it was idle for too long, or the server has closed it, or said something that nobody asked for."""
        return self._said.stale or self._stream is None or bool(self._stream.get_extra_info("is_readable"))

    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return self._said.idle

    def is_closed(self) -> bool:
        """Whether it is closed for good."""
        return self._closed


def _client() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The length of a reply's body, where nothing else says how long it is; h11 has checked it."""
    names = {name.lower(): value for name, value in headers}
    return None if b"transfer-encoding" in names or b"content-length" not in names else int(names[b"content-length"])
