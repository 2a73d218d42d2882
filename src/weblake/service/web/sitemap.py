"""The URLs that a site lists in its sitemaps. Imports: failures, fetch, media, robots.

Everything is bounded, since a sitemap may name sitemaps without end: files, depth, bytes, URLs, and time. A file
that is missing or broken costs what stands in it and no more.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from io import BytesIO
from urllib.parse import urljoin, urlsplit
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from weblake.service.failures import PageFailure
from weblake.service.page.media import text_of
from weblake.service.web.fetch import Fetched, Fetcher
from weblake.service.web.robots import Robots

#: The protocol's own bound for one file, uncompressed.
_MAX_FILE = 50 << 20
_MAX_TOTAL = 200 << 20
_MAX_FILES = 500
_MAX_DEPTH = 3
_TIMEOUT_S = 120.0
_FILE_TIMEOUT_S = 30.0
#: Namespaces of the protocol's extensions, whose `loc` is that of a picture or a film.
_EXTENSIONS = ("image", "video", "news", "mobile")
_LARGE = 50_000


async def sitemap_urls(
    origin_url: str,
    *,
    fetcher: Fetcher,
    robots: Robots,
    limit: int = 50_000,
    timeout_s: float = _TIMEOUT_S,
) -> list[str]:
    """Returns the http and https URLs in the sitemaps of a site, in their order, each once, at most `limit`.

    Read are the sitemaps that robots.txt names, or else `/sitemap.xml`, and those that they name in turn; gzipped ones
    too, and plain lists. What was found within `timeout_s` is returned; a site without sitemaps has none, which is no
    error.
    """
    search = _Search(fetcher, limit)
    try:
        async with asyncio.timeout(timeout_s):
            named = await robots.sitemaps(origin_url)
            await search.read([urljoin(origin_url, one) for one in named] or [urljoin(origin_url, "/sitemap.xml")])
            if not search.urls and named:
                await search.read([urljoin(origin_url, "/sitemap.xml")])
    except TimeoutError:
        pass
    return list(search.urls)[:limit]


class _Search:
    def __init__(self, fetcher: Fetcher, limit: int) -> None:
        self.urls: dict[str, None] = {}
        self._fetcher = fetcher
        self._limit = limit
        self._seen: set[str] = set()
        self._room = _MAX_TOTAL

    async def read(self, files: list[str]) -> None:
        """Reads these files and those that they name, breadth first."""
        waiting = deque((file, 0) for file in files)
        while waiting and len(self.urls) < self._limit and len(self._seen) < _MAX_FILES and self._room > 0:
            file, depth = waiting.popleft()
            if file in self._seen or not _is_web(file):
                continue
            self._seen.add(file)
            try:
                most = min(_MAX_FILE, self._room)
                fetched = await self._fetcher.get(file, timeout_s=_FILE_TIMEOUT_S, max_body=most, cut=True)
            except PageFailure:
                continue
            if fetched.status != 200:
                continue
            body = _unpacked(fetched, most)
            self._room -= len(body)
            left = self._limit - len(self.urls)
            large = len(body) > _LARGE
            pages, more = await asyncio.to_thread(_entries, body, left) if large else _entries(body, left)
            self.urls.update(dict.fromkeys(url for url in pages if _is_web(url)))
            if depth < _MAX_DEPTH:
                waiting.extend((urljoin(fetched.url, one), depth + 1) for one in more)


def _unpacked(fetched: Fetched, most: int) -> bytes:
    """The file itself, where it was sent as a gzip file and not as a gzip-encoded answer."""
    if not fetched.body.startswith(b"\x1f\x8b"):
        return fetched.body
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(fetched.body, most)
    except zlib.error:
        return b""


def _entries(body: bytes, limit: int) -> tuple[list[str], list[str]]:
    """The pages and the sitemaps that a file names; of a broken file, those before the break."""
    if not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return [line.strip() for line in text_of("text/plain", body).splitlines()[:limit]], []
    pages: list[str] = []
    more: list[str] = []
    within: list[str] = []
    try:
        for event, element in iterparse(BytesIO(body.lstrip()), events=("start", "end")):
            name = _local(element.tag)
            if event == "start":
                within.append(name)
                continue
            within.pop()
            if name == "loc" and within and element.text:
                (more if within[-1] == "sitemap" else pages).append(element.text.strip())
            if name in {"url", "sitemap"}:
                element.clear()
            if len(pages) >= limit or len(more) > _MAX_FILES:
                break
    except (ParseError, DefusedXmlException, ValueError, LookupError):
        pass
    return pages, more


def _local(tag: object) -> str:
    """A tag without its namespace; empty for the extensions' tags, which describe pictures and films."""
    namespace, _, name = str(tag).rpartition("}")
    return "" if any(word in namespace.lower() for word in _EXTENSIONS) else name.lower()


def _is_web(url: str) -> bool:
    if not url.lower().startswith(("http://", "https://")):
        return False
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
