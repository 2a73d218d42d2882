"""Scrapes one page, from the cache or the web, into the encoded document that a job stores."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from sqlite3 import Connection
from urllib.parse import urlsplit

from weblake_service.browser.context_settings import BrowserIdentity
from weblake_service.browser.rendering_options import option_that_needs_browser
from weblake_service.clock import Clock, iso
from weblake_service.config import ServiceConfig
from weblake_service.fair_queue import NO_JOB, QUEUE, FairQueue
from weblake_service.jobs import page_cache, page_history
from weblake_service.jobs.browser_profiles import BrowserProfiles
from weblake_service.jobs.page_history import TrackingResult
from weblake_service.jobs.page_outcomes import Failed, Stored
from weblake_service.llm import model_options, model_output
from weblake_service.llm.model_output import ModelOutput
from weblake_service.llm.openai_endpoint import LanguageModel
from weblake_service.page.document import Page, with_warning
from weblake_service.page.requested_formats import left_out_warnings, number
from weblake_service.page_failure import PageFailure
from weblake_service.responses import encode
from weblake_service.store import accounts, search_index
from weblake_service.store.database import Store
from weblake_service.web.fetch import FetchedResponse
from weblake_service.web.http_web import HttpWeb
from weblake_service.web.location import DEFAULT_COUNTRY, country_of

_LOG = logging.getLogger("weblake.service")
#: Bytes from which a body is compressed, and from which its text is read for the index, in a thread.
_LARGE_BYTES, _INDEXED_BYTES = 200_000, 20_000
#: Number of pages stored in the cache between two checks of its size.
_EVICT_EVERY = 64
#: Credits of a lockdown page that is in the cache, and of one that is not.
LOCKDOWN_HIT_CREDITS, LOCKDOWN_MISS_CREDITS = 5, 1
#: Additional credits of a page with zero data retention.
ZERO_DATA_RETENTION_CREDITS = 1


_NO_PROXY_WARNING = (
    "This service has no proxy in {country}: the page was asked for from where the service is, with the languages and "
    "the time zone of that country."
)


@dataclass(frozen=True, slots=True)
class ScrapeContext:
    """The context of a scrape."""

    scrape_id: str
    #: The job in whose queue the page waits.
    queue: str = NO_JOB
    #: Since when the page has waited behind other pages of its job; None if it has not.
    queued_since: float | None = None
    #: Cache entries stored after this time are not used; None for no bound.
    cached_before: float | None = None
    #: Whether a crawl found the page.
    discovered: bool = False
    #: Called when the page turns out to need the browser, and has given its slot back.
    on_browser: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Scraped:
    """A scraped page that is ready to be stored."""

    stored: Stored
    links: list[str]
    fresh: page_cache.CacheEntry | None
    #: The entry for the search index.
    found: search_index.IndexEntry | None = None

    def keep(self, db: Connection, at: float) -> None:
        """Store the page in the cache and the search index; called in the transaction that stores the document."""
        if self.fresh is not None:
            page_cache.store(db, self.fresh, at)
        if self.found is not None:
            search_index.store(db, self.found, at)


class Scraper:
    """Scrapes pages for every job and every single scrape of one service, with a limit of concurrent pages for each
    team.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ServiceConfig,
        web: HttpWeb,
        profiles: BrowserProfiles,
        llm: LanguageModel,
    ) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._web = web
        self._profiles = profiles
        self._llm = llm
        self._queue = FairQueue(lambda team: config.plan(team).concurrency)
        self._kept = 0

    def in_flight(self, team: str) -> int:
        """Return the number of pages of a team that are being scraped."""
        return self._queue.in_use(team)

    async def get(self, url: str, options: Mapping[str, object], team: str, context: ScrapeContext) -> Scraped:
        """Scrape one page when a slot is free.

        Raises:
            PageFailure: The page could not be scraped, or only the cache may be used and does not have it.
        """
        requested_at = self._clock.now()
        async with AsyncExitStack() as held:
            waited = await held.enter_async_context(self.slot(team, url, context.queue))
            since = context.queued_since if context.queued_since is not None else requested_at if waited else None
            queued_ms = max(0, int((self._clock.now() - since) * 1000)) if since is not None else None
            if context.queue != NO_JOB:
                await self.check_credits(team)
            return await self._get(url, options, team, context, queued_ms, held)

    @asynccontextmanager
    async def slot(self, team: str, url: str, queue: str = NO_JOB) -> AsyncIterator[bool]:
        """Hold one of the team's slots for a URL while the block runs; yield whether it had to be waited for.

        Also the readers of sitemaps hold one: without a limit, the sites of one team that do not respond would occupy
        the connections of all teams.
        """
        QUEUE.set(f"{team} {queue}" if queue != NO_JOB else NO_JOB)
        async with self._queue.acquire(team, urlsplit(url).netloc, queue) as waited:
            yield waited

    async def _get(
        self,
        url: str,
        options: Mapping[str, object],
        team: str,
        context: ScrapeContext,
        queued_ms: int | None,
        held: AsyncExitStack,
    ) -> Scraped:
        """Return the scraped page; `held` is its slot, which is given back before a browser has to be waited for."""
        now, until = self._clock.now(), time.monotonic() + number(options.get("timeout"), 60_000) / 1000
        plain = model_options.without_model_options(options)
        want = page_cache.cache_query(url, options, now if context.cached_before is None else context.cached_before)
        hit = await self._store.read(partial(page_cache.find, want=want)) if want is not None else None
        if hit is None and want is not None and not want.or_fetch:
            raise _cache_miss(options)
        page = await self._web.remake(url, plain, hit[0]) if hit is not None else None
        if page is None or (want is not None and want.or_fetch and self._web.renders(page, hit and hit[0])):
            hit = None
            if option_that_needs_browser(options):
                # Pages that need no browser do not wait behind this one.
                await held.aclose()
            page = await self._fetch(url, plain, team)
        if page.script_filled or self._web.renders(page, page.fetched):
            await held.aclose()
            if context.on_browser is not None:
                context.on_browser()
            left = {**plain, "timeout": max(1, int((until - time.monotonic()) * 1000))}
            page = await self._web.render(url, left, page)
        tracked = await page_history.track(
            self._store, team, url, options, page.document, fresh=hit is None, found=context.discovered
        )
        previous = tracked.previous if tracked is not None else None
        made = await model_output.generate(
            self._llm.model,
            self._llm.missing,
            options,
            page.document,
            previous=previous,
            timeout_s=max(0.0, until - time.monotonic()),
        )
        made.warnings += left_out_warnings(options, {**page.failures, **made.failures})
        price = _price(page, options) + made.credits
        scrape_metadata = _ScrapeMetadata(context.scrape_id, price, queued_ms, None if hit is None else hit[1])
        body = encode(_document(page.document, options, scrape_metadata, tracked, made))
        version = tracked.version if tracked is not None else None
        stored = Stored(context.scrape_id, body, scrape_metadata.credits, page.final_url, version)
        entry = await self._entry(url, options, page.fetched) if hit is None else None
        learn = partial(search_index.entry, team, page.document, page.final_url, options, fresh=hit is None)
        found = await asyncio.to_thread(learn) if len(body) > _INDEXED_BYTES else learn()
        return Scraped(stored, page.links, entry, found)

    async def _fetch(self, url: str, options: Mapping[str, object], team: str) -> Page:
        """Fetch a page, or load it in a browser with the team's profile, which is saved once the page is loaded.

        Raises:
            PageFailure: It could not be fetched, or 409 if another session holds the profile's lock all the time.
        """
        if not option_that_needs_browser(options):
            return await self._web.scrape(url, options)
        profile = options.get("profile")
        if not isinstance(profile, Mapping):
            return await self._web.browse(url, options, BrowserIdentity())
        name = str(profile["name"])
        if profile.get("save_changes") is False:
            return await self._web.browse(url, options, BrowserIdentity(await self._profiles.load(team, name)))
        async with self._profiles.locked(team, name, number(options.get("timeout"), 60_000) / 1000):
            page = await self._web.browse(
                url, options, BrowserIdentity(await self._profiles.load(team, name), saves_profile=True)
            )
            if page.profile is not None:
                warning = await self._profiles.save(team, name, page.profile)
                return with_warning(page, warning) if warning else page
            return page

    async def _entry(
        self, url: str, options: Mapping[str, object], fetched: FetchedResponse | None
    ) -> page_cache.CacheEntry | None:
        """Return the cache entry of a response; None if it must not be cached."""
        if fetched is None or not page_cache.is_cacheable(url, fetched, options):
            return None
        await self._evict()
        if len(fetched.body) < _LARGE_BYTES:
            return page_cache.pack(url, options, fetched)
        return await asyncio.to_thread(page_cache.pack, url, options, fetched)

    async def check_credits(self, team: str, credits: int = 1) -> None:
        """Check that a running job may continue: its pages can cost more than was known at its start.

        Raises:
            PageFailure: The team's credits of this month are used up.
        """
        now, plan = self._clock.now(), self._config.plan(team).credits
        if await self._store.read(lambda db: accounts.used(db, team, now)) + credits > plan:
            raise PageFailure("INSUFFICIENT_CREDITS", f"All {plan} credits of this month are used up.", status=402)

    async def _evict(self) -> None:
        self._kept += 1
        if self._kept % _EVICT_EVERY == 0:
            await self._store.write(partial(page_cache.evict, max_pages=self._config.max_cached_pages))
            await self._store.write(partial(search_index.evict, max_pages=self._config.max_indexed_pages))


