"""S7: DNS rebinding, and every way in which a site or a user can name a private target."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from catalogue import proves
from private_sites import PRIVATE, PUBLIC, PublicAndPrivateSites, public_and_private_sites

from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import Fetcher
from weblake_service.web.robots import RobotsRules
from weblake_service.web.sitemap import sitemap_urls


@pytest.fixture
def sites() -> Iterator[PublicAndPrivateSites]:
    with public_and_private_sites() as made:
        yield made


def fetched(work: Any) -> Any:
    async def main() -> Any:
        fetcher = Fetcher()
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
    sites.answers["rebinding.example"] = [PUBLIC, PRIVATE]
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
