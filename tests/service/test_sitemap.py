"""Sitemaps: indexes, gzip, plain lists, malicious XML, and limits."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc
from typing import Any

import pytest
from catalogue import proves

from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse, Fetcher
from weblake_service.web.robots import RobotsRules
from weblake_service.web.sitemap import sitemap_urls

SITE = "https://site.example"
NS = "http://www.sitemaps.org/schemas/sitemap/0.9"


def urlset(*urls: str, extra: str = "") -> bytes:
    inner = "".join(f"<url><loc>\n {url} </loc><lastmod>2026-01-01</lastmod>{extra}</url>" for url in urls)
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="{NS}">{inner}</urlset>'.encode()


def index(*urls: str) -> bytes:
    inner = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f'<sitemapindex xmlns="{NS}">{inner}</sitemapindex>'.encode()


class Files(Fetcher):
    """A site that consists of these files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(allow_private=True)
        self.files = {(path if "://" in path else SITE + path): body for path, body in files.items()}
        self.asked: list[str] = []
        self.slow: float = 0.0
        #: The warning of the last read.
        self.warning = ""

    async def get(self, url: str, **options: Any) -> FetchedResponse:
        self.asked.append(url)
        await asyncio.sleep(self.slow)
        body = self.files.get(url)
        if body is None:
            return FetchedResponse(url, 404, {}, b"<urlset><url><loc>https://site.example/wrong</loc></url></urlset>")
        if body == b"FAIL":
            raise PageFailure("SCRAPE_SITE_ERROR", "broke off")
        return FetchedResponse(url, 200, {}, body[: options.get("max_body")], "application/xml")


def read(files: dict[str, bytes], **options: Any) -> tuple[list[str], Files]:
    async def main() -> tuple[list[str], Files]:
        fetcher = Files(files)
        fetcher.slow = options.pop("slow", 0.0)
        urls, warning = await sitemap_urls(f"{SITE}/deep/page", fetcher=fetcher, robots=RobotsRules(fetcher), **options)
        fetcher.warning = warning
        return urls, fetcher

    return asyncio.run(main())


def test_sitemap_xml_is_read_if_robots_txt_names_none() -> None:
    urls, _ = read({"/sitemap.xml": urlset(f"{SITE}/a", f"{SITE}/b?x=1&amp;y=2", f"{SITE}/a")})
    assert urls == [f"{SITE}/a", f"{SITE}/b?x=1&y=2"]


def test_a_gzip_sitemap_of_several_members_is_read_whole() -> None:
    whole = urlset(*(f"{SITE}/{number}" for number in range(3000)))
    members = b"".join(gzip.compress(whole[at : at + 10_000]) for at in range(0, len(whole), 10_000))
    urls, _ = read({"/sitemap.xml": members})
    assert len(urls) == 3000


def test_a_gzip_sitemap_of_very_many_members_is_bounded() -> None:
    begun = time.process_time()
    urls, _ = read({"/sitemap.xml": gzip.compress(urlset(f"{SITE}/a")) + gzip.compress(b"") * 300_000})
    assert urls == [f"{SITE}/a"]
    # 0.4 s; fed as a whole, the end of each member copies the rest of the file, which takes 16 s.
    assert time.process_time() - begun < 4


def test_sitemaps_of_robots_txt_are_read() -> None:
    urls, fetcher = read(
        {
            "/robots.txt": b"Sitemap: https://cdn.example/map.xml\nSitemap: /local.xml",
            "https://cdn.example/map.xml": urlset(f"{SITE}/a"),
            "/local.xml": urlset(f"{SITE}/b"),
        }
    )
    assert urls == [f"{SITE}/a", f"{SITE}/b"]
    assert f"{SITE}/sitemap.xml" not in fetcher.asked


def test_an_index_is_followed_and_a_broken_part_costs_only_itself() -> None:
    urls, _ = read(
        {
            "/sitemap.xml": index(f"{SITE}/1.xml", f"{SITE}/gone.xml", f"{SITE}/fail.xml", "/2.xml.gz", "ftp://x/y"),
            "/1.xml": urlset(f"{SITE}/a"),
            "/fail.xml": b"FAIL",
            "/2.xml.gz": gzip.compress(urlset(f"{SITE}/b")),
        }
    )
    assert urls == [f"{SITE}/a", f"{SITE}/b"]


@proves(
    "S9",
    at="src/weblake_service/web/sitemap.py",
    line="and len(self._seen) < _MAX_FILES and self._room > 0:",
    becomes="and len(self._seen) < 2000 and self._room > 0:",
)
def test_s9_an_endless_index_ends() -> None:
    class Endless(Files):
        async def get(self, url: str, **options: Any) -> FetchedResponse:
            self.asked.append(url)
            return FetchedResponse(url, 200, {}, index(*(f"{SITE}/{len(self.asked)}-{n}.xml" for n in range(100))))

    async def main() -> int:
        fetcher = Endless({})
        assert (await sitemap_urls(SITE, fetcher=fetcher, robots=RobotsRules(fetcher)))[0] == []
        return len(fetcher.asked)

    assert asyncio.run(main()) <= 501


