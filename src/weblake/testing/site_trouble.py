"""Unusual paths of the test site: redirects, failures, slow and huge pages, other encodings, files, echoes.

The pages of site_pages.py do not link to them and the sitemap does not list them, so a crawl requests only those that a
test starts from. `docs/testing.md` lists all of them.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from weblake.loopback import Answer, Asked
from weblake.testing.site_files import make_docx, make_pdf, make_png
from weblake.testing.site_pages import BLOCKED, HTML, SitePage, render
from weblake.testing.site_text import Prose

Answering = Callable[[Asked], Answer]

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
_FLAKY = "/errors/503-then-200"
_PIECE = b"<p>" + b"On and on it goes. " * 800 + b"</p>\n"
_PAUSE_S = 0.01


@lru_cache(maxsize=8)
def file_texts(seed: int) -> Mapping[str, tuple[str, ...]]:
    """Return the texts of each document file, by path."""
    return {
        "/files/report.pdf": Prose(seed, "/files/report.pdf").paragraphs(3),
        "/files/letter.docx": Prose(seed, "/files/letter.docx").paragraphs(3),
        "/files/notes.txt": Prose(seed, "/files/notes.txt").paragraphs(2),
        "/files/table.csv": ("name,price", "lantern,12", "kettle,31"),
        "/files/data.json": ("lantern", "kettle"),
    }


class Trouble:
    """The unusual paths of one site; `stopping` ends delayed responses."""

    def __init__(self, seed: int, base: str, pages: Mapping[str, SitePage], stopping: threading.Event) -> None:
        self._stopping = stopping
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.answers: dict[str, Answering] = {path: _always(answer) for path, answer in _fixed(seed, base, pages)}
        self.answers |= {
            "/slow": self._slow,
            "/echo": _echo,
            "/cookies/set": _set_cookies,
            "/catalogue": _catalogue,
            _FLAKY: self._flaky,
            "/errors/endless": self._endless,
        }

    def _slow(self, asked: Asked) -> Answer:
        self._stopping.wait(SLOW_S)
        return _html("Slow", f"<p>This page takes {SLOW_S} seconds.</p>")

    def _flaky(self, asked: Asked) -> Answer:
        with self._lock:
            self._asked[_FLAKY] += 1
            first = self._asked[_FLAKY] == 1
        if first:
            return Answer(503, b"<h1>Try again</h1>", {"Content-Type": HTML, "Retry-After": "1"})
        return _html("Up again", "<p>It was only the first time.</p>")

    def _endless(self, asked: Asked) -> Answer:
        def pieces() -> Iterator[bytes]:
            yield b"<!doctype html><title>Endless</title>"
            while not self._stopping.wait(_PAUSE_S):
                yield _PIECE

        return Answer(200, pieces(), {"Content-Type": HTML})


def _fixed(seed: int, base: str, pages: Mapping[str, SitePage]) -> Iterator[tuple[str, Answer]]:
    for path, (status, location) in REDIRECTS.items():
        yield path, Answer(status, b"", {"Location": location})
    for path, (charset, text) in ENCODINGS.items():
        body = f"<!doctype html><title>{text}</title><main><h1>{charset}</h1><p>{text}</p></main>".encode(charset)
        yield path, Answer(200, body, {"Content-Type": f"text/html; charset={charset}"})
    for path, content_type, body in _files(seed):
        yield path, Answer(200, body, {"Content-Type": content_type})
    for status in (403, 404, 410, 500):
        yield f"/errors/{status}", _html(f"Error {status}", f"<p>This page answers {status}.</p>", status)
    yield "/errors/drop", Answer(hangs_up=True)
    whole = _html("Truncated", "<p>The connection ends in the middle of this page.</p>")
    yield "/errors/truncated", Answer(200, whole.body, whole.headers, cut_at=60)
    lines = "".join(f"<p>Line {number}: {'abcdefghi ' * 20}</p>\n" for number in range(_HUGE_BYTES // 220))
    yield "/huge", _html("Huge", lines)
    yield "/copy-of-about", Answer(200, render(pages["/about"], base), {"Content-Type": HTML})
    yield BLOCKED, _html("Staff only", "<p>robots.txt keeps crawlers from this page.</p>")
    yield "/media/picture.png", Answer(200, make_png(32, 32, (30, 90, 160)), {"Content-Type": "image/png"})
    for folder in ("redirects", "errors", "files", "encodings"):
        yield f"/{folder}/", _html(folder.title(), _links(folder))


def _files(seed: int) -> Iterator[tuple[str, str, bytes]]:
    texts = file_texts(seed)
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    yield "/files/report.pdf", "application/pdf", make_pdf("Report", texts["/files/report.pdf"])
    rows = [("Name", "Price"), ("lantern", "12"), ("kettle", "31")]
    yield "/files/letter.docx", word, make_docx("Letter", texts["/files/letter.docx"], rows)
    yield "/files/notes.txt", "text/plain; charset=utf-8", "\n\n".join(texts["/files/notes.txt"]).encode()
    yield "/files/table.csv", "text/csv; charset=utf-8", "\r\n".join(texts["/files/table.csv"]).encode()
    yield "/files/data.json", "application/json", json.dumps({"names": texts["/files/data.json"]}).encode()


def _links(folder: str) -> str:
    """Return links to all paths of a folder, for crawls that start there."""
    names = {
        "redirects": [path for path in REDIRECTS if path.startswith("/redirects/")],
        "errors": [f"/errors/{name}" for name in (403, 404, 410, 500, "503-then-200", "drop", "truncated")],
        "files": list(file_texts(0)),
        "encodings": list(ENCODINGS),
    }[folder]
    return "<ul>" + "".join(f'<li><a href="{path}">{path}</a></li>' for path in names) + "</ul>"


def _html(title: str, main: str, status: int = 200) -> Answer:
    body = f"<!doctype html><html lang=en><title>{title}</title><main><h1>{title}</h1>{main}</main></html>"
    return Answer(status, body.encode(), {"Content-Type": HTML})


def _always(answer: Answer) -> Answering:
    return lambda asked: answer


def _echo(asked: Asked) -> Answer:
    told = {"method": asked.method, "path": asked.target, "headers": asked.headers}
    return Answer(200, json.dumps(told, indent=1).encode(), {"Content-Type": "application/json"})


def _set_cookies(asked: Asked) -> Answer:
    return Answer(302, b"", {"Location": "/echo", "Set-Cookie": "visited=yes; Path=/"})


def _catalogue(asked: Asked) -> Answer:
    """Return a page that depends on no query parameter but `color`."""
    query = asked.target.partition("?")[2].split("&")
    colour = next((part.removeprefix("color=") for part in query if part in ("color=red", "color=blue")), "every")
    links = "".join(f'<a href="/catalogue?{name}">{name}</a> ' for name in ("color=red", "color=blue", "utm_source=x"))
    return _html("Catalogue", f"<p>Lanterns in {colour} color.</p>{links}")
