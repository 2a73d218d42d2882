"""Sends webhooks, correct and forged, to an API server, and serves a receiver with uvicorn in this process."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from polling import until

from weblake import webhooks

JOB = "0f6f1c1e-0000-4000-8000-000000000001"


def completed(job_id: str = JOB, **more: Any) -> dict[str, Any]:
    """The body of a webhook that says that a batch scrape has completed."""
    return {"success": True, "type": "batch_scrape.completed", "id": job_id, "data": [], **more}


@dataclass
class Sender:
    """Sends webhooks to one path of an API server, signed as the service signs them."""

    url: str
    conn_id: str
    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def path(self) -> str:
        """The path of the connection's receiver."""
        return f"/weblake/webhooks/{self.conn_id}"

    def deliver(self, event: object = None, **headers: str) -> tuple[int, Any]:
        """Send an event (a completed job if None; bytes as they are); return the status and the decoded response."""
        body = event if isinstance(event, bytes) else json.dumps(completed() if event is None else event).encode()
        headers = {webhooks.SIGNATURE_HEADER: webhooks.sign(self.secret, body), **headers}
        return self.request("POST", self.path, body, list(headers.items()))

    def request(
        self, method: str, path: str, body: bytes = b"", headers: list[tuple[str, str]] | None = None
    ) -> tuple[int, Any]:
        """Send any request; return the status and the decoded response, None if it has no body."""
        place = urlsplit(self.url)
        with contextlib.closing(http.client.HTTPConnection(str(place.hostname), place.port, timeout=240)) as connection:
            connection.putrequest(method, path)
            for name, value in [("Content-Length", str(len(body))), *(headers or [])]:
                connection.putheader(name, value)
            connection.endheaders(body)
            reply = connection.getresponse()
            raw = reply.read()
            return reply.status, json.loads(raw) if raw else None

    @contextlib.contextmanager
    def unfinished(self, *headers: tuple[str, str], chunk: bytes = b"") -> Iterator[socket.socket]:
        """Send the headers of a delivery and the first bytes of its body; the value is the open connection."""
        place = urlsplit(self.url)
        with socket.create_connection((str(place.hostname), place.port or 80), timeout=240) as connection:
            lines = [f"POST {self.path} HTTP/1.1", "Host: api", *(f"{name}: {value}" for name, value in headers)]
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + chunk)
            yield connection

    def head(self, *headers: tuple[str, str], chunk: bytes = b"") -> int:
        """Send the headers of a delivery and the first bytes of its body, no more; return the response's status."""
        with self.unfinished(*headers, chunk=chunk) as connection:
            return int(connection.recv(4096).split()[1])


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI app with uvicorn on loopback; the value is its URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
