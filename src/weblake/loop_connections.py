"""One HTTP/1.1 connection on an event loop. Imports: connections, loop_streams.

httpcore's own connection takes three locks for each request, and each of them is a turn of the event loop: with ten
thousand waiting jobs that was a third of a poll. Here a connection has one user at a time (loop_lines.py), so none is
needed. What goes through a proxy stays with httpcore.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpcore

from weblake.connections import Connection
from weblake.loop_streams import LoopBackend


class LoopConnection(Connection, httpcore.AsyncConnectionInterface):
    """Opened by its first request; then idle, or at work for one request, or closed for good."""

    _stream: httpcore.AsyncNetworkStream | None

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Sends it and reads the head of its reply; the body is read out of the response, which has to be closed."""
        try:
            stream = self._stream = self._stream or await self._opened(request)
            try:
                for part in self._said.outgoing(request):
                    await stream.write(part)
            except httpcore.WriteError:
                pass  # a server that refuses a request may say so before it has read all of it
            while (response := self._said.head()) is None:
                self._said.receive(await stream.read(self._said.asks))
        except BaseException:
            await self.aclose()
            raise
        response.stream = _Body(self)
        return response

    async def _opened(self, request: httpcore.Request) -> httpcore.AsyncNetworkStream:
        host, limit = self._origin.host.decode("ascii"), request.extensions["timeout"]["connect"]
        stream = await LoopBackend().connect_tcp(host, self._origin.port, limit)
        if self._ssl is None:
            return stream
        self._ssl.set_alpn_protocols(["http/1.1"])
        return await stream.start_tls(self._ssl, host, limit)

    async def parts(self) -> AsyncIterator[bytes]:
        """The body of the reply, as it arrives."""
        assert self._stream is not None
        while (part := self._said.part()) is not None:
            if part:
                yield part
            else:
                self._said.receive(await self._stream.read(self._said.asks))

    async def end(self) -> None:
        """The reply was read, or will not be: the connection is idle then, or of no use any more."""
        if self._closed or not self._said.over():
            await self.aclose()

    async def aclose(self) -> None:
        """Closes it, whatever it is at."""
        self._said.idle, self._closed = False, True
        if self._stream is not None:
            await self._stream.aclose()


class _Body:
    """The body of a reply, and its end."""

    def __init__(self, connection: LoopConnection) -> None:
        self._connection = connection
        self._ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.parts()

    async def aclose(self) -> None:
        if not self._ended:
            self._ended = True
            await self._connection.end()
