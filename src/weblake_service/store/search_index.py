"""Full-text index of the pages that a team scraped, in an FTS5 table of SQLite.

Each team and page has one row in `search_pages` and one, with the same id, in `search_words`: pages of one team are
invisible to others. `search_words` has words only; the text is in `search_pages`, compressed.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sqlite3 import Connection
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.parser_limits import limit_nesting
from weblake_service.responses import bad_request
from weblake_service.web.canonical_urls import canonical_key, site_of, split

#: Maximum characters of one page that are searchable, of its HTML if it has no markdown, and maximum words of a query.
MAX_CHARS, _MAX_HTML_CHARS, MAX_WORDS = 200_000, 1 << 20, 32
#: Options whose pages are private to the request.
_PRIVATE_OPTIONS = ("headers", "lockdown", "zero_data_retention", "actions", "profile")
_GONE_STATUSES = (404, 410)
#: Link targets and marks of markdown, which are no text.
_MARKUP = re.compile(r"(?<=\])\([^()\n]*\)|!?\[|\]|[*`|#>]+|-{3,}")
#: Characters of scripts that do not separate words: Thai, Lao, Burmese, Khmer, Japanese, Chinese, Korean.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff])"
)
#: Stands around each of these characters in the index, so that it is a word; it has no width.
_BOUNDARY = "\u200b"
#: A word or a phrase of a query, with the sign before it that excludes it.
_TERM = re.compile(r'(-?)(site:(?=[^\s"]))?(?:"([^"]*)"?|([^\s"]+))')
#: Weights of title, description, text and URL.
_RANK = "bm25(search_words, 8.0, 3.0, 1.0, 2.0)"
#: A phrase of an FTS expression.
_QUOTED = re.compile('"([^"]*)"')
#: Characters of a passage, and of them before the first searched word.
_PASSAGE_CHARS, _BEFORE_CHARS = 300, 60


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A page to be stored in the index; see `entry`."""

    team: str
    key: str
    url: str = ""
    title: str = ""
    description: str = ""
    kind: str = ""
    text: str = ""
    #: The text as the database has it.
    compressed: bytes = b""
    #: Whether the page was fetched now, and completely; any other one does not replace an existing entry.
    fresh: bool = True
    #: Whether the page no longer exists.
    gone: bool = False


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A page that matches a query."""

    url: str
    title: str
    #: The page's own description.
    description: str
    #: The passage with the searched words; for a search without words, the beginning of the text.
    passage: str


@dataclass(slots=True)
class SearchQuery:
    """A parsed query: what pages must contain, and conditions on their rows, with their parameters."""

    #: FTS expressions, each with its alternatives.
    words: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)
    #: Whether words were omitted because there were too many.
    cut: bool = False

    def narrow(self, condition: str, *values: object) -> None:
        """Add a condition."""
        self.where.append(condition)
        self.values += values


def read_query(text: str) -> SearchQuery:
    """Parse a query: words, "phrases", OR, -without, site:.

    User input is never FTS syntax: words become quoted phrases, everything else a parameter.

    Raises:
        ErrorResponse: 400; it is blank, or a site is not a domain.
    """
    if not text.strip():
        bad_request("query is empty: name at least one word or operator, such as site:example.com.")
    query, either = SearchQuery(), False
    sites: list[str] = []
    for minus, site, quoted, bare in _TERM.findall(text.encode("utf-8", "replace").decode()):
        phrase = _phrase(quoted or bare)
        if site and minus:
            restrict_to_domains(query, [quoted or bare], without=True)
        elif site:
            sites.append(quoted or bare)
        elif bare == "OR" and not minus:
            either = True
            continue
        elif phrase and len(query.words) + len(query.excluded) >= MAX_WORDS:
            query.cut = True
        elif phrase and minus:
            query.excluded.append(phrase)
        elif phrase and either and query.words:
            query.words[-1] += f" OR {phrase}"
        elif phrase:
            query.words.append(phrase)
        either = False
    restrict_to_domains(query, sites)
    return query


def restrict_to_domains(query: SearchQuery, domains: Iterable[object], *, without: bool = False) -> None:
    """Restrict the query to these domains and their subdomains, or exclude them; each may have a port and a path.

    Raises:
        ErrorResponse: 400; a value is not a domain.
    """
    conditions: list[str] = []
    values: list[object] = []
    for domain in map(str, domains):
        try:
            parts = urlsplit(domain if "://" in domain else f"//{domain}")
            name, port = (parts.hostname or "").strip(".").removeprefix("*.").removeprefix("www."), parts.port
            host = name.encode("idna").decode("ascii")
        except ValueError:
            host = ""
        if not host:
            bad_request(f"{domain[:100]!r} is no domain: write it like example.com.")
        path = parts.path.rstrip("/*")
        conditions.append(
            "(substr('.' || host, ?) = ? AND coalesce(?, port, 0) = coalesce(port, 0)"
            " AND substr(key, instr(substr(key, 3), '/') + 2, ?) = ?)"
        )
        values += [-len(host) - 1, f".{host}", port, len(path), path]
    if conditions:
        query.narrow(f"{'NOT ' if without else ''}({' OR '.join(conditions)})", *values)


def entry(
    team: str, document: Mapping[str, object], final_url: str, options: Mapping[str, object], *, fresh: bool
) -> IndexEntry | None:
    """Return the index entry of a scraped page; None if it is not indexed.

    Error pages and private requests are not indexed: storeInCache false, custom headers, lockdown, zero data retention.
    A page that returns 404 or 410 is removed from the index.
    """
    metadata, parts = document.get("metadata"), split(final_url)
    if not isinstance(metadata, Mapping) or parts is None or options.get("store_in_cache") is False:
        return None
    if any(options.get(name) for name in _PRIVATE_OPTIONS):
        return None
    status = metadata.get("statusCode")
    key = canonical_key(parts, similar=True, ignore_query=False)
    if status in _GONE_STATUSES:
        return IndexEntry(team, key, gone=True) if fresh else None
    if not isinstance(status, int) or not 200 <= status < 300:
        return None
    kind = _single_line(metadata.get("contentType")).partition(";")[0].strip().lower()
    text = _indexed(_text(document, kind, options))
    return IndexEntry(
        team,
        key,
        final_url,
        _indexed(_single_line(metadata.get("title"))),
        _indexed(_single_line(metadata.get("description"))),
        kind,
        text,
        zlib.compress(text.encode(), 1),
        # A partial page, or one without text, is indexed if there is no entry yet.
        fresh and bool(text) and not options.get("include_tags"),
    )


def store(db: Connection, new: IndexEntry, at: float) -> None:
    """Store a page in the index, replacing the team's earlier entry; called in the transaction that stores the page."""
    old = db.execute("SELECT id FROM search_pages WHERE team = ? AND key = ?", (new.team, new.key)).fetchone()
    if old is not None and not new.fresh:
        return
    if old is not None:
        _drop(db, old["id"])
    if new.gone:
        return
    parts = urlsplit(f"//{site_of(urlsplit(new.url))}")
    words = (new.title, new.description, new.url)
    place = db.execute(
        "INSERT INTO search_pages (team, key, host, port, kind, stored, title, description, url, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (new.team, new.key, parts.hostname or "", parts.port, new.kind, at, *words, new.compressed),
    ).lastrowid
    db.execute(
        "INSERT INTO search_words (rowid, title, description, url, text) VALUES (?, ?, ?, ?, ?)",
        (place, *words, new.text),
    )


