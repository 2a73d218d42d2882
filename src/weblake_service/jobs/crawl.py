"""The page source of a crawl: the start URL, the sitemaps, and the links of scraped pages.

The frontier's state is never stored. It is determined by the URLs that were offered to it, in order, and these are
database rows with their outcomes: a resumed crawl offers them again and skips the finished ones
(docs/decisions/022-crawls.md).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from sqlite3 import Connection, Row
from typing import TypeVar

from weblake_service.jobs import job_records, page_queue
from weblake_service.jobs.job_run import JobServices
from weblake_service.jobs.page_outcomes import BlockedByRobots, Dropped, Failed, Outcome
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.jobs.page_sources import PageResult, PageSource
from weblake_service.jobs.scraper import Scraped

#: Default page limit of a crawl.
DEFAULT_LIMIT = 10_000
#: Maximum crawl delay of a robots.txt that is respected, in seconds.
MAX_DELAY_S = 30.0
#: Maximum number of URLs read from the sitemaps.
_MAX_SITEMAP_URLS = 50_000
#: Maximum number of URLs recorded for a crawl: a multiple of its limit plus a constant. A calendar has links without
#: end.
_RECORDED_PER_PAGE, _RECORDED_SPARE = 5, 2000
#: Maximum links of one page that are examined.
_MAX_LINKS = 10_000
#: Seconds for which the URLs of a crawl may occupy the event loop without a break; one long URL takes 3 ms.
_STEP_S = 0.001


_T = TypeVar("_T")


class CrawlSource(PageSource):
    """The queue of one crawl."""

    #: URLs beyond the limit are never taken.
    drained = False

    def __init__(self, tools: JobServices, job: Row, plan: Mapping[str, object], width: int) -> None:
        super().__init__(tools.store, job["id"], width)
        self._tools = tools
        self._team: str = job["team"]
        url: str = job["url"]
        self._start = url
        self._sitemap = str(plan.get("sitemap", "include"))
        self._obeys = plan.get("ignore_robots_txt") is not True
        agent, delay, limit = (plan.get(name) for name in ("robots_user_agent", "delay", "limit"))
        self._agent = agent if isinstance(agent, str) else None
        self._delay = float(delay) if isinstance(delay, int | float) else 0.0
        self._most = _RECORDED_PER_PAGE * (limit if isinstance(limit, int) else DEFAULT_LIMIT) + _RECORDED_SPARE
        self._next_start = 0.0
        self._frontier = self._tools.web.frontier(url, plan)
        #: URLs that the frontier has accepted and not yet returned, in its order.
        self._places: deque[QueuedPage] = deque()
        self._noted: set[str] = {url}
        #: Set when the start page is finished: until then its redirect may still widen the scope.
        self._scope_known = asyncio.Event()
        self._last = 0
        self._offering = asyncio.Lock()

    async def prepare(self) -> None:
        """Fill the queue with the URLs of an earlier run, or with the start URL and the sitemaps."""
        rows = await self._store.read(partial(page_queue.waiting, job_id=self._job_id, with_done=True))
        if rows:
            self._noted.update(row.url for row in rows)
            if rows[0].done:
                self._scope_known.set()
            await self._replay(rows)
        else:
            await self.on_queued(await self._enqueue_start())
        if self._obeys:
            wanted = await self._tools.web.crawl_delay(self._start, self._agent)
            self._delay = max(self._delay, min(wanted or 0.0, MAX_DELAY_S))
        if self._delay:
            self.width, self.browser_width = 1, 0

    def take(self) -> QueuedPage | None:
        """Return the next unfinished URL, or None."""
        while (taken := self._frontier.take()) is not None:
            url, _ = taken
            place = self._places.popleft()
            if not place.done:
                return replace(place, url=url)
            if not place.counts:
                self._frontier.uncount()
        return None

    async def blocked_outcome(self, page: QueuedPage) -> Outcome | None:
        """Return the outcome "blocked" if robots.txt forbids the page, otherwise None."""
        return await self._robots_outcome(page.url)

    async def pause(self) -> None:
        """Wait for the crawl delay between two pages; with a crawl delay, one page is in flight at a time."""
        loop = asyncio.get_running_loop()
        if self._delay:
            await asyncio.sleep(max(0.0, self._next_start - loop.time()))
            self._next_start = loop.time() + self._delay

    async def evaluate(self, page: QueuedPage, found: Scraped | Outcome) -> PageResult:
        """Return the document with the links to visit, or the outcome of a page that is not one of this crawl."""
        try:
            if not isinstance(found, Scraped):
                return PageResult(found, mark=self._last)
            outcome = await self._redirect_outcome(page, found.stored.final_url)
            return await self._result(page, found) if outcome is None else PageResult(outcome, mark=self._last)
        finally:
            if page.place == 1:
                self._scope_known.set()

    async def on_queued(self, pages: Sequence[QueuedPage]) -> None:
        """Offer recorded URLs to the frontier, in the order of the calls; it never returns those that it rejects."""
        async with self._offering:
            async for page in _with_breaks(pages):
                self._offer(page)

    def _offer(self, page: QueuedPage) -> None:
        if self._frontier.offer(page.url, page.depth):
            self._places.append(page)
        self._last = page.place

    async def _result(self, page: QueuedPage, scraped: Scraped) -> PageResult:
        """Return the document with the links to visit, or `Dropped` if redirects led to another page of this crawl."""
        final = scraped.stored.final_url
        if not self._frontier.record_final_url(page.url, final):
            return PageResult(Dropped(final), mark=self._last)
        mark, links = self._last, () if self._sitemap == "only" else scraped.links[:_MAX_LINKS]
        return PageResult(scraped.stored, await self._new_urls(links, page.depth + 1), mark)

    async def _redirect_outcome(self, page: QueuedPage, final: str) -> Outcome | None:
        """Return the outcome of a page that was answered by a URL that the crawl must not visit, or None."""
        if final == page.url:
            return None
        if page.place > 1:
            await self._scope_known.wait()
        if problem := self._frontier.redirect_problem(page.url, final, page.depth):
            message = f"{page.url} redirects to {final}, which the crawl must not visit: {problem}."
            return Failed("CRAWL_REDIRECT_NOT_ALLOWED", message)
        return await self._robots_outcome(final)

    async def _robots_outcome(self, url: str) -> Outcome | None:
        if not self._obeys or await self._tools.web.allowed(url, self._agent):
            return None
        self._frontier.uncount()
        return BlockedByRobots(await self._tools.web.robots_note(url))

    async def _replay(self, rows: Sequence[QueuedPage]) -> None:
        """Offer the URLs of an earlier run to the frontier in the same order: each result depends on the earlier
        offers.
        """
        landed = deque(sorted((row for row in rows if row.final_url is not None), key=lambda row: row.mark))
        await self._frontier.match_paths([row.url for row in rows])
        async for row in _with_breaks(rows):
            self._offer(row)
            while landed and landed[0].mark <= row.place:
                known = landed.popleft()
                self._frontier.record_final_url(known.url, known.final_url)

    async def _enqueue_start(self) -> list[QueuedPage]:
        offers, warning = [(self._start, 0)], ""
        if self._sitemap != "skip":
            async with self._tools.scraper.slot(self._team, self._start, self._job_id):
                listed, warning = await self._tools.web.sitemap(self._start, _MAX_SITEMAP_URLS)
            offers += await self._new_urls(listed, 0)
        now = self._tools.clock.now()

        def work(db: Connection) -> list[QueuedPage]:
            # The job may have been cancelled meanwhile: nothing would delete its pages any more.
            if job_records.find_running(db, self._job_id) is None:
                return []
            job_records.add_warning(db, self._job_id, warning)
            page_queue.add(db, self._job_id, offers, now)
            return page_queue.waiting(db, self._job_id)

        return await self._store.write(work)

    async def _new_urls(self, urls: Sequence[str], depth: int) -> list[tuple[str, int]]:
        """Return the URLs that the frontier could accept and that are not yet recorded, up to the maximum number."""
        found: list[tuple[str, int]] = []
        urls = await self._frontier.match_paths([url for url in urls if url not in self._noted])
        async for url in _with_breaks(urls):
            if url not in self._noted and len(self._noted) < self._most and self._frontier.wants(url, depth):
                self._noted.add(url)
                found.append((url, depth))
        return found


async def _with_breaks(items: Sequence[_T]) -> AsyncIterator[_T]:
    """Yield the items, and let the event loop run between them."""
    began = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - began > _STEP_S:
            await asyncio.sleep(0)
            began = time.monotonic()
