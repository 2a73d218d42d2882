"""One HTTP/1.1 connection on an event loop. Imports: loop_streams.

h11 says what the bytes mean, as it does for httpcore. httpcore's own connection takes three locks for each request, and
each of them is a turn of the event loop: with ten thousand waiting jobs that was a third of a poll. Here a connection
has one user at a time (loop_lines.py), so none is needed. What goes through a proxy stays with httpcore.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterable

import h11
import httpcore

from weblake.loop_streams import LoopBackend

#: As talkative as httpcore's own loggers, for whoever looks for an error: no header is ever in it.
_LOG = logging.getLogger(__name__)

#: Bytes asked for at once.
READ = 1 << 16
#: The most bytes of a reply's head.
MOST_HEAD = 100 << 10
#: Seconds that an idle connection is kept.
KEEP_S = 15.0


class LoopConnection(httpcore.AsyncConnectionInterface):
    """Opened by its first request; then idle, or at work for one request, or closed for good."""

    def __init__(self, origin: httpcore.Origin, ssl_context: ssl.SSLContext | None) -> None:
        self._origin = origin
        self._ssl = ssl_context
        self._stream: httpcore.AsyncNetworkStream | None = None
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
        self._idle = self._closed = False
        self._expires = 0.0

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Sends it and reads the head of its reply; the body is read out of the response, which has to be closed."""
        self._idle = False
        _LOG.debug("request %r for %r", request.method, request.url.target)
        try:
            stream = self._stream = self._stream or await self._opened(request)
            await self._send(request, stream)
            head = await self.event()
            while isinstance(head, h11.InformationalResponse):
                head = await self.event()
            if not isinstance(head, h11.Response):
                raise httpcore.RemoteProtocolError("the server closed the connection without a reply")
        except BaseException:
            await self.aclose()
            raise
        _LOG.debug("reply %d to the request for %r", head.status_code, request.url.target)
        return httpcore.Response(head.status_code, headers=head.headers.raw_items(), content=_Body(self))

    async def _opened(self, request: httpcore.Request) -> httpcore.AsyncNetworkStream:
        host, limit = self._origin.host.decode("ascii"), request.extensions["timeout"]["connect"]
        stream = await LoopBackend().connect_tcp(host, self._origin.port, limit)
        if self._ssl is None:
            return stream
        self._ssl.set_alpn_protocols(["http/1.1"])
        return await stream.start_tls(self._ssl, host, limit)

    async def _send(self, request: httpcore.Request, stream: httpcore.AsyncNetworkStream) -> None:
        assert isinstance(request.stream, Iterable)
        try:
            data = self._h11.send(
                h11.Request(method=request.method, target=request.url.target, headers=request.headers)
            )
            await stream.write(data or b"")
            for part in request.stream:
                await stream.write(self._h11.send(h11.Data(data=part)) or b"")
            await stream.write(self._h11.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError as error:
            raise httpcore.LocalProtocolError(str(error)) from error
        except httpcore.WriteError:
            pass  # a server that refuses a request may say so before it has read all of it

    async def event(self) -> object:
        """The next thing that the server says."""
        assert self._stream is not None
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise httpcore.RemoteProtocolError(str(error)) from error
            if event is not h11.NEED_DATA:
                return event
            data = await self._stream.read(READ)
            if not data and self._h11.their_state is h11.SEND_RESPONSE:
                raise httpcore.RemoteProtocolError("the server closed the connection without a reply")
            self._h11.receive_data(data)

    async def end(self) -> None:
        """The reply was read, or will not be: the connection is idle then, or of no use any more."""
        done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        # Bytes behind a reply would be taken for the next one's.
        if self._closed or not done or self._h11.trailing_data[0]:
            await self.aclose()
            return
        self._h11.start_next_cycle()
        self._idle, self._expires = True, time.monotonic() + KEEP_S

    async def aclose(self) -> None:
        """Closes it, whatever it is at."""
        self._idle, self._closed = False, True
        if self._stream is not None:
            await self._stream.aclose()

    def info(self) -> str:
        """What a person wants to know."""
        return "idle" if self._idle else "closed" if self._closed else "at work"

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        """Whether a request belongs here."""
        return origin == self._origin

    def is_available(self) -> bool:
        """Whether it can take a request."""
        return self._idle

    def has_expired(self) -> bool:
        """Whether it was idle for too long, or the server has closed it, or said something that nobody asked for."""
        late = time.monotonic() > self._expires
        return late or self._stream is None or bool(self._stream.get_extra_info("is_readable"))

    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return self._idle

    def is_closed(self) -> bool:
        """Whether it is closed for good."""
        return self._closed


class _Body:
    """The body of a reply, as it arrives."""

    def __init__(self, connection: LoopConnection) -> None:
        self._connection = connection
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._connection.event(), h11.Data):
            yield bytes(event.data)

    async def aclose(self) -> None:
        if not self._ended:
            self._ended = True
            await self._connection.end()