def test_images_videos_and_translations_are_not_pages() -> None:
    image = '<image:image xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><image:loc>https://i/x.png</image:loc></image:image>'
    video = (
        '<v:video xmlns:v="http://www.google.com/schemas/sitemap-video/1.1"><v:loc>https://i/x.mp4</v:loc></v:video>'
    )
    other = f'<x:link xmlns:x="http://www.w3.org/1999/xhtml" rel="alternate" hreflang="de" href="{SITE}/de"/>'
    urls, _ = read({"/sitemap.xml": urlset(f"{SITE}/a", extra=image + video + other)})
    assert urls == [f"{SITE}/a"]


def test_a_plain_list_is_a_sitemap() -> None:
    urls, _ = read(
        {
            "/sitemap.xml": "\ufeffhttps://site.example/a\r\n\r\nnot a url\nhttp://[bad\nhttps://site.example/ü\n".encode()
        }
    )
    assert urls == [f"{SITE}/a", f"{SITE}/ü"]


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>https://s/&b;</loc></url></urlset>',
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>https://s/&a;</loc></url></urlset>',
        b"",
        b"<html><body>login</body></html>",
        b"\x1f\x8bbroken",
        b'<?xml version="1.0" encoding="no-such"?><urlset/>',
    ],
)
def test_hostile_and_broken_files_yield_nothing(body: bytes) -> None:
    assert read({"/sitemap.xml": body})[0] == []


@pytest.mark.system
def test_a_gzip_bomb_is_truncated() -> None:
    """Of a file, 50 MiB are read."""
    filler = b"<x>" + b" " * (1 << 20) + b"</x>"
    for fillers, found in ((49, ["a", "b"]), (50, ["a"])):
        body = urlset(f"{SITE}/a", f"{SITE}/b").replace(b"</url>", b"</url>" + filler * fillers, 1)
        assert read({"/sitemap.xml": gzip.compress(body, 1)})[0] == [f"{SITE}/{name}" for name in found]


def test_the_limit_is_exact() -> None:
    files = {"/sitemap.xml": index(*(f"{SITE}/{n}.xml" for n in range(1, 9)))}
    files |= {f"/{n}.xml": urlset(*(f"{SITE}/{n}/{m}" for m in range(30))) for n in range(1, 9)}
    urls, fetcher = read(files, limit=45)
    assert len(urls) == 45
    # Some are prefetched, the rest is never requested.
    assert f"{SITE}/4.xml" not in fetcher.asked


@pytest.mark.system
def test_urls_found_before_the_timeout_are_returned() -> None:
    files = {"/sitemap.xml": index(*(f"{SITE}/{n}.xml" for n in range(400)))}
    files |= {f"/{n}.xml": urlset(f"{SITE}/{n}") for n in range(400)}
    urls, _ = read(files, slow=0.1, timeout_s=2.0)
    assert 0 < len(urls) < 400


def test_feeds_are_read_as_sitemaps() -> None:
    rss = f"<rss><channel><link>{SITE}/</link><item><title>A</title><link> {SITE}/a </link></item></channel></rss>"
    atom = (
        f'<feed xmlns="http://www.w3.org/2005/Atom"><link href="{SITE}/"/><entry>'
        f'<link rel="self" href="{SITE}/no"/><link rel="alternate" href="{SITE}/b"/><link href="/c"/></entry></feed>'
    )
    urls, _ = read({"/robots.txt": b"Sitemap: /rss\nSitemap: /atom", "/rss": rss.encode(), "/atom": atom.encode()})
    assert urls == [f"{SITE}/a", f"{SITE}/b", f"{SITE}/c"]


def test_addresses_may_be_relative_to_the_file() -> None:
    urls, _ = read(
        {"/sitemap.xml": index("maps/1.xml", "//[broken"), "/maps/1.xml": urlset("/a", "b", "//cdn.example/c")}
    )
    assert urls == [f"{SITE}/a", f"{SITE}/maps/b", "https://cdn.example/c"]


