"""Reads the URLs in a site's sitemaps.

Files, depth, bytes, URLs and time are bounded, because sitemaps can refer to further sitemaps without end. A missing or
broken file loses only its own entries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from io import BytesIO
from urllib.parse import urljoin, urlsplit
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from weblake import aio
from weblake_service.page.content_types import text_of
from weblake_service.page_failure import PageFailure
from weblake_service.web.decompression import BodyDecoder
from weblake_service.web.fetch import FetchedResponse, Fetcher
from weblake_service.web.robots import RobotsRules

#: The sitemap protocol's limit for one uncompressed file, in bytes.
_MAX_FILE_BYTES = 50 << 20
_MAX_TOTAL_BYTES = 200 << 20
_MAX_FILES = 500
_MAX_DEPTH = 3
_TIMEOUT_S = 120.0
_FILE_TIMEOUT_S = 30.0
#: Namespaces of the protocol's extensions, whose `loc` is the URL of an image or a video.
_EXTENSIONS = ("image", "video", "news", "mobile")
_LARGE_BYTES = 50_000
#: Bytes of a compressed file that are decompressed at a time.
_PART_BYTES = 65_536
#: Maximum bytes of a file without an element, such as one long tag or comment.
_MAX_TOKEN_BYTES = 2 << 20
#: Number of files read concurrently.
_CONCURRENT_FILES = 3
#: Maximum elements of one file, and their maximum depth; a valid file has 50,000 entries.
_MAX_ELEMENTS, _MAX_NESTING = 1_000_000, 32
#: Elements of feeds, which the protocol accepts as sitemaps.
_FEED_ENTRIES = frozenset(["item", "entry"])


async def sitemap_urls(
    origin_url: str,
    *,
    fetcher: Fetcher,
    robots: RobotsRules,
    limit: int = 50_000,
    timeout_s: float = _TIMEOUT_S,
) -> list[str]:
    """Return the http and https URLs in the sitemaps of a site, in order, without duplicates, at most `limit`.

    The sitemaps listed in robots.txt are read, or else `/sitemap.xml`, and those that they refer to; also gzip files,
    feeds and plain lists. URLs found within `timeout_s` are returned; a site without sitemaps returns none, which is no
    error.
    """
    search = _SitemapReader(fetcher, limit)
    try:
        async with aio.timeout(timeout_s):
            named = await robots.sitemaps(origin_url)
            await search.read([urljoin(origin_url, one) for one in named] or [urljoin(origin_url, "/sitemap.xml")])
            if not search.urls and named:
                await search.read([urljoin(origin_url, "/sitemap.xml")])
    except TimeoutError:
        pass
    return list(search.urls)[:limit]


class _SitemapReader:
    def __init__(self, fetcher: Fetcher, limit: int) -> None:
        self.urls: dict[str, None] = {}
        self._fetcher = fetcher
        self._limit = limit
        self._seen: set[str] = set()
        self._room = _MAX_TOTAL_BYTES

    async def read(self, files: list[str]) -> None:
        """Read these files and those that they refer to, breadth first."""
        waiting = deque((file, 0) for file in files)
        while waiting and len(self.urls) < self._limit and len(self._seen) < _MAX_FILES and self._room > 0:
            batch = self._next(waiting)
            max_bytes = min(_MAX_FILE_BYTES, max(1, self._room // _CONCURRENT_FILES))
            reading = await aio.run_together(self._fetch(file, max_bytes) for file, _ in batch)
            # Results keep the order of the sitemaps, regardless of which file arrived first.
            for (_, depth), fetched in zip(batch, reading, strict=True):
                if fetched is None:
                    continue
                more = await self._store_entries(fetched, max_bytes)
                if depth < _MAX_DEPTH:
                    waiting.extend((one, depth + 1) for one in more)

    def _next(self, waiting: deque[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the next unread files, each with its depth."""
        batch: list[tuple[str, int]] = []
        while waiting and len(batch) < _CONCURRENT_FILES and len(self._seen) < _MAX_FILES:
            file, depth = waiting.popleft()
            if file not in self._seen and _is_web(file):
                self._seen.add(file)
                batch.append((file, depth))
        return batch

    async def _fetch(self, file: str, max_bytes: int) -> FetchedResponse | None:
        try:
            fetched = await self._fetcher.get(file, timeout_s=_FILE_TIMEOUT_S, max_body=max_bytes, cut=True)
        except PageFailure:
            return None
        return fetched if fetched.status == 200 else None

    async def _store_entries(self, fetched: FetchedResponse, max_bytes: int) -> list[str]:
        """Store the pages that a file lists, and return the sitemaps that it lists."""
        large = len(fetched.body) > _LARGE_BYTES
        body = await asyncio.to_thread(_gunzip, fetched, max_bytes) if large else _gunzip(fetched, max_bytes)
        self._room -= len(body)
        left = self._limit - len(self.urls)
        read = partial(_entries, body, left, fetched.url)
        pages, more = await asyncio.to_thread(read) if len(body) > _LARGE_BYTES else read()
        self.urls.update(dict.fromkeys(url for url in pages if _is_web(url)))
        return more


