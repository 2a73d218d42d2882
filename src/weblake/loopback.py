"""An HTTP server on a loopback port, in threads of this process, whose answers a function gives: the demo's site has
one, and so have tests.

    with LoopbackServer(lambda asked: Answer(200, b"hello")) as server:
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

from typing_extensions import Self

#: Seconds that a connection may be idle.
IDLE_S = 30
#: Seconds between two looks at whether the server is to stop.
_LOOK_S = 0.01
#: Bytes of a request's body.
_MOST_BODY = 64 << 20
#: Connections that may wait to be accepted: with the usual 5, a burst of them waits for a second.
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    #: Path and query, as they came.
    target: str
    #: By lower-case name.
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered."""

    status: int = 200
    #: Bytes, or pieces of them that go out as they come, until there are none or the server stops.
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    #: How many bytes of the body go out before the connection is closed; None for all.
    cut_at: int | None = None
    #: Whether the connection is closed without any answer.
    hangs_up: bool = False


class LoopbackServer:
    """The server; it has its port at once and answers from `start` on.

    Args:
        answer: Called for each request, in a thread of its connection.
        program: The server's name in its answers.
    """

    def __init__(self, answer: Callable[[Asked], Answer], program: str = "weblake") -> None:
        self._server = _Server(answer, program)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_S,), name=f"{program} on loopback", daemon=True
        )

    @property
    def url(self) -> str:
        """Its address, such as `http://127.0.0.1:40123`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def stopping(self) -> threading.Event:
        """Set when it stops, for an answer that waits."""
        return self._server.stopping

    def start(self) -> Self:
        """Starts to answer and returns itself."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Answers no more and closes all connections; a server that never started only gives its port back."""
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

    def __init__(self, answer: Callable[[Asked], Answer], program: str) -> None:
        self.answer = answer
        self.program = program
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request(self, request: object, client_address: object) -> None:
        """Notes the connection and serves it in a thread of its own."""
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: object) -> None:
        """Closes a connection."""
        assert isinstance(request, socket.socket)
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Closes those that clients have kept open."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is nobody's business."""


class _Connection(BaseHTTPRequestHandler):
    """Reads requests and writes answers."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    # Head and body in one piece, and none that waits for another's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    timeout = IDLE_S
    server: _Server

    def version_string(self) -> str:
        """The server's name."""
        return self.server.program

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        """Answers."""
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def _answer(self) -> None:
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > _MOST_BODY:
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, self.rfile.read(int(length)))
        answer = self.server.answer(asked)
        if answer.hangs_up or self.server.stopping.is_set():
            self.close_connection = True
        elif isinstance(answer.body, bytes):
            self._send_whole(answer, answer.body)
        else:
            self._send_pieces(answer, answer.body)

    def _send_whole(self, answer: Answer, body: bytes) -> None:
        self._send_head(answer, ("Content-Length", str(len(body))))
        if self.command == "HEAD":
            return
        self.wfile.write(body[: answer.cut_at])
        if answer.cut_at is not None:
            self.close_connection = True

    def _send_pieces(self, answer: Answer, pieces: Iterable[bytes]) -> None:
        self._send_head(answer, ("Transfer-Encoding", "chunked"))
        if self.command == "HEAD":
            return
        for piece in pieces:
            if self.server.stopping.is_set():
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, answer: Answer, length: tuple[str, str]) -> None:
        self.send_response(answer.status)
        for name, value in (*answer.headers.items(), length):
            self.send_header(name, value)
        self.end_headers()
