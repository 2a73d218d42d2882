"""One HTTP/1.1 connection of whatever thread has it at the moment. Imports: deadlines, http11.

The twin of loop_connections.py. httpcore's own takes a millisecond of the interpreter for each request, and copies each
byte of a body twice more: with a thousand chunks that was a quarter of a landing. A connection has one user at a time
(thread_lines.py). What goes through a proxy stays with httpcore.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpcore

from weblake.deadlines import DeadlineBackend
from weblake.http11 import Connection


class ThreadConnection(Connection, httpcore.ConnectionInterface):
    """Opened by its first request; then idle, or at work for one request, or closed for good."""

    _stream: httpcore.NetworkStream | None

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        """Sends it and reads the head of its reply; the body is read out of the response, which has to be closed."""
        try:
            stream = self._stream = self._stream or self._opened(request)
            try:
                for part in self._said.outgoing(request):
                    stream.write(part)
            except httpcore.WriteError:
                pass  # a server that refuses a request may say so before it has read all of it
            while (response := self._said.head()) is None:
                self._said.receive(stream.read(self._said.asks))
        except BaseException:
            self.close()
            raise
        response.stream = _Body(self)
        return response

    def _opened(self, request: httpcore.Request) -> httpcore.NetworkStream:
        host, limit = self._origin.host.decode("ascii"), request.extensions["timeout"]["connect"]
        stream = DeadlineBackend().connect_tcp(host, self._origin.port, limit)
        if self._ssl is None:
            return stream
        self._ssl.set_alpn_protocols(["http/1.1"])
        return stream.start_tls(self._ssl, host, limit)

    def parts(self) -> Iterator[bytes]:
        """The body of the reply, as it arrives."""
        assert self._stream is not None
        while (part := self._said.part()) is not None:
            if part:
                yield part
            else:
                self._said.receive(self._stream.read(self._said.asks))

    def end(self) -> None:
        """The reply was read, or will not be: the connection is idle then, or of no use any more."""
        if self._closed or not self._said.over():
            self.close()

    def close(self) -> None:
        """Closes it, whatever it is at."""
        self._said.idle, self._closed = False, True
        if self._stream is not None:
            self._stream.close()


class _Body:
    """The body of a reply, and its end."""

    def __init__(self, connection: ThreadConnection) -> None:
        self._connection = connection
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        return self._connection.parts()

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._connection.end()
