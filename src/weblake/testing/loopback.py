"""An HTTP server on a loopback port, in threads of this process, for the demo's site and for tests.

A function returns the response to each request:

    with LoopbackServer(lambda request: LoopbackResponse(200, b"hello")) as server:
        httpx.get(server.url)
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

#: Maximum seconds that a connection may be idle.
IDLE_S = 30
#: Seconds between two checks whether the server has to stop.
_POLL_S = 0.01
#: Maximum bytes of a request body.
_MAX_BODY_BYTES = 64 << 20
#: Maximum number of connections that wait to be accepted: with the default of 5, a burst of connections waits for a
#: second.
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class LoopbackRequest:
    """A received request."""

    method: str
    #: Path and query, as received.
    target: str
    #: By lower-case name.
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class LoopbackResponse:
    """The response to a request."""

    status: int = 200
    #: Bytes, or an iterable of chunks, which are sent one by one until it ends or the server stops.
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    #: Number of body bytes to send before the connection is closed; None for all.
    truncate_at: int | None = None
    #: Whether to close the connection without a response.
    drop: bool = False


class LoopbackServer:
    """The server. Its port is open after construction; it responds after `start`.

    Args:
        respond: Called for each request, in the thread of its connection.
        program: The value of the Server header.
    """

    def __init__(self, respond: Callable[[LoopbackRequest], LoopbackResponse], program: str = "weblake") -> None:
        self._server = _Server(respond, program)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name=f"{program} on loopback", daemon=True
        )

    @property
    def url(self) -> str:
        """The server's URL, such as `http://127.0.0.1:40123`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def stopping(self) -> threading.Event:
        """An event that is set when the server stops, for responses that wait."""
        return self._server.stopping

    def start(self) -> Self:
        """Start to respond, and return the server."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the server and close all connections; a server that was not started only releases its port."""
        self._server.stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.close_connections()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, respond: Callable[[LoopbackRequest], LoopbackResponse], program: str) -> None:
        self.respond = respond
        self.program = program
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: object, client_address: object) -> None:
        """Register the connection and serve it in a new thread."""
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: object) -> None:
        """Close a connection."""
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Close the connections that clients have kept open."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a client that disconnects during a request is not an error."""


class _Connection(BaseHTTPRequestHandler):
    """Reads the requests of one connection and writes the responses."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    # Head and body are sent together, and no packet waits for the acknowledgement of another one.
    wbufsize = -1
    disable_nagle_algorithm = True
    timeout = IDLE_S
    server: _Server

    def version_string(self) -> str:
        """Return the value of the Server header."""
        return self.server.program

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing: requests are not logged."""

    def do_GET(self) -> None:
        """Respond to a request of any method."""
        self._respond()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def _respond(self) -> None:
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > _MAX_BODY_BYTES:
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = LoopbackRequest(self.command, self.path, headers, self.rfile.read(int(length)))
        response = self.server.respond(request)
        if response.drop or self.server.stopping.is_set():
            self.close_connection = True
        elif isinstance(response.body, bytes):
            self._send_body(response, response.body)
        else:
            self._send_chunks(response, response.body)

    def _send_body(self, response: LoopbackResponse, body: bytes) -> None:
        self._send_head(response, ("Content-Length", str(len(body))))
        if self.command == "HEAD":
            return
        self.wfile.write(body[: response.truncate_at])
        if response.truncate_at is not None:
            self.close_connection = True

    def _send_chunks(self, response: LoopbackResponse, pieces: Iterable[bytes]) -> None:
        self._send_head(response, ("Transfer-Encoding", "chunked"))
        if self.command == "HEAD":
            return
        for piece in pieces:
            if self.server.stopping.is_set():
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, response: LoopbackResponse, length: tuple[str, str]) -> None:
        self.send_response(response.status)
        for name, value in (*response.headers.items(), length):
            self.send_header(name, value)
        self.end_headers()