def _gunzip(fetched: FetchedResponse, max_bytes: int) -> bytes:
    """Return the uncompressed file if it was sent as a gzip file (and not with gzip as Content-Encoding).

    A broken file is returned up to the error.
    """
    if not fetched.body.startswith(b"\x1f\x8b"):
        return fetched.body
    decoder = BodyDecoder("gzip", max_bytes, fetched.url, cut=True)
    # In parts, because the end of each of its members copies the rest of its part.
    with suppress(PageFailure):
        for start in range(0, len(fetched.body), _PART_BYTES):
            decoder.feed(fetched.body[start : start + _PART_BYTES])
    return bytes(decoder.data)


class _Parts(BytesIO):
    """A file that ends where the parser has found no element in so many bytes.

    expat before 2.6 reads an unfinished tag or comment again from its start with each part, so that one of 50 MB would
    take minutes; and its attributes would fill the memory.
    """

    left = _MAX_TOKEN_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(size) if self.left > 0 else b""
        self.left -= len(part)
        return part


def _entries(body: bytes, limit: int, base: str) -> tuple[list[str], list[str]]:
    """Return the pages and the sitemaps that a file at `base` lists; of a broken file, those before the error."""
    if not body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return [line.strip() for line in text_of("text/plain", body).splitlines()[:limit]], []
    pages: list[str] = []
    more: list[str] = []
    within: list[Element] = []
    begun = 0
    try:
        source = _Parts(body.lstrip())
        for event, element in iterparse(source, events=("start", "end")):
            source.left = _MAX_TOKEN_BYTES
            if event == "start":
                within.append(element)
                begun += 1
                if begun > _MAX_ELEMENTS or len(within) > _MAX_NESTING:
                    break
                continue
            within.pop()
            if within:
                _add_location(element, _local_name(within[-1].tag), pages, more)
                # Clear parsed elements: they are not needed again, and a file of many small elements would fill the
                # memory.
                del within[-1][:]
            if len(pages) >= limit or len(more) > _MAX_FILES:
                break
    except (ParseError, DefusedXmlException, ValueError, LookupError):
        pass
    return [_resolve_url(base, one) for one in pages], [_resolve_url(base, one) for one in more]


def _add_location(element: Element, parent: str, pages: list[str], more: list[str]) -> None:
    """Add the URL of an element, if it has one."""
    name, text = _local_name(element.tag), (element.text or "").strip()
    if name == "loc" and text:
        (more if parent == "sitemap" else pages).append(text)
    elif name == "link" and parent in _FEED_ENTRIES and element.get("rel", "alternate") == "alternate":
        address = text or (element.get("href") or "").strip()
        if address:
            pages.append(address)


def _local_name(tag: object) -> str:
    """Return a tag without its namespace; empty for tags of the extensions, which describe images and videos."""
    namespace, _, name = str(tag).rpartition("}")
    return "" if any(word in namespace.lower() for word in _EXTENSIONS) else name.lower()


def _resolve_url(base: str, address: str) -> str:
    """Return a URL resolved against `base` as a browser would; unchanged if it cannot be resolved."""
    if address[:4].lower() == "http":
        return address
    try:
        return urljoin(base, address)
    except ValueError:
        return address


def _is_web(url: str) -> bool:
    if not url.lower().startswith(("http://", "https://")):
        return False
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
