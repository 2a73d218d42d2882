"""Reads the URLs in a site's sitemaps.

Files, depth, bytes, URLs and time are bounded, because sitemaps can refer to further sitemaps without end. Sitemaps are
often not well-formed XML: each element is read by itself, declared entities are not, and a warning names what could not
be read.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from urllib.parse import urljoin

from weblake_service.files.conversion_messages import ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.files.file_types import is_html
from weblake_service.page.content_types import text_of
from weblake_service.page.links import absolute, is_web
from weblake_service.page_failure import PageFailure
from weblake_service.run_together import run_together
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
#: Number of files read concurrently.
_CONCURRENT_FILES = 3
#: Maximum tags of one file (a valid one has 50,000 entries), and maximum problems that a warning names.
_MAX_TAGS, _MAX_PROBLEMS = 2_000_000, 3
#: Elements of feeds, which the protocol accepts as sitemaps.
_FEED_ENTRIES = frozenset(["item", "entry"])
#: Elements whose content has a meaning of its own.
_CONTAINERS = frozenset(["url", "sitemap", *_FEED_ENTRIES, *_EXTENSIONS])
#: A tag and the text after it; each pattern takes linear time on any text.
_TAG = re.compile(r"<([^<>]*)>([^<]*)")
_ATTRIBUTE = re.compile(r"""\b(rel|href)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_NAMESPACE = re.compile(r"""xmlns:([\w.-]+)\s*=\s*["']([^"']*)""")
_ENTITY = re.compile(r"&#?\w{1,31};")
_BARE_AMPERSAND = re.compile("&(?!(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);)")


async def sitemap_urls(
    origin_url: str,
    *,
    fetcher: Fetcher,
    robots: RobotsRules,
    converters: ConverterPool | None = None,
    limit: int = 50_000,
    timeout_s: float = _TIMEOUT_S,
) -> tuple[list[str], str]:
    """Return the http and https URLs in the sitemaps of a site, in order, without duplicates, at most `limit`.

    The second value is a warning that names the sitemaps that could not be read in full, or empty.

    The sitemaps listed in robots.txt are read, or else `/sitemap.xml`, and those that they refer to; also gzip files,
    feeds and plain lists. URLs found within `timeout_s` are returned; a site without sitemaps returns none, which is no
    error.
    """
    usual = urljoin(origin_url, "/sitemap.xml")
    search = _SitemapReader(fetcher, limit, usual, converters or ConverterPool())
    try:
        async with asyncio.timeout(timeout_s):
            named = await robots.sitemaps(origin_url)
            await search.read([urljoin(origin_url, one) for one in named] or [usual])
            if not search.urls and named:
                await search.read([usual])
    except TimeoutError:
        search.problems.append(f"They were not all read within {timeout_s:g} s.")
    return list(search.urls)[:limit], search.warning()


