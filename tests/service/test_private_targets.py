"""S7: DNS rebinding, and every way in which a site or a user can name a private target."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Iterator
from typing import Any

import loopback_site as loopback
import pytest
from catalogue import proves

from weblake_service.page_failure import PageFailure
from weblake_service.web import addresses
from weblake_service.web.fetch import Fetcher
from weblake_service.web.robots import RobotsRules
from weblake_service.web.sitemap import sitemap_urls

#: Stands for an address of the public internet; no request leaves loopback.
PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.1"


class Resolver:
    """A DNS resolver of the test: each name has a sequence of results, the last one for ever."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self.answers = answers
        self._inner = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        told = self.answers.get(name)
        if told is None:
            return self._inner(host, port, *args, **options)
        address = told.pop(0) if len(told) > 1 else told[0]
        return self._inner(address, port, *args, **options)


class PublicAndPrivateSites:
    """A public site and a private one on the same port, and host names for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.private = loopback.Site()
        port = self.private.server_port
        self.public = loopback.Site.__new__(loopback.Site)
        loopback.ThreadingHTTPServer.__init__(self.public, (PUBLIC, port), loopback.Handler)
        self.public.pages, self.public.requests, self.public.connections = {}, [], 0
        self.public.stop = threading.Event()
        for site in (self.private, self.public):
            threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
        self.resolver = Resolver({"public.example": [PUBLIC], "inside.example": [PRIVATE]})
        judged = addresses.is_public
        monkeypatch.setattr(
            addresses, "is_public", lambda address: address == ipaddress.ip_address(PUBLIC) or judged(address)
        )
        monkeypatch.setattr(socket, "getaddrinfo", self.resolver)

    def url(self, path: str = "/", host: str = "public.example") -> str:
        return f"http://{host}:{self.private.server_port}{path}"

    def close(self) -> None:
        for site in (self.private, self.public):
            site.shutdown()
            site.server_close()


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Iterator[PublicAndPrivateSites]:
    made = PublicAndPrivateSites(monkeypatch)
    yield made
    made.close()


def fetched(work: Any) -> Any:
    async def main() -> Any:
        fetcher = Fetcher(trust_env=False)
        try:
            return await work(fetcher)
        finally:
            await fetcher.aclose()

    return asyncio.run(main())


@proves(
    "S7",
    at="src/weblake_service/web/connection_pools.py",
    line="connect_tcp(addresses[-1], port, timeout, local_address, socket_options)",
    becomes="connect_tcp(host, port, timeout, local_address, socket_options)",
)
def test_s7_dns_rebinding_does_not_change_the_checked_address(sites: PublicAndPrivateSites) -> None:
    sites.resolver.answers["rebinding.example"] = [PUBLIC, PRIVATE]
    sites.public.page("/", b"public")
    sites.private.page("/", b"secret")
    assert fetched(lambda fetcher: fetcher.get(sites.url(host="rebinding.example"))).body == b"public"
    assert sites.private.requests == []
    with pytest.raises(PageFailure, match="not on the public internet"):
        fetched(lambda fetcher: fetcher.get(sites.url(host="rebinding.example")))
    assert sites.private.requests == []


@proves(
    "S7",
    at="src/weblake_service/web/addresses.py",
    line="if allow_private or is_public(ipaddress.ip_address(text))]",
    becomes="]",
    case="get",
)
@pytest.mark.parametrize("way", ["get", "post", "redirect", "redirect to an address", "robots", "sitemap"])
def test_s7_no_redirect_robots_txt_or_sitemap_leads_to_a_private_address(
    sites: PublicAndPrivateSites, way: str
) -> None:
    """Whatever the public site names and the user does, the private one gets no request."""
    inside = sites.url("/secret", "inside.example")
    address = inside.replace("inside.example", "2130706433")
    sites.private.page("/secret", b"secret")
    sites.private.page("/robots.txt", b"")
    sites.public.page("/away", status=302, Location=inside)
    sites.public.page("/number", status=307, Location=address)
    sites.public.page("/robots.txt", f"Sitemap: {inside}\nSitemap: {address}\n".encode(), content_type="text/plain")
    sites.public.page("/sitemap.xml", f"<sitemapindex><sitemap><loc>{inside}</loc></sitemap></sitemapindex>".encode())

    async def take(fetcher: Fetcher) -> object:
        if way == "robots":
            return await RobotsRules(fetcher).allowed(inside)
        if way == "sitemap":
            return (await sitemap_urls(sites.url(), fetcher=fetcher, robots=RobotsRules(fetcher)))[0]
        if way == "post":
            return await fetcher.post(inside, b"{}")
        return await fetcher.get({"get": inside, "redirect": sites.url("/away")}.get(way, sites.url("/number")))

    if way in {"robots", "sitemap"}:
        assert fetched(take) in (True, [])
    else:
        with pytest.raises(PageFailure, match="not on the public internet") as caught:
            fetched(take)
        assert (caught.value.code, caught.value.status) == ("unsafe_domain_blocked", 403)
    assert sites.private.requests == []
    assert sites.private.connections == 0


@proves(
    "S7",
    at="src/weblake_service/routes/target_urls.py",
    line="    if _is_private(host):",
    becomes="    if False:",
    case="127.0.0.1",
)
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "user:pw@127.0.0.1", "example.com@127.0.0.1", "0x7f.1", "0177.0.0.1", "2130706433", "127.0.0.1.",
     "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "localhost.", "a.internal", "169.254.169.254",
     "[fd00:ec2::254]", "printer.local"],
)  # fmt: skip
def test_s7_every_route_refuses_private_targets(make_bench: Any, host: str) -> None:
    bench = make_bench(allow_private=False)
    url = f"http://{host}/"
    for path in ("/v2/scrape", "/v2/crawl", "/v2/map"):
        reply = bench.http.post(path, json={"url": url})
        told = reply.status_code, reply.json()["code"]
        assert told in {(403, "unsafe_domain_blocked"), (400, "BAD_REQUEST")}, (path, reply.text)
    assert bench.http.post("/v2/batch/scrape", json={"urls": [url]}).status_code in (400, 403)
    for hook in (url, url.replace("http:", "https:"), {"url": url.replace("http:", "https:")}):
        reply = bench.http.post("/v2/batch/scrape", json={"urls": ["http://site.example.com/"], "webhook": hook})
        assert (reply.status_code, "webhook.url" in reply.json()["error"]) == (400, True)
    assert bench.web.asked == []


@proves(
    "S7", at="src/weblake_service/serve.py", line="allow_private: bool = False,", becomes="allow_private: bool = True,"
)
def test_s7_private_targets_are_refused_by_default() -> None:
    import inspect

    from weblake.cli import local
    from weblake_service.config import ServiceConfig
    from weblake_service.serve import serve

    assert inspect.signature(serve).parameters["allow_private"].default is False
    assert inspect.signature(local.serve).parameters["allow_private"].default is False
    assert ServiceConfig().allow_private is False
    assert Fetcher().allow_private is False
