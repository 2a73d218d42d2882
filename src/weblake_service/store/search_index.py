"""Full-text index of the pages that a team scraped.

Each team and page has one row and one entry of the full-text index: pages of one team are invisible to others. The
index itself contains no text (the row does, compressed), so an entry is removed by the words that it was added with.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Connection, Row
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.parser_limits import limit_nesting
from weblake_service.store.search_query import SearchQuery
from weblake_service.store.search_text import MAX_CHARS, beginning, best_passage, index_text, plain_text
from weblake_service.web.canonical_urls import canonical_key, site_of, split

#: Options whose pages are private to the request.
_PRIVATE_OPTIONS = ("headers", "lockdown", "zero_data_retention", "actions", "profile")
#: Weights of a word in title, description, text and URL.
_WEIGHTS = "8.0, 3.0, 1.0, 2.0"
_MAX_HTML_CHARS = 1 << 20
#: Number of pages that are indexed together, which halves the cost of indexing them one by one.
_INDEX_BATCH = 32
_GONE_STATUSES = (404, 410)
_NO_TEXT = zlib.compress(b"", 1)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A page to be stored in the index; see `entry`."""

    team: str
    key: str
    url: str
    title: str
    description: str
    kind: str
    text: bytes
    #: Whether the page was fetched now, and completely; a cached page does not replace an existing entry.
    fresh: bool
    #: Whether the page no longer exists.
    gone: bool = False

    @property
    def digest(self) -> bytes:
        """Return a hash that is equal for two scrapes with the same content."""
        parts = (self.url, self.title, self.description, self.kind, self.text)
        packed = b"\0".join(one if isinstance(one, bytes) else one.encode("utf-8", "replace") for one in parts)
        return hashlib.blake2b(packed, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A page that matches a query."""

    url: str
    title: str
    #: The page's own description.
    description: str
    #: The passage with the searched words; for a search without words, the beginning of the text.
    passage: str


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
        return IndexEntry(team, key, "", "", "", "", b"", fresh, gone=True) if fresh else None
    if not isinstance(status, int) or not 200 <= status < 300:
        return None
    kind = _single_line(metadata.get("contentType")).partition(";")[0].strip().lower()
    return IndexEntry(
        team,
        key,
        final_url,
        _single_line(metadata.get("title")),
        _single_line(metadata.get("description")),
        kind,
        zlib.compress(_text(document, kind, options).encode("utf-8", "replace"), 1),
        # A partial page is indexed if there is no entry yet, but does not replace a complete one.
        fresh and not options.get("include_tags"),
    )


def store(db: Connection, new: IndexEntry, at: float) -> None:
    """Store a page in the index, replacing the team's earlier entry; called in the transaction that stores the page."""
    old = db.execute("SELECT * FROM search_pages WHERE team = ? AND key = ?", (new.team, new.key)).fetchone()
    if new.gone:
        if old is not None:
            _drop(db, old)
        return
    if old is not None:
        if not new.fresh:
            return
        if new.text == _NO_TEXT != old["text"] or old["digest"] == new.digest:
            # A scrape that returns links only does not delete the indexed text.
            db.execute("UPDATE search_pages SET stored = ? WHERE id = ?", (at, old["id"]))
            return
        _drop(db, old)
    parts = urlsplit(f"//{site_of(urlsplit(new.url))}")
    place = db.execute(
        "INSERT INTO search_pages (team, key, url, host, port, kind, title, description, stored, digest, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.team, new.key, new.url, parts.hostname or "", parts.port, new.kind, new.title, new.description, at,
            new.digest, new.text,
        ),
    ).lastrowid  # fmt: skip
    db.execute("INSERT INTO search_waiting VALUES (?)", (place,))
    (waiting,) = db.execute("SELECT count(*) FROM search_waiting").fetchone()
    if waiting >= _INDEX_BATCH:
        index_pending(db)


def index_pending(db: Connection) -> None:
    """Index the words of the pending pages; `search` finds indexed pages only."""
    for row in db.execute("SELECT * FROM search_pages WHERE id IN (SELECT id FROM search_waiting)").fetchall():
        _words(db, "INSERT INTO search_words (rowid, title, description, text, url) VALUES (?, ?, ?, ?, ?)", row)
    db.execute("DELETE FROM search_waiting")


def has_pending(db: Connection) -> bool:
    """Return whether pages wait to be indexed."""
    return db.execute("SELECT 1 FROM search_waiting LIMIT 1").fetchone() is not None