class _SitemapReader:
    def __init__(self, fetcher: Fetcher, limit: int, usual: str, converters: ConverterPool) -> None:
        self.urls: dict[str, None] = {}
        self.problems: list[str] = []
        #: The file that a site may have without naming it: its absence is no problem.
        self._usual = usual
        self._converters = converters
        self._fetcher = fetcher
        self._limit = limit
        self._seen: set[str] = set()
        self._room = _MAX_TOTAL_BYTES

    def warning(self) -> str:
        """Return the problems as one text."""
        more = len(self.problems) - _MAX_PROBLEMS
        shown = [*self.problems[:_MAX_PROBLEMS], *([f"So it is with {more} more."] if more > 0 else [])]
        return " ".join(["Sitemaps:", *shown]) if shown else ""

    async def read(self, files: list[str]) -> None:
        """Read these files and those that they refer to, breadth first."""
        waiting = deque((file, 0) for file in files)
        while waiting and len(self.urls) < self._limit and len(self._seen) < _MAX_FILES and self._room > 0:
            batch = self._next(waiting)
            max_bytes = min(_MAX_FILE_BYTES, max(1, self._room // _CONCURRENT_FILES))
            reading = await run_together(self._fetch(file, max_bytes) for file, _ in batch)
            # Results keep the order of the sitemaps, regardless of which file arrived first.
            for (file, depth), fetched in zip(batch, reading, strict=True):
                if fetched is None:
                    continue
                more = await self._store_entries(file, fetched, max_bytes)
                if depth < _MAX_DEPTH:
                    waiting.extend((one, depth + 1) for one in more)

    def _next(self, waiting: deque[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the next unread files, each with its depth."""
        batch: list[tuple[str, int]] = []
        while waiting and len(batch) < _CONCURRENT_FILES and len(self._seen) < _MAX_FILES:
            file, depth = waiting.popleft()
            if file not in self._seen and is_web(file):
                self._seen.add(file)
                batch.append((file, depth))
        return batch

    async def _fetch(self, file: str, max_bytes: int) -> FetchedResponse | None:
        try:
            fetched = await self._fetcher.get(file, timeout_s=_FILE_TIMEOUT_S, max_body=max_bytes, cut=True)
        except PageFailure as failure:
            problem = failure.message
        else:
            if fetched.status == 200:
                return fetched
            problem = f"{file} answered {fetched.status}."
        if file != self._usual:
            self.problems.append(problem)
        return None

    async def _store_entries(self, file: str, fetched: FetchedResponse, max_bytes: int) -> list[str]:
        """Store the pages that a file lists, and return the sitemaps that it lists."""
        large = len(fetched.body) > _LARGE_BYTES
        body = await asyncio.to_thread(_gunzip, fetched, max_bytes) if large else _gunzip(fetched, max_bytes)
        self._room -= len(body)
        left = self._limit - len(self.urls)
        if len(body) <= _LARGE_BYTES:
            pages, more, problem = entries(body, left, fetched.url, fetched.content_type)
        else:
            task = ConversionTask(
                "sitemap", content_type=fetched.content_type, base=fetched.url, options={"limit": left}
            )
            try:
                pages, more, problem = (await self._converters.convert(task, body)).document["answer"]
            except (PageFailure, KeyError):
                pages, more, problem = [], [], f"{fetched.url} could not be read"
        # A site without sitemaps may answer with a page.
        if problem and not (file == self._usual and is_html(body)):
            self.problems.append(problem)
        self.urls.update(dict.fromkeys(pages))
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


def entries(body: bytes, limit: int, base: str, content_type: str) -> tuple[list[str], list[str], str]:
    """Return the pages and the sitemaps that a file at `base` lists, and why it may not have been read in full."""
    text = text_of(content_type or "text/plain", body).strip()
    if "<" not in text:
        return [url for url in map(str.strip, text.splitlines()[:limit]) if is_web(url)], [], ""
    text = _sections(text, "<![CDATA[", "]]>", partial(html.escape, quote=False))
    text = _sections(text, "<!--", "-->", lambda _: "")
    named = {prefix for prefix, name in _NAMESPACE.findall(text) if any(word in name.lower() for word in _EXTENSIONS)}
    declares = "<!ENTITY" in text
    pages: list[str] = []
    more: list[str] = []
    within: list[str] = []
    unclosed = 0
    for match in islice(_TAG.finditer(text), _MAX_TAGS):
        tag, words = match[1], match[1].strip("/").split(None, 1)
        if not words or words[0][0] in "!?":
            continue
        prefix, _, name = words[0].lower().rpartition(":")
        closes, opens = tag.startswith("/"), not tag.endswith("/")
        unclosed += -1 if closes else opens
        if prefix in named or prefix in _EXTENSIONS:
            continue
        if name in _CONTAINERS and closes:
            while within and within.pop() != name:
                pass
        elif name in _CONTAINERS and opens:
            within.append(name)
        # The end of a truncated file is no whole URL.
        elif not closes and match.end() < len(text):
            address = _address(name, within[-1] if within else "", tag, match[2])
            if address and not (declares and _ENTITY.search(address)) and is_web(url := absolute(address, base)):
                (more if within[-1:] == ["sitemap"] else pages).append(url)
        if len(pages) >= limit or len(more) > _MAX_FILES:
            return pages, more, ""
    problem = _problem(text, unclosed)
    return pages, more, f"{base} is {problem}; {len(pages) + len(more)} entries were read." if problem else ""


def _problem(text: str, unclosed: int) -> str:
    """Return why a text is not well-formed XML, as far as that matters for its URLs; empty if it is."""
    if (bare := _BARE_AMPERSAND.search(text)) is not None:
        return f"not well-formed (a bare & in line {text.count(chr(10), 0, bare.start()) + 1})"
    if "\ufffd" in text:
        return "not in the encoding that it declares"
    if "<!ENTITY" in text:
        return "not read in full, because it declares entities"
    return "not well-formed (its tags do not match)" if unclosed else ""


def _sections(text: str, start: str, end: str, convert: Callable[[str], str]) -> str:
    """Return the text with its sections between two marks converted; a start mark without an end is dropped."""
    first, *parts = text.split(start)
    divided = (part.partition(end) for part in parts)
    return first + "".join(convert(inner) + rest if mark else inner for inner, mark, rest in divided)


def _address(name: str, parent: str, tag: str, content: str) -> str:
    """Return the URL of an element, or empty."""
    if name == "loc" and parent not in _EXTENSIONS:
        return _unescape(content)
    if name != "link" or parent not in _FEED_ENTRIES:
        return ""
    attributes = {key.lower(): one or other for key, one, other in _ATTRIBUTE.findall(tag)}
    listed = attributes.get("rel", "alternate") == "alternate"
    return _unescape(content.strip() or attributes.get("href", "")) if listed else ""


def _unescape(text: str) -> str:
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text.strip()).strip()
