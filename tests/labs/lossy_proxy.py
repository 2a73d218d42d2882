"""A proxy in front of an HTTP server that loses replies, and that kills a process at one of its requests."""

from __future__ import annotations

import random
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO
from urllib.parse import urlsplit

_WRITES = (b"PUT", b"POST", b"DELETE")


class LossyProxy:
    """A proxy for a server that closes each connection after its response; one process sends its requests here.

    The process that `on_write` names is called at the nth request that changes something (PUT, POST, DELETE): before
    the server sees the request, or after the server has carried it out, and in both cases without a reply.
    """

    def __init__(self, server: str, rng: random.Random, *, lose_one_in: int) -> None:
        address = urlsplit(server)
        self._server = (str(address.hostname), address.port)
        self._rng, self._lose_one_in = rng, lose_one_in
        self._lock = threading.Lock()
        self._writes_left = 0
        self._kill: Callable[[], None] | None = None
        self._before = False
        #: Replies that were lost after the server had carried out the request.
        self.lost = 0
        self.url = ""

    def kill_at(self, write: int, kill: Callable[[], None], *, before: bool) -> None:
        """Call `kill` at the nth request from now on that changes something."""
        with self._lock:
            self._writes_left, self._kill, self._before = write, kill, before

    def _plan(self, method: bytes) -> tuple[Callable[[], None] | None, bool, bool]:
        """Return what to call at a request, whether before the server sees it, and whether its reply is lost."""
        with self._lock:
            if method not in _WRITES:
                return None, False, False
            self._writes_left -= 1
            if self._writes_left == 0:
                return self._kill, self._before, True
            lost = self._rng.randrange(self._lose_one_in) == 0
            self.lost += lost
            return None, False, lost

    def handle(self, client: socket.socket) -> None:
        """Pass one request on, and its reply back. A request is passed on once it has been read to its end."""
        request = _request(client)
        if request is None:
            return
        kill, before, lost = self._plan(request.partition(b" ")[0])
        if kill is not None and before:
            kill()
            return
        reply = b""
        with socket.create_connection(self._server) as server:
            server.sendall(request)
            while chunk := server.recv(65536):
                reply += chunk
        if kill is not None:
            kill()
        if lost:
            # With this option, closing the socket resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            client.sendall(reply)


def _request(client: socket.socket) -> bytes | None:
    """Read a request from a connection; None if the client ends before."""
    stream = client.makefile("rb")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:-2])
    if b"100-continue" in fields.get(b"expect", b""):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The server must not send its own.
        head = b"".join(line for line in head.splitlines(keepends=True) if not line.lower().startswith(b"expect:"))
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        body = _chunks(stream)
    else:
        size = int(fields.get(b"content-length", b"0"))
        body = stream.read(size)
        if len(body) < size:
            return None
    return None if body is None else head + body


def _chunks(stream: BinaryIO) -> bytes | None:
    """Read a chunked body and its trailer; None if the client ends before."""
    body = b""
    last = False
    while not last:
        line = stream.readline()
        if not line:
            return None
        size = int(line.partition(b";")[0], 16)
        last = size == 0
        data = b"" if last else stream.read(size + 2)
        body += line + data
    while line := stream.readline():
        body += line
        if line == b"\r\n":
            return body
    return None


@contextmanager
def lossy_proxy(server: str, rng: random.Random, *, lose_one_in: int) -> Iterator[LossyProxy]:
    """Yield a proxy on a random loopback port."""
    proxy = LossyProxy(server, rng, lose_one_in=lose_one_in)

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the process was killed
                proxy.handle(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Connection) as listener:
        proxy.url = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown()
            thread.join(10)
