"""The service with its real web: a site on loopback is fetched, crawled and mapped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from weblake_service.config import ServiceConfig
from weblake_service.page_failure import PageFailure
from weblake_service.server import LocalService
from weblake_service.web.http_web import HttpWeb

PAGES = {
    "/": "<title>Home</title><nav><a href='/nav'>n</a></nav><main><h1>Home</h1><a href='/a'>A</a> "
    "<a href='/private/x'>P</a>"
    " <a href='/missing'>M</a> <a href='http://other.invalid/'>O</a></main>",
    "/a": "<title>A</title><main><h1>Page A</h1><p>Text of A.</p><a href='/b?x=1'>B</a></main>",
    "/b": "<title>B</title><main><h1>Page B</h1></main>",
    "/nav": "<title>Nav</title><main><p>Reached by the navigation.</p></main>",
    "/private/x": "<main>secret</main>",
    "/only-in-sitemap": "<title>S</title><main>From the sitemap.</main>",
}


@dataclass
class Site:
    url: str = ""
    asked: list[str] = field(default_factory=list)
    hooks: list[bytes] = field(default_factory=list)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    here = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.asked.append(self.path)
            path = self.path.partition("?")[0]
            if path == "/robots.txt":
                self.answer(200, f"User-agent: *\nDisallow: /private/\nSitemap: {here.url}/sitemap.xml\n", "text/plain")
            elif path == "/sitemap.xml":
                entry = f"<url><loc>{here.url}/only-in-sitemap</loc></url>"
                self.answer(
                    200, f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entry}</urlset>', "text/xml"
                )
            elif path in PAGES:
                self.answer(200, f"<html><body>{PAGES[path]}</body></html>", "text/html")
            else:
                self.answer(404, "<html><body><main>Not here.</main></body></html>", "text/html")

        def do_POST(self) -> None:
            here.hooks.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(204, "", "text/plain")

        def answer(self, status: int, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    here.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield here
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with (
        LocalService(keys="test-key") as service,
        httpx.Client(
            base_url=service.url,
            headers={"Authorization": "Bearer test-key"},
            timeout=120,
            trust_env=False,
            verify=False,
        ) as client,
    ):
        client.headers["x-service"] = service.url
        yield client


def ended(http: httpx.Client, address: str) -> dict[str, Any]:
    while True:
        status: dict[str, Any] = http.get(address).json()
        if status["status"] != "scraping":
            return status


def paths(status: dict[str, Any], site: Site) -> list[str]:
    return sorted(document["metadata"]["sourceURL"].removeprefix(site.url) for document in status["data"])


def test_a_batch_has_documents_for_reachable_pages_and_errors_for_others(http: httpx.Client, site: Site) -> None:
    urls = [f"{site.url}/a", f"{site.url}/missing", "http://127.0.0.1:9/", "http://nowhere.invalid/"]
    started = http.post("/v2/batch/scrape", json={"urls": urls, "webhook": f"{site.url}/hook"}).json()
    address = f"/v2/batch/scrape/{started['id']}"
    status = ended(http, address)
    assert paths(status, site) == ["/a", "/missing"]
    by_path = {document["metadata"]["sourceURL"]: document["metadata"] for document in status["data"]}
    assert by_path[urls[1]]["statusCode"] == 404
    assert by_path[urls[1]]["error"]
    errors = {one["url"]: one["code"] for one in http.get(f"{address}/errors").json()["errors"]}
    assert set(errors) == set(urls[2:])
    assert errors["http://nowhere.invalid/"] == "SCRAPE_DNS_RESOLUTION_ERROR"
    while not site.hooks:
        http.get("/health")
    assert started["id"].encode() in site.hooks[0]


def test_a_crawl_returns_the_whole_site(http: httpx.Client, site: Site) -> None:
    job = http.post("/v2/crawl", json={"url": site.url, "maxDiscoveryDepth": 3}).json()["id"]
    status = ended(http, f"/v2/crawl/{job}")
    assert paths(status, site) == ["/", "/a", "/b?x=1", "/missing", "/nav", "/only-in-sitemap"]
    assert http.get(f"/v2/crawl/{job}/errors").json()["robotsBlocked"] == [f"{site.url}/private/x"]
    assert "/private/x" not in site.asked


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_webhooks_do_not_reach_private_receivers_unless_allowed(site: Site, host: str) -> None:
    async def post() -> int:
        web = HttpWeb(ServiceConfig(allow_private=False))
        try:
            return await web.post(site.url.replace("127.0.0.1", host), b"{}", {})
        finally:
            await web.aclose()

    before = len(site.hooks)
    with pytest.raises(PageFailure, match="public"):
        asyncio.run(post())
    assert len(site.hooks) == before
