"""The demo's site: a fictitious network of river gauges.

Most pages are files in `pages/`: head lines, an empty line, and the main content, which `frame.html` surrounds with
navigation, notices and footers. Other pages are generated from `stations.json`. The content is the same on every
machine except for the base URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape, unescape
from importlib.resources import files
from string import Template

from weblake.demo import stations
from weblake.demo.stations import Station

#: Path prefixes that robots.txt forbids.
BLOCKED = "/staff/"
_NOTES_A_PAGE = 5

#: Files that are framed, by their path on the site.
_FRAMED = {
    "/": "home.html",
    "/about": "about.html",
    "/contact": "contact.html",
    "/glossary": "glossary.html",
    "/links": "links.html",
    "/legal/terms": "legal/terms.html",
    "/data/": "data/index.html",
    "/archive/founding-letter": "archive/founding-letter.html",
    "/staff/rota": "staff/rota.html",
    "/staff/phones": "staff/phones.html",
    "/warnings/": "warnings/index.html",
    **{f"/warnings/{language}": f"warnings/{language}.html" for language in ("ar", "el", "hi", "ja", "uk")},
}
#: Newest first.
_NOTES = (
    *("why-the-float-sticks", "otters-in-the-stilling-well", "parsing-the-feed", "the-flood-of-march"),
    *("ice-at-highmere", "the-night-shift", "soup-supper", "calibrating-a-pressure-cell", "reading-a-staff-gauge"),
)
#: Files that are served unchanged: path, file, type.
_PLAIN = (
    ("/data/README.txt", "data/README.txt", "text/plain; charset=utf-8"),
    ("/data/stations.json", "stations.json", "application/json"),
    ("/archive/field-book", "field-book.html", "text/html; charset=utf-8"),
    ("/media/site.css", "media/site.css", "text/css"),
    ("/media/icon.svg", "media/icon.svg", "image/svg+xml"),
    ("/media/staff-gauge.png", "media/staff-gauge.png", "image/png"),
)
_REDIRECTS = {"/old/data.html": (301, "/data/"), "/flood": (302, "/notes/the-flood-of-march")}
#: The closed station that is still linked: 404.
_WITHDRAWN = "/stations/mill-race"

_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_DESCRIPTION = re.compile(r'<meta name="description" content="(.*?)">')
_PUBLISHED = re.compile(r'<meta property="article:published_time" content="(.*?)T')
_HTML_TAG = re.compile(r"<html (.*?)>\n")


@dataclass(frozen=True, slots=True)
class Page:
    """The site's response for one path."""

    #: With its query, if it has one.
    path: str
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    #: The target of a redirect.
    location: str = ""

    @property
    def is_html(self) -> bool:
        """Return whether it is an HTML page."""
        return self.content_type.startswith("text/html") and not self.location

    @property
    def is_text(self) -> bool:
        """Return whether a scraper can extract text from it."""
        return not self.location and self.content_type.startswith(("text/", "application/json", "application/xml"))

    @property
    def is_blocked(self) -> bool:
        """Return whether robots.txt forbids it."""
        return self.path.startswith(BLOCKED)


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of the site for one base URL."""

    base: str
    pages: Mapping[str, Page]

    def page(self, path: str) -> Page:
        """Return the page at a path; a page with status 404 for an unknown path."""
        return self.pages.get(path) or replace(self.pages[_WITHDRAWN], path=path)


def build_site(base: str) -> Site:
    """Return the site for a base URL, such as `http://127.0.0.1:8000`."""
    pages = {page.path: page for page in _pages(base)}
    robots = f"User-agent: *\nDisallow: {BLOCKED}\n\nSitemap: {base}/sitemap.xml\n"
    pages["/robots.txt"] = Page("/robots.txt", robots.encode(), "text/plain; charset=utf-8")
    pages["/sitemap.xml"] = Page("/sitemap.xml", _site_map(base, list(pages.values())), "application/xml")
    return Site(base, pages)


def title_of(page: Page) -> str:
    """Return the page's visible title; empty if it has none."""
    charset = page.content_type.partition("charset=")[2] or "utf-8"
    found = _TITLE.search(page.body.decode(charset)) if page.is_html else None
    return unescape(found[1]) if found else ""


