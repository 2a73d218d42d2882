"""Runs one scrape job: keeps a bounded number of pages in flight and records each result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from sqlite3 import Connection, Row

from weblake_service import ids
from weblake_service.clock import Clock
from weblake_service.config import ServiceConfig
from weblake_service.fair_queue import TEAM
from weblake_service.faults import ActiveFaults
from weblake_service.jobs import job_records
from weblake_service.jobs.page_outcomes import Dropped, Outcome, Stored
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.jobs.page_sources import PageResult, PageSource
from weblake_service.jobs.scraper import ScrapeContext, Scraped, Scraper, failure_record
from weblake_service.llm.openai_endpoint import LanguageModel
from weblake_service.page_failure import own_limit
from weblake_service.store.database import Store
from weblake_service.web.http_web import HttpWeb
from weblake_service.web.redirect_chain import options_for


@dataclass(frozen=True, slots=True)
class JobServices:
    """The services that every run uses."""

    store: Store
    clock: Clock
    scraper: Scraper
    faults: ActiveFaults
    web: HttpWeb
    config: ServiceConfig
    llm: LanguageModel


def is_shutdown(error: BaseException) -> bool:
    """Return whether the interpreter is shutting down: it then rejects work for threads, and no page has failed."""
    return isinstance(error, RuntimeError) and "cannot schedule new futures" in str(error)


def is_service_failure(error: BaseException) -> bool:
    """Return whether the service is shutting down or at one of its limits, so that no page has failed."""
    return is_shutdown(error) or bool(own_limit(error))


class JobRun:
    """Runs one job to its end; cancelling its task stops it immediately, and a new run continues from there.

    Args:
        tools: The parts of the service.
        job: The job's row.
        source: The source of its pages.
        announce: Called after every change that may have queued a webhook.
        at_once: Number of pages that do not wait for other pages of the job; later ones are reported as queued.
        in_order: Finishes pages in the order in which they were taken, and uses no cache entry that was stored after
            the job began, so that the result does not depend on how long each page takes.
    """

    def __init__(
        self,
        tools: JobServices,
        job: Row,
        source: PageSource,
        announce: Callable[[], None],
        *,
        at_once: int,
        in_order: bool = False,
    ) -> None:
        self._tools = tools
        self._job_id: str = job["id"]
        self._kind: str = job["kind"]
        self._team: str = job["team"]
        self._url: str = job["url"]
        self._options = job_records.decode_object(job["options"])
        self._source = source
        self._announce = announce
        self._cached_before: float | None = job["created"] if in_order else None
        self._in_order = in_order
        self._at_once = at_once
        #: Set when the last taken page is finished.
        self._finished: asyncio.Event | None = None
        self._appended = asyncio.Event()
        #: The positions of the pages that are in the browser or wait for it.
        self._in_browser: set[int] = set()

    def wake(self) -> None:
        """Notify the run of appended pages."""
        self._appended.set()

    async def run(self) -> None:
        """Run until the job has ended; database errors and limits of the service are raised."""
        TEAM.set(self._team)
        in_flight: set[asyncio.Task[None]] = set()
        bell = asyncio.create_task(self._appended.wait())
        try:
            await self._source.prepare()
            while True:
                await self._start_pages(in_flight)
                if not in_flight:
                    if await self._tools.store.write(self._complete):
                        return
                    self._source.on_appended()
                    continue
                done, _ = await asyncio.wait({*in_flight, bell}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & in_flight:
                    task.result()
                in_flight -= done
                if bell in done:
                    self._appended.clear()
                    bell = asyncio.create_task(self._appended.wait())
                    self._source.on_appended()
        finally:
            for task in (*in_flight, bell):
                task.cancel()
            await asyncio.gather(*in_flight, bell, return_exceptions=True)

    async def _start_pages(self, in_flight: set[asyncio.Task[None]]) -> None:
        while len(in_flight) - min(len(self._in_browser), self._source.browser_width) < self._source.width:
            page = self._source.take()
            if page is not None:
                in_flight.add(asyncio.create_task(self._process_page(page, *self._page_order())))
            elif not await self._source.refill():
                return

    def _on_browser(self, place: int) -> None:
        """Let another page start: one that needs no browser must not wait behind this one."""
        self._in_browser.add(place)
        self._appended.set()

    def _page_order(self) -> tuple[asyncio.Event | None, asyncio.Event | None]:
        """Return the event that a page waits for before it is finished, and the event that it then sets; None without
        order.
        """
        if not self._in_order:
            return None, None
        before, self._finished = self._finished, asyncio.Event()
        return before, self._finished

    def _complete(self, db: Connection) -> bool:
        return job_records.end(db, self._job_id, "completed", self._tools.clock.now(), drained=self._source.drained)

    async def _process_page(
        self, page: QueuedPage, before: asyncio.Event | None, finished: asyncio.Event | None
    ) -> None:
        try:
            found = await self._scrape(page)
            if before is not None:
                await before.wait()
            verdict = await self._source.evaluate(page, found)
        except Exception as error:
            if is_service_failure(error):
                raise
            # A failing page never stops its job.
            found = failure_record(error)
            if before is not None:
                await before.wait()
            verdict = await self._source.evaluate(page, found)
        finally:
            self._in_browser.discard(page.place)
        await self._finish_page(page, verdict, found if isinstance(found, Scraped) else None)
        if finished is not None:
            finished.set()

    async def _finish_page(self, page: QueuedPage, verdict: PageResult, scraped: Scraped | None) -> None:
        now = self._tools.clock.now()

        def work(db: Connection) -> list[QueuedPage] | None:
            if scraped is not None and isinstance(verdict.outcome, Stored | Dropped):
                scraped.keep(db, now)
            return job_records.finish_page(db, self._job_id, page, verdict.outcome, now, verdict.found, verdict.mark)

        added = await self._tools.store.write(work)
        await self._source.on_queued(added or [])
        self._announce()

    async def _scrape(self, page: QueuedPage) -> Scraped | Outcome:
        refused = await self._source.blocked_outcome(page)
        if refused is not None:
            return refused
        await self._source.pause()
        if await self._tools.faults.apply_to_page(page.url, self._kind, self._job_id):
            return Dropped(page.url)
        context = ScrapeContext(
            ids.scrape_id(self._job_id, page.place),
            self._job_id,
            page.queued if page.pages_ahead >= min(self._at_once, self._source.width) else None,
            self._cached_before,
            discovered=self._kind == "crawl",
            on_browser=partial(self._on_browser, page.place),
        )
        options = page.options if page.options is not None else self._options
        if self._kind == "crawl":
            options = options_for(page.url, options, [self._url])
        return await self._tools.scraper.get(page.url, options, self._team, context)