def evict(db: Connection, max_pages: int) -> None:
    """Delete the oldest entries beyond a number."""
    for old in db.execute("SELECT * FROM search_pages ORDER BY stored DESC LIMIT -1 OFFSET ?", (max_pages,)).fetchall():
        _drop(db, old)


def clear(db: Connection) -> None:
    """Empty the index."""
    db.execute("DELETE FROM search_pages")
    db.execute("DELETE FROM search_waiting")
    db.execute("INSERT INTO search_words (search_words) VALUES ('delete-all')")


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
    if query.matches_nothing:
        return [], True
    rows = _select(db, team, query, limit, query.expression(), newest=newest)
    whole = True
    if not rows and query.any_word_expression:
        rows = _select(db, team, query, limit, query.expression(every=False), newest=newest)
        whole = not rows
    return [_to_hit(row, query) for row in rows], whole


def titles_of_hosts(db: Connection, team: str, hosts: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return title and description of the team's pages on these hosts and their subdomains, by `canonical_key`."""
    found = {}
    for host in sorted({urlsplit(f"//{host}").hostname or "" for host in hosts}):
        rows = db.execute(
            "SELECT key, title, description FROM search_pages WHERE team = ? AND substr('.' || host, ?) = ?",
            (team, -len(host) - 1, f".{host}"),
        )
        found.update({row["key"]: (row["title"], row["description"]) for row in rows})
    return found


def _select(db: Connection, team: str, query: SearchQuery, limit: int, expression: str, *, newest: bool) -> list[Row]:
    where, values = ["team = ?", *query.where], [team, *query.values]
    if expression:
        source = "search_words JOIN search_pages ON search_pages.id = search_words.rowid"
        where.append("search_words MATCH ?")
        values.append(expression)
        order = f"bm25(search_words, {_WEIGHTS})"
    else:
        source, order = "search_pages", "stored DESC"
        if query.excluded:
            where.append("id NOT IN (SELECT rowid FROM search_words WHERE search_words MATCH ?)")
            values.append(" OR ".join(query.excluded))
    if newest:
        order = "stored DESC"
    # Texts are read only for the returned pages, not for all matches.
    best = f"SELECT id FROM {source} WHERE {' AND '.join(where)} ORDER BY {order}, search_pages.url LIMIT ?"  # noqa: S608
    ids = [row["id"] for row in db.execute(best, (*values, limit)).fetchall()]
    return [db.execute("SELECT * FROM search_pages WHERE id = ?", (one,)).fetchone() for one in ids]


def _to_hit(row: Row, query: SearchQuery) -> SearchHit:
    text = zlib.decompress(row["text"]).decode()
    return SearchHit(row["url"], row["title"], row["description"], best_passage(text, query.sought) or beginning(text))


def _drop(db: Connection, old: Row) -> None:
    db.execute("DELETE FROM search_pages WHERE id = ?", (old["id"],))
    if db.execute("DELETE FROM search_waiting WHERE id = ?", (old["id"],)).rowcount:
        return
    _words(
        db,
        "INSERT INTO search_words (search_words, rowid, title, description, text, url)"
        " VALUES ('delete', ?, ?, ?, ?, ?)",
        old,
    )


def _words(db: Connection, sql: str, row: Row) -> None:
    text = zlib.decompress(row["text"]).decode()
    db.execute(sql, (row["id"], index_text(row["title"]), index_text(row["description"]), index_text(text), row["url"]))


def _text(document: Mapping[str, object], kind: str, options: Mapping[str, object]) -> str:
    """Return the text of a page from any requested format; an unconverted file has none."""
    if options.get("parsers") == [] and not kind.startswith(("text/", "application/xhtml")):
        return ""
    markdown = document.get("markdown")
    if isinstance(markdown, str):
        return plain_text(markdown)
    for name in ("html", "rawHtml"):
        html = document.get(name)
        if isinstance(html, str):
            tree = LexborHTMLParser(limit_nesting(html[:_MAX_HTML_CHARS], always_scan=True))
            tree.strip_tags(["script", "style", "noscript", "template"])
            return tree.body.text(separator=" ")[:MAX_CHARS] if tree.body is not None else ""
    return ""


def _single_line(value: object) -> str:
    """Return a metadata value as one line; the first one of several."""
    first = value[0] if isinstance(value, list) and value else value
    text = " ".join(first.split())[:2000] if isinstance(first, str) else ""
    return text.encode("utf-8", "replace").decode()