def failure_record(error: Exception) -> Failed:
    """Return a page's failure as a job records it; an unexpected exception is logged and affects only this page."""
    if isinstance(error, PageFailure):
        miss = error.code == "SCRAPE_LOCKDOWN_CACHE_MISS"
        return Failed(error.code, error.message, LOCKDOWN_MISS_CREDITS if miss else 0)
    _LOG.error("A page failed in an unforeseen way.", exc_info=error)
    return Failed("UNKNOWN_ERROR", f"An unexpected error occurred while scraping: {type(error).__name__}.")


@dataclass(frozen=True, slots=True)
class _ScrapeMetadata:
    """The metadata of a document about its own scrape."""

    scrape_id: str
    credits: int
    queued_ms: int | None
    #: When the cache stored the page; None for a page that was fetched.
    cached_at: float | None


def _document(
    made: Mapping[str, object],
    options: Mapping[str, object],
    scrape_metadata: _ScrapeMetadata,
    tracked: TrackingResult | None,
    by_model: ModelOutput,
) -> dict[str, object]:
    given = made.get("metadata")
    metadata: dict[str, object] = dict(given) if isinstance(given, dict) else {}
    metadata["scrapeId"] = scrape_metadata.scrape_id
    metadata["cacheState"] = "miss" if scrape_metadata.cached_at is None else "hit"
    if scrape_metadata.cached_at is not None:
        metadata["cachedAt"] = iso(scrape_metadata.cached_at)
    metadata["creditsUsed"] = scrape_metadata.credits
    metadata["concurrencyLimited"] = scrape_metadata.queued_ms is not None
    if scrape_metadata.queued_ms is not None:
        metadata["concurrencyQueueDurationMs"] = scrape_metadata.queued_ms
    document = model_output.add_to_document(made, by_model, options) | {"metadata": metadata}
    warnings = [made.get("warning"), *by_model.warnings]
    country = country_of(options)
    if country.code != DEFAULT_COUNTRY:
        warnings.append(_NO_PROXY_WARNING.format(country=country.code))
    if tracked is not None:
        warnings.append(tracked.warning)
        if tracked.found is not None:
            changes = {} if by_model.changes is None else {"json": by_model.changes}
            document["changeTracking"] = {**tracked.found, **changes}
    text = " ".join(str(warning) for warning in warnings if warning)
    return document | {"warning": text} if text else document


def _price(page: Page, options: Mapping[str, object]) -> int:
    if options.get("lockdown"):
        return LOCKDOWN_HIT_CREDITS
    return page.credits + (ZERO_DATA_RETENTION_CREDITS if options.get("zero_data_retention") else 0)


def _cache_miss(options: Mapping[str, object]) -> PageFailure:
    if options.get("lockdown"):
        return PageFailure(
            "SCRAPE_LOCKDOWN_CACHE_MISS", "Lockdown reads the cache only, and the page is not in it.", status=404
        )
    return PageFailure(
        "SCRAPE_NO_CACHED_DATA", "minAge reads the cache only, and no page there is old enough.", status=404
    )
