"""One HTTP/1.1 connection of whatever thread has it at the moment. Imports: connections, deadlines.

The twin of loop_connections.py. httpcore's own takes a millisecond of the interpreter for each request, and copies each
byte of a body twice more: with a thousand chunks that was a quarter of a landing. A connection has one user at a time
(thread_lines.py). What goes through a proxy stays with httpcore.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import httpcore

from weblake.connections import Connection
from weblake.deadlines import DeadlineBackend, DeadlineStream


class Room(Protocol):
    """Whoever collects a body."""

    def room(self, most: int) -> memoryview | None:
        """Where at most so many of its next bytes may be put; None: give them as a part."""

    def filled(self, count: int) -> None:
        """Says how many were put there."""


class ThreadConnection(Connection, httpcore.ConnectionInterface):
    """Opened by its first request; then idle, or at work for one request, or closed for good."""

    _stream: DeadlineStream | None

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
        response.stream = ThreadBody(self)
        return response

    def _opened(self, request: httpcore.Request) -> DeadlineStream:
        host, limit = self._origin.host.decode("ascii"), request.extensions["timeout"]["connect"]
        stream = DeadlineBackend().connect_tcp(host, self._origin.port, limit)
        if self._ssl is None:
            return stream
        self._ssl.set_alpn_protocols(["http/1.1"])
        return stream.start_tls(self._ssl, host, limit)

    def parts(self, into: Room | None) -> Iterator[bytes]:
        """The body of the reply, as it arrives; nothing where it went into the room."""
        assert self._stream is not None
        while (part := self._said.part()) is not None:
            if part:
                yield part
                continue
            if into is None or not self._said.counts or (room := into.room(self._said.asks)) is None:
                self._said.receive(self._stream.read(self._said.asks))
                continue
            with room:
                count = self._stream.read_into(room)
            self._said.passed(count)
            into.filled(count)
            yield b""

    def end(self) -> None:
        """The reply was read, or will not be: the connection is idle then, or of no use any more."""
        if self._closed or not self._said.over():
            self.close()

    def close(self) -> None:
        """Closes it, whatever it is at."""
        self._said.idle, self._closed = False, True
        if self._stream is not None:
            self._stream.close()


class ThreadBody:
    """The body of a reply, and its end."""

    def __init__(self, connection: ThreadConnection) -> None:
        #: Where its bytes may be put at once.
        self.into: Room | None = None
        self._connection = connection
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        return self._connection.parts(self.into)

    def close(self) -> None:
        """Says that it was read, or will not be."""
        if not self._ended:
            self._ended = True
            self._connection.end()
