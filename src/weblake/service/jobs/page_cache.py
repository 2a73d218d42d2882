"""Pages that were scraped before, for maxAge, minAge and lockdown. Imports: answers, clock, features.

An entry is found by its URL and by every option that shapes the document: a hit is what a scrape would have made.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Connection

import msgspec

from weblake.service.answers import encode
from weblake.service.clock import iso
from weblake.service.features import format_names

#: Milliseconds: the contract's default of maxAge, and the one that holds under lockdown.
MAX_AGE = 172_800_000
LOCKDOWN_MAX_AGE = 2 * 365 * 24 * 3_600_000
#: Options that shape a document, with the values they have where they are not given.
_SHAPING: dict[str, object] = {
    "only_main_content": True,
    "only_clean_content": False,
    "include_tags": [],
    "exclude_tags": [],
    "remove_base64_images": True,
    "parsers": ["pdf"],
}


@dataclass(frozen=True, slots=True)
class CachedPage:
    """A page as it was scraped, without a scrape id."""

    document: dict[str, object]
    links: list[str]
    final_url: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which cached page will do."""

    key: bytes
    stored_before: float
    stored_after: float
    #: Whether the page may be fetched where the cache has none.
    or_fetch: bool


def wanted(url: str, options: Mapping[str, object], now: float) -> Wanted | None:
    """What the options say about the cache; None where it is not to be asked."""
    lockdown, min_age = bool(options.get("lockdown")), options.get("min_age")
    only_cached = lockdown or min_age is not None
    max_age = options.get("max_age")
    if max_age is None:
        max_age = LOCKDOWN_MAX_AGE if only_cached else MAX_AGE
    assert isinstance(max_age, int)
    assert min_age is None or isinstance(min_age, int)
    if not only_cached and (max_age == 0 or options.get("headers")):
        return None
    return Wanted(_key(url, options), now - (min_age or 0) / 1000, now - max_age / 1000, not only_cached)


def look_up(db: Connection, want: Wanted, source_url: str) -> CachedPage | None:
    """The cached page, marked as a hit for the URL that was asked; None where there is none that will do."""
    row = db.execute(
        "SELECT stored, body FROM page_cache WHERE key = ? AND stored <= ? AND stored >= ?",
        (want.key, want.stored_before, want.stored_after),
    ).fetchone()
    if row is None:
        return None
    page = msgspec.json.decode(zlib.decompress(row["body"]), type=CachedPage)
    metadata = page.document.get("metadata")
    assert isinstance(metadata, dict)
    metadata.update(sourceURL=source_url, cacheState="hit", cachedAt=iso(row["stored"]))
    return page


def may_keep(page: CachedPage, options: Mapping[str, object]) -> bool:
    """Whether a fresh page may go into the cache: not with headers of the caller's own, and not an error page."""
    metadata = page.document.get("metadata")
    status = metadata.get("statusCode") if isinstance(metadata, dict) else None
    good = isinstance(status, int) and 200 <= status < 300
    return good and options.get("store_in_cache") is not False and not options.get("headers")


def pack(url: str, options: Mapping[str, object], page: CachedPage) -> tuple[bytes, bytes]:
    """A page as `keep` takes it: its key and its compressed content."""
    return _key(url, options), zlib.compress(encode(page), 1)


def keep(db: Connection, entry: tuple[bytes, bytes], at: float) -> None:
    """Puts a page into the cache, in place of what was there."""
    db.execute("INSERT OR REPLACE INTO page_cache VALUES (?, ?, ?)", (entry[0], at, entry[1]))


def shrink(db: Connection, most: int) -> None:
    """Drops the oldest pages beyond a number."""
    db.execute(
        "DELETE FROM page_cache WHERE key IN (SELECT key FROM page_cache ORDER BY stored DESC LIMIT -1 OFFSET ?)",
        (most,),
    )


def _key(url: str, options: Mapping[str, object]) -> bytes:
    shape = {name: options.get(name, default) for name, default in _SHAPING.items()}
    shape["formats"] = sorted(set(format_names(options)))
    return hashlib.sha256(msgspec.json.encode([url, shape], order="deterministic")).digest()
