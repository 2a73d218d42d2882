"""The last version of every page whose changes are tracked.

A version is identified by team, URL, tag, and the options that shape the markdown: versions with different content
selection are not comparable. Versions do not expire.

A page is hidden if an earlier crawl found it, and the last crawl with the same options covered the whole site without
finding it: no link and no sitemap led to it. A crawl that stopped at its limit, or missed a page, hides nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from sqlite3 import Connection, Row

import httpx
import msgspec

from weblake.api.page_keys import route_of
from weblake_service.clock import iso
from weblake_service.page.change_tracking import (
    TrackingOptions,
    compare,
    is_comparable,
    is_content,
    read_tracking_options,
)
from weblake_service.store.database import Store
from weblake_service.web.addresses import ascii_host, clean_url

_NOT_TRACKED_WARNING = (
    "Changes were not tracked: nothing is kept of this scrape, and nothing is there to compare it with."
)
#: Options that shape the markdown, with their defaults.
_MARKDOWN_OPTIONS: dict[str, object] = {
    "only_main_content": True,
    "only_clean_content": False,
    "include_tags": [],
    "exclude_tags": [],
    "remove_base64_images": True,
    "block_ads": True,
    "parsers": ["pdf"],
}


@dataclass(frozen=True, slots=True)
class PageVersion:
    """A page version to be stored in the history."""

    key: bytes
    #: None for a response that is not a version and only shows that the page is still linked.
    body: bytes | None


def key_of(team: str, url: str, tracking: TrackingOptions, options: Mapping[str, object]) -> bytes:
    """Return the key under which a page's versions are compared."""
    shape = {name: options.get(name, default) for name, default in _MARKDOWN_OPTIONS.items()}
    page = [team, _address(url), tracking.tag, shape]
    return hashlib.sha256(msgspec.json.encode(page, order="deterministic")).digest()


def _address(url: str) -> str:
    """Return the normalised URL: spellings of one URL are one page, and so are its fragments that are no routes."""
    parsed = httpx.URL(clean_url(url, allow_private=True))
    port = parsed.port or {"http": 80, "https": 443}[parsed.scheme]
    fragment = f"#{route_of(parsed.fragment)}".rstrip("#")
    return f"{parsed.scheme}://{ascii_host(parsed)}:{port}{parsed.raw_path.decode('ascii')}{fragment}"


@dataclass(frozen=True, slots=True)
class LastVersion:
    """The stored state of a page."""

    scraped: float
    markdown: str
    hidden: bool


def last_version(db: Connection, key: bytes) -> LastVersion | None:
    """Return the last version of a page; None if there is none."""
    row = db.execute(
        "SELECT scraped, body, began > met AS hidden FROM page_history LEFT JOIN tracked_crawls t ON t.key = crawl"
        " WHERE page_history.key = ?",
        (key,),
    ).fetchone()
    if row is None:
        return None
    return LastVersion(row["scraped"], zlib.decompress(row["body"]).decode("utf-8"), bool(row["hidden"]))


def new_version(key: bytes, markdown: str) -> PageVersion:
    """Return a version as `store` takes it."""
    return PageVersion(key, zlib.compress(markdown.encode("utf-8", "replace"), 1))


def store(db: Connection, new: PageVersion, at: float, job: Row) -> None:
    """Replace the last version of a page; called in the transaction that stores the page for a job."""
    crawl, met = (_crawl_key(job), job["created"]) if job["kind"] == "crawl" else (None, None)
    if new.body is None and crawl is not None:
        db.execute("UPDATE page_history SET crawl = ?, met = ? WHERE key = ?", (crawl, met, new.key))
    if new.body is None:
        return
    db.execute(
        "INSERT INTO page_history (key, scraped, body, crawl, met) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
        " SET scraped = excluded.scraped, body = excluded.body, crawl = coalesce(excluded.crawl, crawl),"
        " met = coalesce(excluded.met, met)",
        (new.key, at, new.body, crawl, met),
    )


def note_crawl(db: Connection, job: Row) -> None:
    """Record a completed crawl, if it tracked changes and covered its whole site."""
    if job["kind"] != "crawl" or b"changeTracking" not in bytes(job["options"]):
        return
    whole = job["failed"] == 0 and job["documents"] < job["expected"]
    if whole and db.execute("SELECT 1 FROM robots_blocked WHERE job = ? LIMIT 1", (job["id"],)).fetchone() is None:
        db.execute(
            "INSERT OR REPLACE INTO tracked_crawls (key, began) VALUES (?, ?)", (_crawl_key(job), job["created"])
        )


def _crawl_key(job: Row) -> bytes:
    """Return a key that is equal for two crawls with the same request."""
    parts = (job["team"].encode(), job["url"].encode(), bytes(job["plan"]), bytes(job["options"]))
    return hashlib.sha256(b"\0".join(parts)).digest()


@dataclass(frozen=True, slots=True)
class TrackingResult:
    """The tracking fields of a document, and the new version to store."""

    found: Mapping[str, object] | None
    warning: str = ""
    version: PageVersion | None = None
    #: The earlier markdown, if the page has changed.
    previous: str | None = None


async def track(
    store: Store,
    team: str,
    url: str,
    options: Mapping[str, object],
    document: Mapping[str, object],
    *,
    fresh: bool,
    found: bool,
) -> TrackingResult | None:
    """Compare a page with its last version; return None if the options do not request it.

    Args:
        document: The page, with its markdown and metadata.
        fresh: Whether it was just fetched; a page from the cache is compared, but is no new version.
        found: Whether a crawl has just found it.
    """
    tracking = read_tracking_options(options)
    if tracking is None:
        return None
    if options.get("lockdown") or options.get("zero_data_retention"):
        return TrackingResult(None, _NOT_TRACKED_WARNING)
    metadata, markdown = document.get("metadata"), document.get("markdown")
    status = metadata.get("statusCode") if isinstance(metadata, Mapping) else None
    assert isinstance(markdown, str)
    key = key_of(team, url, tracking, options)
    new = await asyncio.to_thread(new_version, key, markdown) if is_content(status) else PageVersion(key, None)
    if not is_comparable(status):
        said = f"Changes were not tracked: the target answered with {status}, not with its page."
        return TrackingResult(None, said, new if fresh else None)
    before = await store.read(partial(last_version, key=key))
    previous = before.markdown if before is not None else None
    changes = {
        "previousScrapeAt": iso(before.scraped) if before is not None else None,
        **await asyncio.to_thread(compare, tracking, previous, markdown, status),
        "visibility": "hidden" if before is not None and before.hidden and not found else "visible",
    }
    before_change = previous if changes["changeStatus"] == "changed" else None
    return TrackingResult(changes, version=new if fresh else None, previous=before_change)