def evict(db: Connection, max_pages: int) -> None:
    """Delete the oldest entries beyond a number."""
    rows = db.execute("SELECT id FROM search_pages ORDER BY stored DESC LIMIT -1 OFFSET ?", (max_pages,))
    for old in rows.fetchall():
        _drop(db, old["id"])


def count(db: Connection, team: str) -> int:
    """Return the number of the team's searchable pages."""
    (pages,) = db.execute("SELECT count(*) FROM search_pages WHERE team = ?", (team,)).fetchone()
    return int(pages)


def search(
    db: Connection, team: str, query: SearchQuery, limit: int, *, newest: bool = False
) -> tuple[list[SearchHit], bool]:
    """Return the best pages for a query, and whether every word is in them.

    If no page has all words, pages with some of them are returned. Pages of equal rank are sorted by URL.
    """
    if not (query.words or query.excluded or query.where):
        return [], True
    words = [f"({one})" for one in query.words]
    found = _select(db, team, query, limit, " AND ".join(words), newest=newest)
    if found or len(words) < 2:
        return found, True
    found = _select(db, team, query, limit, " OR ".join(words), newest=newest)
    return found, not found


def titles_of_hosts(db: Connection, team: str, hosts: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return title and description of the team's pages on these hosts and their subdomains, by `canonical_key`."""
    found = {}
    for host in sorted({urlsplit(f"//{host}").hostname or "" for host in hosts}):
        rows = db.execute(
            "SELECT key, title, description FROM search_pages WHERE team = ? AND substr('.' || host, ?) = ?",
            (team, -len(host) - 1, f".{host}"),
        )
        found.update({row["key"]: (_shown(row["title"]), _shown(row["description"])) for row in rows})
    return found


def _select(
    db: Connection, team: str, query: SearchQuery, limit: int, expression: str, *, newest: bool
) -> list[SearchHit]:
    where, values = ["team = ?", *query.where], [team, *query.values]
    if query.excluded:
        where.append("id NOT IN (SELECT rowid FROM search_words WHERE search_words MATCH ?)")
        values.append(" OR ".join(query.excluded))
    if expression:
        where.append("search_words MATCH ?")
        values.append(expression)
    order = "stored DESC" if newest or not expression else _RANK
    rows = db.execute(
        "SELECT page.url, page.title, page.description, page.text"  # noqa: S608
        " FROM search_words JOIN search_pages page ON id = search_words.rowid"
        f" WHERE {' AND '.join(where)} ORDER BY {order}, page.url LIMIT ?",
        (*values, limit),
    )
    return [
        SearchHit(url, _shown(title), _shown(description), _passage(zlib.decompress(text).decode(), expression))
        for url, title, description, text in rows
    ]


def _drop(db: Connection, place: int) -> None:
    row = db.execute(
        "DELETE FROM search_pages WHERE id = ? RETURNING title, description, url, text", (place,)
    ).fetchone()
    # A table without the texts must be told which words go.
    db.execute(
        "INSERT INTO search_words (search_words, rowid, title, description, url, text)"
        " VALUES ('delete', ?, ?, ?, ?, ?)",
        (place, *row[:3], zlib.decompress(row["text"]).decode()),
    )


def _phrase(text: str) -> str:
    """Return a searched text as a quoted FTS expression; empty if it has no word."""
    text = _indexed(text).replace('"', " ").replace("\0", " ")
    return f'"{text}"' if any(unicodedata.category(letter)[0] in "LN" for letter in text) else ""


def _indexed(text: str) -> str:
    """Return text as the index holds it."""
    if text.isascii():
        return text
    return _UNSPACED.sub(rf"{_BOUNDARY}\1{_BOUNDARY}", unicodedata.normalize("NFKC", text))


def _shown(text: str) -> str:
    """Return text of the index in one line."""
    return " ".join(text.replace(_BOUNDARY, "").split())


def _passage(text: str, expression: str) -> str:
    """Return the text around its first searched word, or its beginning, in one line, cut at word boundaries.

    Not `snippet` or `highlight`, which take quadratic time where a page has one word very often. Endings may differ,
    because the index has stems.
    """
    text, found = text.replace(_BOUNDARY, ""), None
    words = [one.replace(_BOUNDARY, "").strip() for one in _QUOTED.findall(expression)]
    stems = [re.escape(one[: max(4, len(one) - 3)] if one.isascii() else one) for one in words]
    if stems:
        found = re.search(rf"\b(?:{'|'.join(stems)})", text, re.IGNORECASE) or re.search("|".join(stems), text)
    start = max(0, found.start() - _BEFORE_CHARS) if found is not None else 0
    line = _shown(text[start : start + 4 * _PASSAGE_CHARS])
    if start:
        line = f"… {line.partition(' ')[2] or line}"
    if len(line) <= _PASSAGE_CHARS:
        return line
    cut = line[:_PASSAGE_CHARS]
    return f"{cut.rpartition(' ')[0] if ' ' in cut[_PASSAGE_CHARS // 2 :] else cut} …"


def _text(document: Mapping[str, object], kind: str, options: Mapping[str, object]) -> str:
    """Return the text of a page from any requested format; an unconverted file has none."""
    if options.get("parsers") == [] and not kind.startswith(("text/", "application/xhtml")):
        return ""
    text = ""
    if isinstance(markdown := document.get("markdown"), str):
        text = _MARKUP.sub(" ", markdown[: 2 * MAX_CHARS])
    elif isinstance(html := document.get("html") or document.get("rawHtml"), str):
        tree = LexborHTMLParser(limit_nesting(html[:_MAX_HTML_CHARS], always_scan=True))
        tree.strip_tags(["script", "style", "noscript", "template"])
        text = tree.body.text(separator=" ") if tree.body is not None else ""
    return text[:MAX_CHARS].encode("utf-8", "replace").decode()


def _single_line(value: object) -> str:
    """Return a metadata value as one line; the first one of several."""
    first = value[0] if isinstance(value, list) and value else value
    text = " ".join(first.split())[:2000] if isinstance(first, str) else ""
    return text.encode("utf-8", "replace").decode()
