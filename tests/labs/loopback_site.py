"""A web site on a loopback port whose pages are functions, and helpers with which tests fetch from it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse, Fetcher


class Site(ThreadingHTTPServer):
    """A web site whose pages are functions; it records its requests."""

    daemon_threads = True

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((address, port), Handler)
        self.pages: dict[str, Callable[[Handler], None]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        self.stop = threading.Event()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}{path}"

    def page(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        self.pages[path] = lambda handler: handler.reply(status, body, headers)
        return self.url(path)

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        page = self.server.pages.get(self.path.partition("?")[0])
        page(self) if page else self.reply(404, b"<h1>Not here</h1>", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((self.path, {"body": body.decode(), **dict(self.headers.items())}))
        self.reply(302, b"", {"Location": "/elsewhere"})

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content_type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(server: Site) -> Iterator[Site]:
    """Serve a site in a thread."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site()) as server:
        yield server


def fetching(work: Callable[[Fetcher], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        fetcher = Fetcher(**{"allow_private": True, **options})
        try:
            return await work(fetcher)
        finally:
            await fetcher.aclose()

    return asyncio.run(main())


def get(url: str, *, fetcher_options: dict[str, Any] | None = None, **options: Any) -> FetchedResponse:
    return fetching(lambda fetcher: fetcher.get(url, **options), **(fetcher_options or {}))


def failure(url: str, **options: Any) -> PageFailure:
    with pytest.raises(PageFailure) as caught:
        get(url, **options)
    return caught.value
