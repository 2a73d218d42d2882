"""A service that sends scripted bytes and records every request.

A script names the responses of a request: `service.on("GET /v2/crawl/1?skip=2", reset(), reply({...}))` plays each
once and the last one for ever. A play may write any bytes to the connection, valid HTTP or not.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it was received."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}" + (f"?{self.query}" if self.query else "")

    def json(self) -> dict[str, object]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


@dataclass
class Connection:
    """The connection on which a response is played."""

    peer: socket.socket
    seen: ReceivedRequest
    #: Set when the test is over: a play that stalls or drips stops then.
    over: threading.Event

    def send(self, data: bytes) -> None:
        self.peer.sendall(data)

    def gone(self, seconds: float) -> bool:
        """Wait for so many seconds; return True once the client has closed the connection or the test is over."""
        self.peer.settimeout(seconds)
        try:
            return self.over.is_set() or not self.peer.recv(1)
        except TimeoutError:
            return self.over.is_set()
        except OSError:
            return True


#: Plays a response; returns True if the connection can be used for another request.
Play = Callable[[Connection], bool]


def head(status: int = 200, *, length: int | None = None, **headers: str) -> bytes:
    """Return a status line and headers; `content_encoding="gzip"` becomes Content-Encoding."""
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Odd"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name.replace('_', '-')}: {text}" for name, text in headers.items())]
    if length is not None:
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encoded(body: object) -> bytes:
    """Return bytes unchanged, text as UTF-8, and anything else as JSON."""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def reply(body: object = b"", status: int = 200, *, length: int | None = None, **headers: str) -> Play:
    """Play a complete response; `length` may declare a wrong length."""
    data = encoded(body)
    headers = {"content_type": "application/json"} | headers

    def play(connection: Connection) -> bool:
        announced = None if status in (204, 304) else len(data) if length is None else length
        connection.send(head(status, length=announced, **headers) + data)
        return length is None or length == len(data)

    return play


def each(make: Callable[[ReceivedRequest], Play]) -> Play:
    """Play a response that is made for each request."""
    return lambda connection: make(connection.seen)(connection)


def close(data: bytes = b"") -> Play:
    """Play these bytes and close the connection."""

    def play(connection: Connection) -> bool:
        connection.send(data)
        return False

    return play


def reset(data: bytes = b"") -> Play:
    """Play these bytes and reset the connection (RST)."""

    def play(connection: Connection) -> bool:
        connection.send(data)
        if data:
            # A reset discards data in transit: wait until the client has read the first bytes.
            connection.gone(0.05)
        connection.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.peer.close()
        return False

    return play


def stall(data: bytes = b"") -> Play:
    """Play these bytes and then nothing, on an open connection."""

    def play(connection: Connection) -> bool:
        connection.send(data)
        while not connection.gone(0.2):
            pass
        return False

    return play


def drip(data: bytes, every: float = 0.05) -> Play:
    """Play one byte at a time for ever; the last byte is repeated."""

    def play(connection: Connection) -> bool:
        at = 0
        while not connection.gone(every):
            connection.send(data[at : at + 1])
            at = min(at + 1, len(data) - 1)
        return False

    return play


def flood(start: bytes, block: bytes) -> Play:
    """Play the start, then the block repeatedly until the client disconnects."""

    def play(connection: Connection) -> bool:
        connection.send(start)
        while not connection.over.is_set():
            connection.send(block)
        return False

    return play


def _shut_down(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)


@dataclass
class ScriptedService:
    """Listens on a random loopback port and plays its script."""

    seen: list[ReceivedRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._script: dict[str, list[Play]] = {}
        self._over = threading.Event()
        self._peers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    def on(self, name: str, *plays: Play) -> None:
        """Play these responses for `METHOD /path?query`; a name without a query also matches requests with one."""
        with self._lock:
            self._script[name] = list(plays)

    def first(self, name: str, *plays: Play) -> None:
        """Play these responses before those set for this name earlier."""
        with self._lock:
            self._script[name] = [*plays, *self._script.get(name, [])]

    def requests_for(self, name: str) -> list[ReceivedRequest]:
        """Return the requests of exactly this name."""
        return [seen for seen in self.seen if seen.name == name]

    def stop(self) -> None:
        """Close all connections at once."""
        self._over.set()
        _shut_down(self._listener)
        self._threads[0].join(10)  # from now on, no connection is added
        for peer in self._peers:
            _shut_down(peer)
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self._threads)

    def _play_for(self, seen: ReceivedRequest) -> Play:
        with self._lock:
            plays = self._script.get(seen.name) or self._script.get(f"{seen.method} {seen.path}")
            if not plays:
                return reply({"success": False, "error": f"nothing is played for {seen.name}"}, 404)
            return plays.pop(0) if len(plays) > 1 else plays[0]

    def _listen(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while not self._over.is_set():
                peer, _ = self._listener.accept()
                self._peers.append(peer)
                thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer, contextlib.suppress(OSError):
            while (seen := self._read(peer)) is not None:
                with self._lock:
                    self.seen.append(seen)
                play = self._play_for(seen)
                peer.settimeout(15)
                if not play(Connection(peer, seen, self._over)):
                    return
                peer.settimeout(None)

    def _read(self, peer: socket.socket) -> ReceivedRequest | None:
        data = b""
        while b"\r\n\r\n" not in data:
            part = peer.recv(1 << 16)
            if not part:
                return None
            data += part
        top, _, body = data.partition(b"\r\n\r\n")
        first, *lines = top.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): text.strip() for name, _, text in (connection.partition(":") for connection in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            part = peer.recv(1 << 16)
            if not part:
                return None
            body += part
        parts = urlsplit(target)
        return ReceivedRequest(method, parts.path, parts.query, headers, body)
