"""Cache of fetched pages, for maxAge, minAge and lockdown.

The cache stores the target's response and not the document: a hit is processed again with the formats and options of
the new request, with the same result as a fresh scrape of the same response.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from sqlite3 import Connection
from urllib.parse import urlsplit

import msgspec

from weblake_service.browser.rendering_options import rendering_key
from weblake_service.page.change_tracking import read_tracking_options
from weblake_service.responses import encode
from weblake_service.web.addresses import clean_url
from weblake_service.web.fetch import FetchedResponse
from weblake_service.web.location import DEFAULT_COUNTRY, accept_language, country_of

#: Milliseconds: the contract's default of maxAge, and the maximum age if only the cache is read.
DEFAULT_MAX_AGE_MS = 172_800_000
LOCKDOWN_MAX_AGE_MS = 2 * 365 * 24 * 3_600_000
#: Maximum characters of images in an entry, because a cache holds many pages.
_MAX_IMAGE_CHARS = 4 << 20
#: Options that make a response specific to the caller.
_PRIVATE_OPTIONS = ("headers", "actions", "profile", "lockdown", "zero_data_retention")


@dataclass(frozen=True, slots=True)
class CacheQuery:
    """The conditions for a cached page."""

    key: bytes
    #: Whether the certificate must have been checked when the page was fetched.
    verified: bool
    stored_before: float
    stored_after: float
    #: Whether the page may be fetched if it is not in the cache.
    or_fetch: bool


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A page to be stored in the cache."""

    key: bytes
    verified: bool
    head: bytes
    body: bytes


def is_private(options: Mapping[str, object]) -> bool:
    """Return whether nothing of the page may be stored: zero data retention, or lockdown."""
    return bool(options.get("lockdown") or options.get("zero_data_retention"))


def cache_query(url: str, options: Mapping[str, object], now: float) -> CacheQuery | None:
    """Return the cache query of the options; None if the cache is not used.

    A page with change tracking is fetched, unless the request forbids it: the cache holds the last scrape, so that no
    change would ever be found.
    """
    min_age, max_age = options.get("min_age"), options.get("max_age")
    only_cached = bool(options.get("lockdown")) or min_age is not None
    if max_age is None:
        max_age = LOCKDOWN_MAX_AGE_MS if only_cached else DEFAULT_MAX_AGE_MS
    assert isinstance(max_age, int)
    assert min_age is None or isinstance(min_age, int)
    own = options.get("headers") or options.get("actions") or options.get("profile")
    if not only_cached and (max_age == 0 or own or read_tracking_options(options) is not None):
        return None
    return CacheQuery(
        _key(url, options),
        _checks_certificate(options),
        now - (min_age or 0) / 1000,
        now - max_age / 1000,
        not only_cached,
    )


def find(db: Connection, want: CacheQuery) -> tuple[FetchedResponse, float] | None:
    """Return the newest matching response, and when it was stored; None if there is none."""
    row = db.execute(
        "SELECT stored, head, body FROM page_cache WHERE key = ? AND verified >= ? AND stored <= ? AND stored > ?"
        " ORDER BY stored DESC LIMIT 1",
        (want.key, want.verified, want.stored_before, want.stored_after),
    ).fetchone()
    if row is None:
        return None
    head = msgspec.json.decode(row["head"], type=FetchedResponse)
    return replace(head, body=zlib.decompress(row["body"])), row["stored"]


def is_cacheable(url: str, fetched: FetchedResponse, options: Mapping[str, object]) -> bool:
    """Return whether a response may be cached: not if it is specific to the caller or an error page."""
    if options.get("store_in_cache") is False or any(options.get(name) for name in _PRIVATE_OPTIONS):
        return False
    if sum(len(one) for one in fetched.captured.values() if isinstance(one, str)) > _MAX_IMAGE_CHARS:
        return False
    return 200 <= fetched.status < 300 and not fetched.failures and "@" not in urlsplit(url).netloc


def pack(url: str, options: Mapping[str, object], fetched: FetchedResponse) -> CacheEntry:
    """Return a response as a cache entry; compressing a large one takes time."""
    # Not the headers and cookies, which belong to one request, and nothing has failed (`is_cacheable`).
    head = replace(fetched, body=b"", headers={}, cookies=())
    return CacheEntry(_key(url, options), _checks_certificate(options), encode(head), zlib.compress(fetched.body, 1))


def store(db: Connection, entry: CacheEntry, at: float) -> None:
    """Store an entry, replacing an earlier one."""
    db.execute(
        "INSERT OR REPLACE INTO page_cache (key, verified, stored, head, body) VALUES (?, ?, ?, ?, ?)",
        (entry.key, entry.verified, at, entry.head, entry.body),
    )


def evict(db: Connection, max_pages: int) -> None:
    """Delete the oldest pages beyond a number."""
    db.execute(
        "DELETE FROM page_cache WHERE rowid IN (SELECT rowid FROM page_cache ORDER BY stored DESC LIMIT -1 OFFSET ?)",
        (max_pages,),
    )


def _key(url: str, options: Mapping[str, object]) -> bytes:
    """Return the cache key: equal for two spellings of one URL with the same location and rendering options."""
    country = country_of(options).code
    place = accept_language(options) + ("" if country == DEFAULT_COUNTRY else f" {country}")
    address, seen = clean_url(url, allow_private=True), rendering_key(options)
    page, _, fragment = address.partition("#")
    # A script can show another page for another fragment, but no server is sent the fragment.
    page = f"{place} {address if seen or fragment.startswith(('/', '!')) else page}"
    page = f"{page} {seen}" if seen else page
    return hashlib.sha256(page.encode("utf-8", "surrogatepass")).digest()


def _checks_certificate(options: Mapping[str, object]) -> bool:
    return options.get("skip_tls_verification") is False
