"""The demo's site: a fictitious network of river gauges, served on a loopback port.

The files below `pages/` are the site; a page's path is its file's name without `.html` and `index`. An HTML file has
head lines, an empty line, and the main content, which `frame.html` surrounds with navigation, notices and footers. The
page of each station is made from `data/stations.json`.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

#: Path prefix that robots.txt disallows.
BLOCKED = "/staff/"

_FOLDER = Path(__file__).with_name("pages")
_REDIRECTS = {"/old/data.html": (301, "/data/"), "/flood": (302, "/notes/the-flood-of-march")}
#: Pages with another status, charset or frame than usual.
_STATUS = {"/stations/mill-race": 404, "/live": 500}
_CHARSET = {"/archive/leaflet-1974": "windows-1252"}
_WITHOUT_FRAME = "/archive/field-book"
_LANGUAGE = re.compile(r"<html (.*?)>\n")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_DESCRIPTION = re.compile(r'<meta name="description" content="(.*?)">')


@dataclass(frozen=True, slots=True)
class Page:
    """The site's response for one path."""

    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    #: The target of a redirect.
    location: str = ""


class DemoSite(LoopbackServer):
    """The server of the site; `url` and `pages` are available before it starts."""

    def __init__(self) -> None:
        super().__init__(self._respond, "ostrel")
        self.pages = site_pages(self.url)

    def _respond(self, request: LoopbackRequest) -> LoopbackResponse:
        if request.method not in ("GET", "HEAD"):
            return LoopbackResponse(501)
        page = self.pages.get(request.target) or self.pages["/stations/mill-race"]
        header = {"Location": page.location} if page.location else {"Content-Type": page.content_type}
        return LoopbackResponse(page.status, page.body, header)


def site_pages(base: str) -> dict[str, Page]:
    """Return the pages of the site by path, for a base URL such as `http://127.0.0.1:8000`."""
    pages = {path: Page(status=status, location=location) for path, (status, location) in _REDIRECTS.items()}
    stations: list[dict[str, Any]] = json.loads((_FOLDER / "data/stations.json").read_bytes())
    frame = Template(_FOLDER.with_name("frame.html").read_text("utf-8")).safe_substitute(
        base=base,
        menu="".join(f'<li><a href="/stations/{s["slug"]}">{escape(s["name"])}</a></li>' for s in stations),
        levels="".join(f"<tr><td>{escape(s['name'])}</td><td>{s['normal_cm']} cm</td></tr>" for s in stations),
    )
    for path, content in (*_contents(), *_station_contents(stations)):
        charset = _CHARSET.get(path, "utf-8")
        html = content if path == _WITHOUT_FRAME else _add_frame(Template(frame), path, content, charset)
        pages[path] = Page(html.encode(charset), f"text/html; charset={charset}", _STATUS.get(path, 200))
    for file in _FOLDER.rglob("*.*"):
        if file.suffix != ".html":
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            charset = "; charset=utf-8" if kind.startswith("text/") else ""
            pages[f"/{file.relative_to(_FOLDER).as_posix()}"] = Page(file.read_bytes(), kind + charset)
    robots = f"User-agent: *\nDisallow: {BLOCKED}\n\nSitemap: {base}/sitemap.xml\n"
    listed = [path for path, page in pages.items() if page.status == 200 and page.content_type.startswith("text/html")]
    urls = "".join(f"<url><loc>{base}{path}</loc></url>\n" for path in listed if not path.startswith(BLOCKED))
    site_map = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'
    pages["/robots.txt"] = Page(robots.encode(), "text/plain; charset=utf-8")
    pages["/sitemap.xml"] = Page(site_map.encode(), "application/xml")
    return pages


def _contents() -> Iterator[tuple[str, str]]:
    """Yield the path and the content of each HTML file."""
    for file in sorted(_FOLDER.rglob("*.html")):
        name = file.relative_to(_FOLDER).with_suffix("").as_posix()
        yield f"/{name.removesuffix('index')}", file.read_text("utf-8")


def _add_frame(frame: Template, path: str, content: str, charset: str) -> str:
    head, _, main = content.partition("\n\n")
    language = _LANGUAGE.match(head)
    title, about = _TITLE.search(head), _DESCRIPTION.search(head)
    head = _LANGUAGE.sub("", head)
    if title is not None:
        head += f'\n<meta property="og:title" content="{title[1]}">'
    if about is not None:
        head += f'\n<meta property="og:description" content="{about[1]}">'
    html = language[1] if language is not None else 'lang="en"'
    return frame.substitute(html=html, head=head, main=main, path=path, charset=charset)


def _station_contents(stations: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the path and the content of the list of stations and of each station's page."""
    rows = "\n".join(
        f'<tr><td><a href="/stations/{s["slug"]}">{escape(s["name"])}</a></td><td>{s["kilometre"]}</td>'
        f"<td>{s['sensor']}</td><td>{s['since']}</td></tr>"
        for s in stations
    )
    yield (
        "/stations/",
        f"""<title>The stations</title>
<meta name="description" content="{len(stations)} gauges, from the source to the sea.">

<h1>The stations</h1>
<table>
<thead><tr><th>Station</th><th>km</th><th>Sensor</th><th>Since</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p>The gauge at the <a href="/stations/mill-race">Mill Race</a> was withdrawn in 1998.</p>
""",
    )
    for s in stations:
        yield (
            f"/stations/{s['slug']}",
            f"""<title>{escape(s["name"])}</title>
<meta name="description" content="{escape(s["about"])}">

<h1>{escape(s["name"])}</h1>
<p>{escape(s["about"])}</p>
<h2>Bear in mind</h2>
<p>{escape(s["mind"])}</p>
<table>
<tr><th>Kilometre</th><td>{s["kilometre"]}</td></tr>
<tr><th>Datum</th><td>{s["datum_m"]} m</td></tr>
<tr><th>Sensor</th><td>{s["sensor"]}</td></tr>
<tr><th>Read since</th><td>{s["since"]}</td></tr>
<tr><th>Usual level, warning, flood</th><td>{s["normal_cm"]}, {s["warning_cm"]}, {s["flood_cm"]} cm</td></tr>
</table>
<p><a href="/stations/">All stations</a></p>
""",
        )
