"""robots.txt and sitemaps of the test site."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from html import escape

from weblake.testing.loopback import LoopbackResponse

_NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
_ROBOTS = """User-agent: slowbot
Crawl-delay: 1
Disallow: /private/

User-agent: *
Disallow: /private/

Sitemap: {base}/sitemap.xml
"""


def index_file(path: str, base: str, urls: Callable[[], Sequence[str]]) -> LoopbackResponse | None:
    """Return one of the files, or None; the sitemap is an index of two sitemaps, and the second (news) is gzipped."""
    news = f"{base}/news/"
    if path == "/robots.txt":
        return text_response(_ROBOTS.format(base=base))
    if path == "/sitemap.xml":
        return _xml("sitemapindex", "sitemap", [f"{base}/sitemap-pages.xml", f"{base}/sitemap-news.xml.gz"])
    if path == "/sitemap-pages.xml":
        return _xml("urlset", "url", [url for url in urls() if not url.startswith(news)])
    if path == "/sitemap-news.xml.gz":
        packed = _xml("urlset", "url", [url for url in urls() if url.startswith(news)]).body
        assert isinstance(packed, bytes)
        return LoopbackResponse(200, gzip.compress(packed, mtime=0), {"Content-Type": "application/gzip"})
    return None


def text_response(text: str) -> LoopbackResponse:
    """Return the response of a text file."""
    return LoopbackResponse(200, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})


def _xml(root: str, entry: str, urls: Iterable[str]) -> LoopbackResponse:
    entries = "".join(f"<{entry}><loc>{escape(url)}</loc></{entry}>\n" for url in urls)
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{_NAMESPACE}">\n{entries}</{root}>\n'
    return LoopbackResponse(200, text.encode(), {"Content-Type": "application/xml"})
