"""One page, from the cache or the web, as the encoded document that a job stores.

Imports: answers, clock, config, failures, page_cache, records, store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from sqlite3 import Connection
from typing import Protocol
from uuid import uuid4

from weblake.service.answers import encode
from weblake.service.clock import Clock
from weblake.service.config import ServiceConfig
from weblake.service.failures import PageFailure
from weblake.service.jobs import page_cache
from weblake.service.jobs.page_cache import CachedPage
from weblake.service.jobs.records import Failed, Stored
from weblake.service.store.database import Store

_LOG = logging.getLogger("weblake.service")
_CLEAN_SKIPPED = (
    "onlyCleanContent was skipped: it needs a language model (weblake[llm]). The markdown is what onlyMainContent left."
)
#: How many pages go into the cache between two looks at its size.
_SHRINK_EVERY = 64
#: Credits of a page that lockdown finds in the cache, and of one that it does not.
LOCKDOWN_HIT, LOCKDOWN_MISS = 5, 1


class FreshPage(Protocol):
    """What the page half of the service returns."""

    @property
    def document(self) -> dict[str, object]:
        """The document in its wire form, without a scrape id."""

    @property
    def final_url(self) -> str:
        """Where the redirects led."""

    @property
    def links(self) -> list[str]:
        """The page's links."""

    @property
    def credits(self) -> int:
        """What it costs."""


#: Fetches a page and makes it a document; raises PageFailure.
ScrapePage = Callable[[str, Mapping[str, object]], Awaitable[FreshPage]]


@dataclass(frozen=True, slots=True)
class Scraped:
    """A page that is ready to be stored."""

    stored: Stored
    links: list[str]
    fresh: tuple[bytes, bytes] | None

    def keep(self, db: Connection, at: float) -> None:
        """Puts a fresh page into the cache; called in the transaction that stores it."""
        if self.fresh is not None:
            page_cache.keep(db, self.fresh, at)


class Scraper:
    """Scrapes pages, so many at a time, for every job and every single scrape of one service."""

    def __init__(self, store: Store, clock: Clock, config: ServiceConfig, scrape_page: ScrapePage) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._scrape_page = scrape_page
        self._slots = asyncio.Semaphore(config.concurrency)
        self._kept = 0
        #: Pages in flight, by team.
        self.active: Counter[str] = Counter()

    async def get(self, url: str, options: Mapping[str, object], team: str) -> Scraped:
        """Scrapes one page.

        Raises:
            PageFailure: It could not be scraped, or the cache alone was asked and has it not.
        """
        limited, asked = self._slots.locked(), asyncio.get_running_loop().time()
        async with self._slots:
            waited = asyncio.get_running_loop().time() - asked
            self.active[team] += 1
            try:
                return await self._get(url, options, int(waited * 1000) if limited else None)
            finally:
                self.active[team] -= 1

    async def _get(self, url: str, options: Mapping[str, object], queued_ms: int | None) -> Scraped:
        now = self._clock.now()
        want = page_cache.wanted(url, options, now)
        if want is not None:
            cached = await self._store.read(lambda db: page_cache.look_up(db, want, url))
            if cached is not None:
                credits = LOCKDOWN_HIT if options.get("lockdown") else 1
                return _ready(cached, options, credits, queued_ms, None)
            if not want.or_fetch:
                raise _cache_miss(options)
        fresh = await self._scrape_page(url, options)
        page = CachedPage(fresh.document, fresh.links, fresh.final_url)
        entry = None
        if page_cache.may_keep(page, options):
            entry = page_cache.pack(url, options, page)
            await self._shrink()
        return _ready(page, options, fresh.credits, queued_ms, entry)

    async def _shrink(self) -> None:
        self._kept += 1
        if self._kept % _SHRINK_EVERY == 0:
            await self._store.write(partial(page_cache.shrink, most=self._config.max_cached_pages))


def failed(error: Exception) -> Failed:
    """A page's failure as a job records it; one that nobody foresaw is logged and stays that page's own."""
    if isinstance(error, PageFailure):
        miss = error.code == "SCRAPE_LOCKDOWN_CACHE_MISS"
        return Failed(error.code, error.message, LOCKDOWN_MISS if miss else 0)
    _LOG.error("A page failed in an unforeseen way.", exc_info=error)
    return Failed("UNKNOWN_ERROR", f"An unexpected error occurred while scraping: {type(error).__name__}.")


def _ready(
    page: CachedPage,
    options: Mapping[str, object],
    credits: int,
    queued_ms: int | None,
    entry: tuple[bytes, bytes] | None,
) -> Scraped:
    scrape_id = str(uuid4())
    given = page.document.get("metadata")
    metadata: dict[str, object] = dict(given) if isinstance(given, dict) else {}
    metadata["scrapeId"] = scrape_id
    metadata.setdefault("cacheState", "miss")
    metadata["creditsUsed"] = credits
    metadata["concurrencyLimited"] = queued_ms is not None
    if queued_ms is not None:
        metadata["concurrencyQueueDurationMs"] = queued_ms
    document = page.document | {"metadata": metadata}
    if options.get("only_clean_content"):
        warning = document.get("warning")
        document["warning"] = f"{warning} {_CLEAN_SKIPPED}" if warning else _CLEAN_SKIPPED
    return Scraped(Stored(scrape_id, encode(document), credits, page.final_url), page.links, entry)


def _cache_miss(options: Mapping[str, object]) -> PageFailure:
    if options.get("lockdown"):
        return PageFailure(
            "SCRAPE_LOCKDOWN_CACHE_MISS", "Lockdown reads the cache only, and the page is not in it.", status=404
        )
    return PageFailure(
        "SCRAPE_NO_CACHED_DATA", "minAge reads the cache only, and no page there is old enough.", status=404
    )
