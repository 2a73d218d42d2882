"""The readable pages of the test site: the site of a small company, generated from a seed.

Each page can be reached by links from `/` and is in the sitemap. site_special_paths.py has its special paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from html import escape

from weblake.testing.site_text import Prose

HTML = "text/html; charset=utf-8"
SECTIONS = {"guides": 4, "products": 4, "news": 6}
_NEWS_PER_PAGE = 3
_FIRST_DAY = datetime(2025, 1, 6, 9, 0, tzinfo=timezone.utc)
#: The path that the front page links to and that robots.txt disallows.
BLOCKED = "/private/staff"


@dataclass(frozen=True, slots=True)
class SitePage:
    """The content of a page."""

    #: The path, with the query if it has one.
    path: str
    title: str
    description: str
    #: The text of its main content.
    paragraphs: tuple[str, ...]
    #: Paths and texts of the links in its main content.
    links: tuple[tuple[str, str], ...] = ()
    #: The rows of the table in its main content, the header first.
    table: tuple[tuple[str, ...], ...] = ()
    published: datetime | None = None
    #: How many times it was changed.
    revision: int = 0

    @property
    def text(self) -> str:
        """The paragraphs, separated by empty lines."""
        return "\n\n".join(self.paragraphs)


@lru_cache(maxsize=8)
def known_pages(seed: int) -> tuple[SitePage, ...]:
    """Return all pages of a seed, the front page first."""
    articles = {name: _articles(seed, name, count) for name, count in SECTIONS.items()}
    lists = [page for name, of in articles.items() for page in _lists(seed, name, of)]
    sections = tuple((f"/{name}/", name.title()) for name in SECTIONS)
    latest = tuple((page.path, page.title) for page in articles["news"][:2])
    front = _page(seed, "/", links=(*sections, *latest, ("/products/prices", "Prices"), (BLOCKED, "Staff only")))
    about = _page(seed, "/about", links=(("/contact", "Write to us"),))
    contact = _page(seed, "/contact", links=(("/about", "Who we are"),))
    prices = _prices(seed, articles["products"])
    return (front, about, contact, prices, *lists, *(page for of in articles.values() for page in of))


def changed(page: SitePage, seed: int) -> SitePage:
    """Return the page after one more change: its text states the revision and is otherwise different."""
    revision = page.revision + 1
    prose = Prose(seed, f"{page.path} {revision}")
    paragraphs = (f"This page was changed {revision} times.", *prose.paragraphs(max(1, len(page.paragraphs) - 1)))
    table = tuple(
        row if not row[-1].isdigit() else (*row[:-1], str(int(row[-1]) + prose.number(1, 9))) for row in page.table
    )
    return replace(page, paragraphs=paragraphs, table=table, revision=revision)


def render(page: SitePage, base: str) -> bytes:
    """Return the HTML of the page at a base URL."""
    published = page.published.isoformat() if page.published is not None else ""
    where = escape(base + page.path)
    head = [
        f"<title>{escape(page.title)}</title>",
        f'<meta name="description" content="{escape(page.description)}">',
        '<meta name="keywords" content="test, site, weblake">',
        f'<meta property="og:title" content="{escape(page.title)}">',
        f'<meta property="og:description" content="{escape(page.description)}">',
        f'<meta property="og:url" content="{where}">',
        f'<meta property="og:image" content="{base}/media/picture.png">',
        f'<link rel="canonical" href="{where}">',
        '<link rel="icon" href="/media/picture.png">',
    ]
    if published:
        head.append(f'<meta property="article:published_time" content="{published}">')
    return _FRAME.format(head="\n".join(head), menu=_MENU, main=_main(page)).encode()


_MENU = "".join(f'<li><a href="/{name}/">{name.title()}</a></li>' for name in SECTIONS)
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{head}
</head>
<body>
<header><nav><ul><li><a href="/">Home</a></li>{menu}</ul></nav></header>
<main>
{main}
</main>
<footer><p>A site for tests. <a href="/about">About</a> <a href="/contact">Contact</a></p></footer>
</body>
</html>
"""


def _main(page: SitePage) -> str:
    parts = [f"<h1>{escape(page.title)}</h1>", f"<p>{escape(page.paragraphs[0])}</p>"]
    if page.published is not None:
        parts.append('<p><img src="/media/picture.png" alt="A picture of one colour"></p>')
    if page.paragraphs[1:]:
        parts.append("<h2>In detail</h2>")
        parts += [f"<p>{escape(text)}</p>" for text in page.paragraphs[1:]]
    if page.table:
        parts.append(f"<table>{_rows(page.table)}</table>")
    if page.links:
        items = "".join(f'<li><a href="{escape(path)}">{escape(words)}</a></li>' for path, words in page.links)
        parts.append(f"<ul>{items}</ul>")
    return "\n".join(parts)


def _rows(table: Sequence[Sequence[str]]) -> str:
    lines = []
    for number, row in enumerate(table):
        tag = "td" if number else "th"
        lines.append("<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>")
    return "".join(lines)


def _page(
    seed: int, path: str, *, title: str = "", links: Iterable[tuple[str, str]] = (), max_paragraphs: int = 4
) -> SitePage:
    prose = Prose(seed, path)
    own = prose.title()
    return SitePage(
        path, title or own, prose.sentence(), prose.paragraphs(prose.number(2, max_paragraphs)), tuple(links)
    )


def _articles(seed: int, section: str, count: int) -> list[SitePage]:
    """Return the articles of a section, newest first; each links to the next."""
    pages: list[SitePage] = []
    for number in range(count):
        path = f"/{section}/{_slug(section, number)}"
        page = _page(seed, path)
        day = _FIRST_DAY + timedelta(days=7 * (count - number))
        pages.append(replace(page, title=f"{page.title} {number + 1}", published=day))
    for number, page in enumerate(pages):
        after = pages[(number + 1) % count]
        pages[number] = replace(page, links=((after.path, after.title),))
    return pages


def _slug(section: str, number: int) -> str:
    return f"{section.rstrip('s')}-{number + 1}"


def _lists(seed: int, section: str, articles: Sequence[SitePage]) -> list[SitePage]:
    """Return the list pages of a section; the news list has several."""
    size = _NEWS_PER_PAGE if section == "news" else len(articles)
    cuts = [articles[at : at + size] for at in range(0, len(articles), size)]
    pages = []
    for number, cut in enumerate(cuts, 1):
        path = f"/{section}/" if number == 1 else f"/{section}/?page={number}"
        links = [(page.path, page.title) for page in cut]
        if number < len(cuts):
            links.append((f"/{section}/?page={number + 1}", "Older"))
        title = section.title() if number == 1 else f"{section.title()}, page {number}"
        pages.append(_page(seed, path, title=title, links=links, max_paragraphs=2))
    return pages


def _prices(seed: int, products: Sequence[SitePage]) -> SitePage:
    prose = Prose(seed, "prices")
    rows = [("Product", "Price"), *((page.title, str(prose.number(10, 99))) for page in products)]
    page = _page(seed, "/products/prices", title="Prices", max_paragraphs=2)
    return replace(page, table=tuple(rows), links=tuple((page.path, page.title) for page in products))
