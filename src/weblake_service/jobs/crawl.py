"""The page source of a crawl: the start URL, the sitemaps, and the links of scraped pages.

The frontier's own state is never stored. It follows from the URLs that were offered to it, in order, and those are rows
with what became of them: a resumed crawl offers them again and passes over what is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from sqlite3 import Connection

from weblake_service.clock import Clock
from weblake_service.jobs import page_queue
from weblake_service.jobs.page_outcomes import BlockedByRobots, Dropped, Outcome
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.jobs.page_sources import PageResult
from weblake_service.jobs.scraper import Scraped
from weblake_service.store.database import Store
from weblake_service.web.interface import Web

#: Pages of a crawl that names no limit.
DEFAULT_LIMIT = 10_000
#: Seconds between two pages that a robots.txt can demand at most.
MOST_DELAY = 30.0
#: URLs read from the sitemaps at most.
_SITEMAP_URLS = 50_000
#: URLs noted for a crawl at most, as a multiple of its limit and a number on top: a calendar has links without end.
_ROOM, _SPARE = 5, 2000
#: Links of one page that are looked at, and URLs that are told to the frontier before others get a turn.
_LINKS, _AT_ONCE = 10_000, 200


class CrawlSource:
    """One crawl's queue."""

    #: What lies beyond the limit waits for ever.
    drained = False

    def __init__(
        self, store: Store, clock: Clock, web: Web, job_id: str, url: str, plan: Mapping[str, object], width: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._web = web
        self._job_id = job_id
        self._start = url
        self._sitemap = str(plan.get("sitemap", "include"))
        self._obeys = plan.get("ignore_robots_txt") is not True
        agent, delay, limit = (plan.get(name) for name in ("robots_user_agent", "delay", "limit"))
        self._agent = agent if isinstance(agent, str) else None
        self._delay = float(delay) if isinstance(delay, int | float) else 0.0
        self._most = _ROOM * (limit if isinstance(limit, int) else DEFAULT_LIMIT) + _SPARE
        self._next_start = 0.0
        self._frontier = web.frontier(url, plan)
        #: What the frontier has accepted and not given out, in its order.
        self._places: deque[QueuedPage] = deque()
        self._noted: set[str] = {url}
        self._last = 0
        self.width = width

    async def prepare(self) -> None:
        """Fill the queue: with what an earlier run left, or with the start and the sitemaps."""
        rows = await self._store.read(partial(page_queue.waiting, job_id=self._job_id, with_done=True))
        if rows:
            self._noted.update(row.url for row in rows)
            await self._replay(rows)
        else:
            for some in _batches(await self._enqueue_start()):
                self.queued(some)
                await asyncio.sleep(0)
        if self._obeys:
            wanted = await self._web.crawl_delay(self._start, self._agent)
            self._delay = max(self._delay, min(wanted or 0.0, MOST_DELAY))
        if self._delay:
            self.width = 1

    def take(self) -> QueuedPage | None:
        """Return the next URL that is not done."""
        while (taken := self._frontier.take()) is not None:
            url, _ = taken
            place = self._places.popleft()
            if not place.done:
                return replace(place, url=url)
            if not place.counts:
                self._frontier.uncount()
        return None

    async def refill(self) -> bool:
        """All that is queued is known: nothing is ever appended to a crawl."""
        return False

    def appended(self) -> None:
        """Never."""

    async def refuse(self, page: QueuedPage) -> Outcome | None:
        """Blocked, where robots.txt says so."""
        if not self._obeys or await self._web.allowed(page.url, self._agent):
            return None
        self._frontier.uncount()
        return BlockedByRobots(await self._web.robots_note(page.url))

    async def pause(self) -> None:
        """Keep the time between two pages; the width is 1 where there is one."""
        loop = asyncio.get_running_loop()
        if self._delay:
            await asyncio.sleep(max(0.0, self._next_start - loop.time()))
            self._next_start = loop.time() + self._delay

    def judge(self, page: QueuedPage, scraped: Scraped) -> PageResult:
        """Return a document with the links that may be visited, unless redirects led to another page of this crawl."""
        final = scraped.stored.final_url
        if not self._frontier.landed(page.url, final):
            return PageResult(Dropped(final), mark=self._last)
        links = () if self._sitemap == "only" else self._new_urls(scraped.links[:_LINKS], page.depth + 1)
        return PageResult(scraped.stored, list(links), self._last)

    def queued(self, pages: Sequence[QueuedPage]) -> None:
        """Offer URLs to the frontier, now that they are recorded; what it does not want is never taken."""
        for page in pages:
            if self._frontier.offer(page.url, page.depth):
                self._places.append(page)
            self._last = page.place

    async def _replay(self, rows: Sequence[QueuedPage]) -> None:
        """Tell the frontier what an earlier run told it, in the same order: each answer depends on those before."""
        landed = deque(sorted((row for row in rows if row.final_url is not None), key=lambda row: row.mark))
        for some in _batches(rows):
            for row in some:
                self.queued([row])
                while landed and landed[0].mark <= row.place:
                    known = landed.popleft()
                    self._frontier.landed(known.url, known.final_url)
            await asyncio.sleep(0)

    async def _enqueue_start(self) -> list[QueuedPage]:
        offers = [(self._start, 0)]
        if self._sitemap != "skip":
            offers += self._new_urls(await self._web.sitemap(self._start, _SITEMAP_URLS), 0)
        now = self._clock.now()

        def work(db: Connection) -> list[QueuedPage]:
            page_queue.add(db, self._job_id, offers, now)
            return page_queue.waiting(db, self._job_id)

        return await self._store.write(work)

    def _new_urls(self, urls: Iterable[str], depth: int) -> Iterable[tuple[str, int]]:
        """Return the URLs that the frontier could want and that were not noted before, as far as there is room for them."""
        for url in urls:
            if url not in self._noted and len(self._noted) < self._most and self._frontier.wants(url, depth):
                self._noted.add(url)
                yield url, depth


def _batches(pages: Sequence[QueuedPage]) -> Iterable[Sequence[QueuedPage]]:
    """Return the pages in slices: a URL takes some 50 microseconds, in which nobody else is served."""
    return (pages[at : at + _AT_ONCE] for at in range(0, len(pages), _AT_ONCE))
