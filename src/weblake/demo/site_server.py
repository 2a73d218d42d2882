"""Serves the demo's site on a loopback port. Imports: site.

with SiteServer() as server:
    httpx.get(server.url + "/notes/")
"""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from weblake.demo.site import Site, build_site

#: Seconds that a connection may be idle.
_IDLE_S = 30


class SiteServer:
    """The site in threads of this process; `url` and `site` are there before it starts."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.site: Site = build_site(self.url)
        self._server.site = self.site
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="demo site", daemon=True)

    @property
    def hits(self) -> Counter[str]:
        """How often each path was asked for so far."""
        return self._server.hits

    def start(self) -> Self:
        """Starts to answer and returns itself."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Answers no more; a server that never started only gives its port back."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    """One site and the count of what was asked of it."""

    daemon_threads = True
    site: Site

    def __init__(self, address: tuple[str, int], answers: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, answers)
        self.hits: Counter[str] = Counter()
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is nobody's business."""


class _Answers(BaseHTTPRequestHandler):
    """Answers GET and HEAD from the site."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "ostrel", ""
    timeout = _IDLE_S
    server: _Server

    def do_GET(self) -> None:
        """Answers with the page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answers with the page's head."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _answer(self, *, with_body: bool) -> None:
        with self.server.lock:
            self.server.hits[self.path] += 1
        page = self.server.site.page(self.path)
        self.send_response(page.status)
        if page.location:
            self.send_header("Location", page.location)
        else:
            self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)
