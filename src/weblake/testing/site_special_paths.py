"""Special paths of the test site: redirects, failures, slow and huge pages, other encodings, files, echoes.

The pages of site_pages.py do not link to them and the sitemap does not list them, so a crawl requests only those that a
test starts from. The docstring of site.py lists all of them.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse
from weblake.testing.site_pages import BLOCKED, HTML, SitePage, render

Respond = Callable[[LoopbackRequest], LoopbackResponse]

#: The status and target of each redirect.
REDIRECTS = {
    "/redirects/301": (301, "/about"),
    "/redirects/302": (302, "/contact"),
    "/redirects/303": (303, "/contact"),
    "/redirects/307": (307, "/guides/"),
    "/redirects/308": (308, "/products/"),
    "/redirects/chain": (301, "/redirects/chain/1"),
    "/redirects/chain/1": (302, "/redirects/chain/2"),
    "/redirects/chain/2": (307, "/about"),
    "/redirects/loop": (302, "/redirects/loop/back"),
    "/redirects/loop/back": (302, "/redirects/loop"),
    "/guides/moved": (301, "/products/product-1"),
}
#: The encoding and text of each page in another encoding.
ENCODINGS = {
    "/encodings/windows-1252": ("windows-1252", "Größe, naïve façade, 12 €."),
    "/encodings/shift-jis": ("shift_jis", "港の本屋は毎日九時に開きます。"),
    "/encodings/utf-16": ("utf-16", "Ünïcode in sixteen bits."),
}
SLOW_S = 0.5
_HUGE_BYTES = 2_000_000
_CHUNK = b"<p>" + b"On and on it goes. " * 800 + b"</p>\n"
_PAUSE_S = 0.01


_FOLDER = Path(__file__).with_name("files")
#: The texts of each file, by path.
FILE_TEXTS: Mapping[str, tuple[str, ...]] = {
    "/files/report.pdf": (
        "The gentle teacher takes the powder along the open lantern after the steady quarry near the gentle compass.",
        "The early number follows the candle beyond the small meeting after the bright market.",
        "The open minute studies the distance without the even candle across the open office through the heavy minute.",
    ),
    "/files/letter.docx": (
        "The distant market shows the cotton across the open ticket.",
        "The open bridge moves the shelter across the quiet teacher across the old record.",
        "The small island turns the whistle beyond the late orchard towards the even record between the steady bridge.",
    ),
    "/files/notes.txt": (
        "The quiet chimney carries the kettle within the steady stable.",
        "The bright anchor keeps the morning beside the gentle museum between the honest orchard.",
    ),
    "/files/table.csv": ("name,price", "lantern,12", "kettle,31"),
    "/files/data.json": ("lantern", "kettle"),
}
_FILE_TYPES = {
    "/files/report.pdf": "application/pdf",
    "/files/letter.docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "/files/notes.txt": "text/plain; charset=utf-8",
    "/files/table.csv": "text/csv; charset=utf-8",
    "/files/data.json": "application/json",
    "/media/picture.png": "image/png",
}


class SpecialPaths:
    """The special paths of one site; `stopping` ends delayed responses."""

    def __init__(self, base: str, pages: Mapping[str, SitePage], stopping: threading.Event) -> None:
        self._stopping = stopping
        self._flaky_requests = itertools.count()
        self.responses: dict[str, Respond] = {path: _always(response) for path, response in _fixed(base, pages)}
        self.responses |= {
            "/slow": self._slow,
            "/echo": _echo,
            "/cookies/set": _set_cookies,
            "/catalogue": _catalogue,
            "/errors/503-then-200": self._flaky,
            "/errors/endless": self._endless,
        }

    def _slow(self, request: LoopbackRequest) -> LoopbackResponse:
        self._stopping.wait(SLOW_S)
        return _html("Slow", f"<p>This page takes {SLOW_S} seconds.</p>")

    def _flaky(self, request: LoopbackRequest) -> LoopbackResponse:
        if next(self._flaky_requests) == 0:
            return LoopbackResponse(503, b"<h1>Try again</h1>", {"Content-Type": HTML, "Retry-After": "1"})
        return _html("Up again", "<p>It was only the first time.</p>")

    def _endless(self, request: LoopbackRequest) -> LoopbackResponse:
        def pieces() -> Iterator[bytes]:
            yield b"<!doctype html><title>Endless</title>"
            while not self._stopping.wait(_PAUSE_S):
                yield _CHUNK

        return LoopbackResponse(200, pieces(), {"Content-Type": HTML})


def _fixed(base: str, pages: Mapping[str, SitePage]) -> Iterator[tuple[str, LoopbackResponse]]:
    for path, (status, location) in REDIRECTS.items():
        yield path, LoopbackResponse(status, b"", {"Location": location})
    for path, (charset, text) in ENCODINGS.items():
        body = f"<!doctype html><title>{text}</title><main><h1>{charset}</h1><p>{text}</p></main>".encode(charset)
        yield path, LoopbackResponse(200, body, {"Content-Type": f"text/html; charset={charset}"})
    for path, content_type in _FILE_TYPES.items():
        yield path, LoopbackResponse(200, (_FOLDER / PurePath(path).name).read_bytes(), {"Content-Type": content_type})
    for status in (403, 404, 410, 500):
        yield f"/errors/{status}", _html(f"Error {status}", f"<p>This page answers {status}.</p>", status)
    yield "/errors/drop", LoopbackResponse(drop=True)
    whole = _html("Truncated", "<p>The connection ends in the middle of this page.</p>")
    yield "/errors/truncated", LoopbackResponse(200, whole.body, whole.headers, truncate_at=60)
    lines = "".join(f"<p>Line {number}: {'abcdefghi ' * 20}</p>\n" for number in range(_HUGE_BYTES // 220))
    yield "/huge", _html("Huge", lines)
    yield "/copy-of-about", LoopbackResponse(200, render(pages["/about"], base), {"Content-Type": HTML})
    yield BLOCKED, _html("Staff only", "<p>robots.txt keeps crawlers from this page.</p>")
    for folder in ("redirects", "errors", "files", "encodings"):
        yield f"/{folder}/", _html(folder.title(), _links(folder))


def _links(folder: str) -> str:
    """Return links to all paths of a folder, for crawls that start there."""
    names = {
        "redirects": [path for path in REDIRECTS if path.startswith("/redirects/")],
        "errors": [f"/errors/{name}" for name in (403, 404, 410, 500, "503-then-200", "drop", "truncated")],
        "files": list(FILE_TEXTS),
        "encodings": list(ENCODINGS),
    }[folder]
    return "<ul>" + "".join(f'<li><a href="{path}">{path}</a></li>' for path in names) + "</ul>"


def _html(title: str, main: str, status: int = 200) -> LoopbackResponse:
    body = f"<!doctype html><html lang=en><title>{title}</title><main><h1>{title}</h1>{main}</main></html>"
    return LoopbackResponse(status, body.encode(), {"Content-Type": HTML})


def _always(response: LoopbackResponse) -> Respond:
    return lambda request: response


def _echo(request: LoopbackRequest) -> LoopbackResponse:
    seen = {"method": request.method, "path": request.target, "headers": request.headers}
    return LoopbackResponse(200, json.dumps(seen, indent=1).encode(), {"Content-Type": "application/json"})


def _set_cookies(request: LoopbackRequest) -> LoopbackResponse:
    return LoopbackResponse(302, b"", {"Location": "/echo", "Set-Cookie": "visited=yes; Path=/"})


def _catalogue(request: LoopbackRequest) -> LoopbackResponse:
    """Return a page that depends on no query parameter but `color`."""
    query = request.target.partition("?")[2].split("&")
    colour = next((part.removeprefix("color=") for part in query if part in ("color=red", "color=blue")), "every")
    links = "".join(f'<a href="/catalogue?{name}">{name}</a> ' for name in ("color=red", "color=blue", "utm_source=x"))
    return _html("Catalogue", f"<p>Lanterns in {colour} color.</p>{links}")
