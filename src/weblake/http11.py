"""What HTTP/1.1 says on one connection, as bytes out and bytes in: no I/O, so threads and event loops share it.
Imports: plain_heads, secrets.

h11 says what the bytes mean, as it does for httpcore, but for what takes it long and us not: heads in their plainest
form (plain_heads.py), and a body that has a length, once its head is read. h11 copies each byte of it twice, and what
such a body means is nothing but how many bytes it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

import h11
import httpcore

from weblake import plain_heads
from weblake.credentials import Unshown

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
        #: Whether it waits for another request; False before the first one, too.
        self.idle = False
        self._expires = 0.0
        self._forget()

    def _forget(self) -> None:
        #: The request, and who else knows of it: nobody, for as long as all that is said is plain.
        self._request: httpcore.Request | None = None
        self._h11: h11.Connection | None = None
        self._head: httpcore.Response | None = None
        #: Of a body that has one, its length; what h11 gave of it; what is left, once it goes past h11.
        self._length: int | None = None
        self._given = 0
        self._left: int | None = None
        self._came = b""

    def outgoing(self, request: httpcore.Request) -> Iterator[bytes]:
        """The bytes of a request; raises httpcore.LocalProtocolError for one that cannot be sent."""
        self.idle, self._request = False, request
        _LOG.debug("request %r for %r", request.method, request.url.target)
        plain = plain_heads.request(request)
        if plain is not None:
            yield plain
            return
        self._h11 = _client()
        try:
            yield from _sent(self._h11, request)
        except h11.LocalProtocolError as error:
            raise httpcore.LocalProtocolError(str(error)) from error

    def receive(self, data: bytes) -> None:
        """Takes what was read; nothing is the end of the connection."""
        if self._left:
            self.passed(len(data))
            self._came = data
        elif not data and self._head is None:
            raise httpcore.RemoteProtocolError("the server closed the connection without a reply")
        elif self._h11 is not None or not self._received_plain(data):
            self._with_h11().receive_data(data)

    def passed(self, count: int) -> None:
        """Counts bytes of a body that has a length, read by somebody else; none is the end of the connection."""
        assert self._left is not None
        if not count:
            raise httpcore.RemoteProtocolError(f"the server closed the connection {self._left} bytes before the end")
        assert count <= self._left, "more was read than was asked for"
        self._left -= count

    def head(self) -> httpcore.Response | None:
        """The head of the reply, which has no content yet; None: read on."""
        if self._head is None and self._h11 is not None:
            event = self._event(self._h11)
            while isinstance(event, h11.InformationalResponse):
                event = self._event(self._h11)
            if event is h11.NEED_DATA:
                return None
            if not isinstance(event, h11.Response):
                raise httpcore.RemoteProtocolError("the server closed the connection without a reply")
            headers = event.headers.raw_items()
            self._length = _length(headers)
            self._head = httpcore.Response(event.status_code, headers=headers)
        if self._head is not None:
            _LOG.debug("reply %d", self._head.status)
        return self._head

    def part(self) -> bytes | None:
        """The next bytes of the body; b"": read on; None: that was all of it."""
        if self._came:
            part, self._came = self._came, b""
            return part
        if self._left is not None:
            return b"" if self._left else None
        event = self._event(self._with_h11())
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
        said = self._h11
        whole = said is None or said.our_state is h11.DONE  # not, where a side has said that it closes
        if self._left is not None:
            whole = whole and not self._left
        else:
            # Bytes behind a reply would be taken for the next one's.
            whole = whole and said is not None and said.their_state is h11.DONE and not said.trailing_data[0]
        self._forget()
        self.idle, self._expires = whole, time.monotonic() + KEEP_S
        return whole

    @property
    def stale(self) -> bool:
        """Whether it was idle for too long."""
        return time.monotonic() > self._expires

    def _received_plain(self, data: bytes) -> bool:
        """Takes what was read first of a reply, where it is a plain head and some of its body; False: h11 has to."""
        head = plain_heads.reply(data)
        if head is None or len(data) - head.begins > head.length:
            return False
        self._head = httpcore.Response(200, headers=head.headers)
        self._came = data[head.begins :]
        self._left = head.length - len(self._came)
        return True

    def _with_h11(self) -> h11.Connection:
        """Who reads a reply that is not plain; a request that was sent without it is told."""
        if self._h11 is None:
            assert self._request is not None
            self._h11 = _client()
            for _ in _sent(self._h11, self._request):
                pass
        return self._h11

    @staticmethod
    def _event(said: h11.Connection) -> object:
        try:
            return said.next_event()
        except h11.RemoteProtocolError as error:
            raise httpcore.RemoteProtocolError(str(error)) from error


def _client() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)


def _sent(said: h11.Connection, request: httpcore.Request) -> Iterator[bytes]:
    assert isinstance(request.stream, Iterable)
    head = h11.Request(method=request.method, target=request.url.target, headers=request.headers)
    yield Unshown(said.send(head) or b"")
    for part in request.stream:
        yield said.send(h11.Data(data=part)) or b""
    end = said.send(h11.EndOfMessage())
    if end:
        yield end


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The length of a reply's body, where nothing else says how long it is; h11 has checked it."""
    names = {name.lower(): value for name, value in headers}
    return None if b"transfer-encoding" in names or b"content-length" not in names else int(names[b"content-length"])
