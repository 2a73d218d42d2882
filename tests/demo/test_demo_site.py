"""Tests of the site of the demo: it serves what it describes, including redirects, errors and files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx
import pytest

from weblake.demo.site import BLOCKED, DemoSite, site_pages


@pytest.fixture(scope="module")
def site() -> Iterator[DemoSite]:
    with DemoSite() as running:
        yield running


@pytest.fixture(scope="module")
def client(site: DemoSite) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, trust_env=False) as opened:
        yield opened


def test_every_page_has_the_described_response(site: DemoSite, client: httpx.Client) -> None:
    for path, page in site.pages.items():
        response = client.get(path)
        assert (path, response.status_code, response.content) == (path, page.status, page.body)
        assert response.headers.get("location", "") == page.location
        assert client.head(path).headers["content-length"] == str(len(page.body))
        if page.location:
            assert site.pages[page.location].status == 200
        else:
            assert response.headers["content-type"] == page.content_type
    assert client.get("/no/such/page").status_code == 404


def test_the_site_has_redirects_errors_and_files(site: DemoSite) -> None:
    pages = site.pages.values()
    assert {200, 301, 302, 404, 500} <= {page.status for page in pages}
    assert any("windows-1252" in page.content_type for page in pages)
    assert any(b'dir="rtl"' in page.body for page in pages)
    assert any(page.content_type == "image/png" for page in pages)
    readable = [path for path, page in site.pages.items() if page.status == 200 and "text/html" in page.content_type]
    assert len(readable) > 30
    assert [path for path in readable if b"<title>" not in site.pages[path].body] == ["/archive/field-book"]


def test_robots_txt_and_the_sitemap_list_what_is_there(site: DemoSite) -> None:
    robots = RobotFileParser()
    robots.parse(site.pages["/robots.txt"].body.decode().splitlines())
    blocked = {path for path in site.pages if not robots.can_fetch("anybot", site.url + path)}
    assert blocked == {path for path in site.pages if path.startswith(BLOCKED)} != set()
    listed = re.findall(rf"<loc>{site.url}(.*?)</loc>", site.pages["/sitemap.xml"].body.decode())
    assert len(listed) == len(set(listed)) > 30
    assert not blocked & set(listed)
    assert {site.pages[path].status for path in listed} == {200}


def test_no_link_is_broken_or_leads_to_a_real_host(site: DemoSite) -> None:
    reserved = {"example.org", "example.com", "example.net"}
    for path, page in site.pages.items():
        hrefs = re.findall(r'<a [^>]*?href="([^"#]+)', page.body.decode("utf-8", "replace"))
        for url in (urlsplit(urljoin(site.url + path, href)) for href in hrefs if "text/html" in page.content_type):
            assert url.scheme == "mailto" or url.hostname in reserved or url.path in site.pages, path


def test_the_site_depends_on_its_address_only() -> None:
    one, other = site_pages("http://127.0.0.1:1"), site_pages("http://127.0.0.1:2")
    assert one.keys() == other.keys()
    for path, page in one.items():
        assert page.body.replace(b"http://127.0.0.1:1", b"http://127.0.0.1:2") == other[path].body