def _pages(base: str) -> Iterator[Page]:
    frame = _Frame(base)
    for path, file in _FRAMED.items():
        yield frame.around(path, _text(file))
    yield frame.around("/archive/leaflet-1974", _text("archive/leaflet-1974.html"), charset="windows-1252")
    yield frame.around(_WITHDRAWN, _text("not-found.html"), status=404)
    yield frame.around("/live", _text("broken.html"), status=500)
    for path, file, kind in _PLAIN:
        yield Page(path, _bytes(file), kind)
    for path, (status, location) in _REDIRECTS.items():
        yield Page(path, status=status, location=location)
    for name in _NOTES:
        yield frame.around(f"/notes/{name}", _text(f"notes/{name}.html"))
    for path, content in _note_lists():
        yield frame.around(path, content)
    gauges = _gauges()
    yield frame.around("/stations/", stations.list_page(gauges))
    for gauge, before, after in zip(gauges, [None, *gauges], [*gauges[1:], None], strict=False):
        yield frame.around(f"/stations/{gauge.slug}", stations.station_page(gauge, before, after))
    yield Page("/data/readings.csv", stations.readings_csv(gauges).encode(), "text/csv; charset=utf-8")
    yield frame.around(f"/data/low-harbour-{stations.YEAR}", _year_of("low-harbour"))


class _Frame:
    """The frame around the content of most pages."""

    def __init__(self, base: str) -> None:
        self._frame = Template(_text("frame.html"))
        gauges = _gauges()
        self._around = {
            "base": base,
            "menu": "".join(f'<li><a href="/stations/{g.slug}">{escape(g.name)}</a></li>' for g in gauges),
            "levels": "".join(f"<tr><td>{escape(g.name)}</td><td>{g.level(stations.NOW)} cm</td></tr>" for g in gauges),
        }

    def around(self, path: str, content: str, *, status: int = 200, charset: str = "utf-8") -> Page:
        """Return a page from its head lines, an empty line, and its main content."""
        head, _, main = content.partition("\n\n")
        declared = _HTML_TAG.match(head)
        head = _HTML_TAG.sub("", head) + _cards(head)
        html = self._frame.substitute(
            self._around,
            html=declared[1] if declared else 'lang="en"',
            head=head,
            main=main,
            path=path,
            charset=charset,
        )
        return Page(path, html.encode(charset), f"text/html; charset={charset}", status)


def _cards(head: str) -> str:
    """Return the meta tags with title and description for link previews (Open Graph)."""
    title, about = _TITLE.search(head), _DESCRIPTION.search(head)
    lines = [f'<meta property="og:title" content="{title[1]}">'] if title else []
    if about:
        lines += [f'<meta {kind}:description" content="{about[1]}">' for kind in ('property="og', 'name="twitter')]
    return "".join(f"\n{line}" for line in lines)


def _note_lists() -> Iterator[tuple[str, str]]:
    """Yield the pages of the list of notes, newest first."""
    cuts = [_NOTES[at : at + _NOTES_A_PAGE] for at in range(0, len(_NOTES), _NOTES_A_PAGE)]
    for number, names in enumerate(cuts, 1):
        lines = ["<title>Field notes</title>", '<meta name="description" content="Learned, usually, the wet way.">', ""]
        lines += ["<h1>Field notes</h1>", "<ul>"]
        for name in names:
            text = _text(f"notes/{name}.html")
            title, about, day = _TITLE.search(text), _DESCRIPTION.search(text), _PUBLISHED.search(text)
            assert title is not None
            assert about is not None
            assert day is not None
            when = f'<time datetime="{day[1]}">{day[1]}</time>'
            lines.append(f'<li><a href="/notes/{name}">{title[1]}</a> {when}<br>{about[1]}</li>')
        lines.append("</ul>")
        if number < len(cuts):
            lines.append(f'<p><a rel="next" href="/notes/?page={number + 1}">Older notes</a></p>')
        yield "/notes/" if number == 1 else f"/notes/?page={number}", "\n".join(lines)


def _site_map(base: str, pages: Iterable[Page]) -> bytes:
    """Return the sitemap: every existing page that crawlers may read."""
    listed = [page.path for page in pages if page.is_html and page.status == 200 and not page.is_blocked]
    urls = "\n".join(f"<url><loc>{base}{escape(path)}</loc></url>" for path in listed)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}\n</urlset>\n'
    ).encode()


@cache
def _gauges() -> list[Station]:
    return stations.read_stations(_bytes("stations.json"))


@cache
def _year_of(slug: str) -> str:
    return stations.year_page(next(gauge for gauge in _gauges() if gauge.slug == slug))


def _text(file: str) -> str:
    return _bytes(file).decode("utf-8")


def _bytes(file: str) -> bytes:
    return (files("weblake.demo") / "pages" / file).read_bytes()
