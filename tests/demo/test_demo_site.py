"""The demo's site serves what it says it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser
from xml.etree import ElementTree

import httpx
import pytest

from weblake.demo.site import Page, Site, build_site, title_of
from weblake.demo.site_server import SiteServer


@pytest.fixture(scope="module")
def server() -> Iterator[SiteServer]:
    with SiteServer() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: SiteServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as opened:
        yield opened


Links = Callable[[Site, Page], set[str]]


def test_every_page_is_answered_as_the_site_describes_it(server: SiteServer, client: httpx.Client) -> None:
    assert len(server.site.pages) > 40
    for path, page in server.site.pages.items():
        reply = client.get(path)
        assert (path, reply.status_code) == (path, page.status)
        assert reply.content == page.body
        assert reply.headers.get("location", "") == page.location
        if not page.location:
            assert reply.headers["content-type"] == page.content_type
        head = client.head(path)
        assert (head.status_code, head.content) == (page.status, b"")
        assert head.headers["content-length"] == str(len(page.body))


def test_the_site_holds_what_a_crawler_meets_elsewhere(server: SiteServer) -> None:
    pages = server.site.pages.values()
    statuses = Counter(page.status for page in pages)
    assert statuses[404] >= 1
    assert statuses[500] >= 1
    assert statuses[301] + statuses[302] >= 2
    readable = [page for page in pages if page.is_html and page.status == 200]
    assert 30 <= len(readable) <= 45
    assert [page.path for page in readable if not title_of(page)] == ["/archive/field-book"]
    assert 900_000 < max(len(page.body) for page in pages) < 1_200_000
    assert any("windows-1252" in page.content_type for page in pages)
    assert any(b'dir="rtl"' in page.body for page in pages)
    assert any(not page.is_text and not page.location for page in pages)


def test_a_path_where_nothing_is_has_status_404(server: SiteServer, client: httpx.Client) -> None:
    reply = client.get("/no/such/page")
    assert reply.status_code == 404
    assert "No such gauge" in reply.text
    assert server.hits["/no/such/page"] == 1


def test_a_redirect_leads_to_a_page(server: SiteServer, client: httpx.Client) -> None:
    redirects = [page for page in server.site.pages.values() if page.location]
    assert redirects
    for page in redirects:
        reply = client.get(page.path, follow_redirects=True)
        assert (reply.status_code, reply.url.path) == (200, page.location)


def test_robots_txt_blocks_just_the_folder_it_names(server: SiteServer, client: httpx.Client) -> None:
    robots = RobotFileParser()
    robots.parse(client.get("/robots.txt").text.splitlines())
    blocked = {path for path in server.site.pages if not robots.can_fetch("anybot", server.url + path)}
    assert blocked == {path for path, page in server.site.pages.items() if page.is_blocked}
    assert blocked
    assert robots.site_maps() == [f"{server.url}/sitemap.xml"]


def test_the_sitemap_lists_pages_that_are_there_and_one_that_nobody_links_to(
    server: SiteServer, client: httpx.Client, links: Links
) -> None:
    root = ElementTree.fromstring(client.get("/sitemap.xml").content)
    listed = [node.text or "" for node in root.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    paths = {url.removeprefix(server.url) for url in listed}
    assert len(paths) == len(listed)
    assert all(url.startswith(server.url) for url in listed)
    assert {server.site.pages[path].status for path in paths} == {200}
    assert not any(server.site.pages[path].is_blocked for path in paths)
    linked = set().union(*(links(server.site, page) for page in server.site.pages.values()))
    assert {"/archive/founding-letter"} == paths - {url.removeprefix(server.url) for url in linked}


def test_no_link_within_the_site_is_broken_by_accident(server: SiteServer, links: Links) -> None:
    known = {server.url + path for path in server.site.pages}
    for page in server.site.pages.values():
        inner = {url for url in links(server.site, page) if url.startswith(server.url)}
        assert inner <= known, page.path


def test_no_page_names_an_address_beyond_the_reserved_ones(server: SiteServer, links: Links) -> None:
    allowed = {"example.org", "example.com", "example.net", urlsplit(server.url).hostname}
    for page in server.site.pages.values():
        assert {urlsplit(url).hostname for url in links(server.site, page)} - {None} <= allowed, page.path


def test_the_site_is_the_same_everywhere_but_for_its_address() -> None:
    one, other = build_site("http://127.0.0.1:1"), build_site("http://127.0.0.1:2")
    assert one == build_site("http://127.0.0.1:1")
    assert list(one.pages) == list(other.pages)
    for path, page in one.pages.items():
        assert page.body.replace(b"http://127.0.0.1:1", b"http://127.0.0.1:2") == other.pages[path].body


def test_a_server_that_has_stopped_gives_its_port_back() -> None:
    server = SiteServer().start()
    assert httpx.get(server.url, trust_env=False).status_code == 200
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url, trust_env=False)
    SiteServer().stop()  # one that never started