@proves(
    "S9",
    at="src/weblake_service/web/sitemap.py",
    line="for match in islice(_TAG.finditer(text), _MAX_TAGS):",
    becomes="for match in list(_TAG.finditer(text)):",
    case="<a/>",
)
@pytest.mark.parametrize("unit", [b"<a/>", b"<url>" + b"<x/>" * 50 + b"</url>"])
def test_s9_a_file_of_many_small_elements_uses_bounded_memory(unit: bytes) -> None:
    body = b"<urlset>" + unit * ((160 << 10) // len(unit))
    read({"/sitemap.xml": urlset(f"{SITE}/a")})  # without what is loaded on first use
    tracemalloc.start()
    try:
        _, before = tracemalloc.get_traced_memory()
        assert read({"/sitemap.xml": body})[0] == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # As a tree it would take at least twice that.
    assert peak - before < 1200 << 10


@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "<![CDATA[",
        "<loc>",
        "&",
        "<link href=",
        "xmlns:a",
    ],
)
def test_a_file_of_repeated_marks_is_read_in_linear_time(unit: str) -> None:
    """Of a quadratic reader, a megabyte would take minutes."""
    ends = "<urlset><url><loc>" + SITE + "/a</loc></url>"
    begun = time.process_time()
    found = read({"/sitemap.xml": (ends + unit * ((1 << 20) // len(unit))).encode()})[0]
    assert found == [f"{SITE}/a"]
    assert time.process_time() - begun < 8


BROKEN = {
    "a bare ampersand": (f"<url><loc>{SITE}/a?x=1&copy=2</loc></url>", f"{SITE}/a?x=1&copy=2"),
    "a bare ampersand elsewhere": (f"<url><loc>{SITE}/a</loc><x>A & B</x></url>", f"{SITE}/a"),
    "an undeclared entity": (f"<url><loc>{SITE}/caf&eacute;</loc></url>", f"{SITE}/caf%C3%A9"),
    "a tag that is not closed": (f"<url><loc>{SITE}/a</loc>", f"{SITE}/a"),
    "a tag that closes nothing": (f"</b><url><loc>{SITE}/a</loc></url>", f"{SITE}/a"),
    "a prefix without a namespace": (
        f"<url><loc>{SITE}/a</loc><image:image><image:loc>/i</image:loc></image:image></url>",
        f"{SITE}/a",
    ),
    "an entry of a feed": (f"<item><title>A & B</title><link>{SITE}/a</link></item>", f"{SITE}/a"),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_all_entries_of_a_file_that_is_not_well_formed_are_read(broken: str) -> None:
    entry, url = BROKEN[broken]
    around = [f"{SITE}/{number}" for number in range(50)]
    whole = urlset(*around).decode()
    at = whole.index("<url>", 300)
    urls, fetcher = read({"/sitemap.xml": (whole[:at] + entry + whole[at:]).encode()})
    assert (sorted(urls), len(urls)) == (sorted([*around, url]), 51)
    if broken != "a prefix without a namespace":
        assert f"{SITE}/sitemap.xml is not well-formed" in fetcher.warning
        assert "51 entries were read" in fetcher.warning


A = f"<url><loc><![CDATA[{SITE}/a?x=1&y=2]]></loc></url>"
B = "<url><loc>/\u4e2d\u6587</loc></url>"


@pytest.mark.parametrize(
    "body",
    [
        urlset(f"{SITE}/a?x=1&amp;y=2", f"{SITE}/\u4e2d\u6587"),
        f"<urlset>{A}<!-- A & B <url><loc>/no</loc></url> -->{B}</urlset>".encode(),
        f'<?xml version="1.0" encoding="GBK"?><urlset>{A}<x>\u4e2d\u6587</x>{B}</urlset>'.encode("gbk"),
        f"<urlset>{A}{B}</urlset>".encode("utf-16"),
        f"PHP Warning: none\n \ufeff<urlset>{A}{B}</urlset>".encode(),
        f"<urlset>{A}{B}</urlset>".replace("loc>", "Loc >").replace("url>", "URL>").encode(),
    ],
)
def test_a_file_in_any_encoding_and_spelling_is_read_without_a_warning(body: bytes) -> None:
    urls, fetcher = read({"/sitemap.xml": body})
    assert (urls, fetcher.warning) == ([f"{SITE}/a?x=1&y=2", f"{SITE}/%E4%B8%AD%E6%96%87"], "")


def test_a_warning_names_the_files_that_could_not_be_read() -> None:
    whole = urlset(f"{SITE}/a", f"{SITE}/long-name")
    cut = whole[: whole.index(b"-name")]
    parts = {"/cut.xml": cut, "/fail.xml": b"FAIL", "/bomb.xml": b"<!DOCTYPE x [<!ENTITY a 'b'>]><urlset/>"}
    urls, fetcher = read({"/sitemap.xml": index(*parts, "/gone.xml"), **parts})
    assert urls == [f"{SITE}/a"]
    for word in ("cut.xml is not well-formed (its tags do not match); 1 entries", "broke off", "declares entities"):
        assert word in fetcher.warning
    assert "So it is with 1 more." in fetcher.warning
    for absent in ({}, {"/sitemap.xml": b"<!doctype html><p>Not found<br>"}):
        assert read(absent)[1].warning == ""
