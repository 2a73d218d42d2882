"""One running job: as many pages in flight as it may have, each settled as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Connection, Row

from weblake_service import ids
from weblake_service.clock import Clock
from weblake_service.faults import Faults
from weblake_service.jobs import job_records
from weblake_service.jobs.page_outcomes import Dropped, Outcome
from weblake_service.jobs.page_queue import Todo
from weblake_service.jobs.page_sources import Source, Verdict
from weblake_service.jobs.scraper import Scraped, Scraper, Turn, failed
from weblake_service.store.database import Store


@dataclass(frozen=True, slots=True)
class Tools:
    """What every run works with."""

    store: Store
    clock: Clock
    scraper: Scraper
    faults: Faults


def is_shutdown(error: BaseException) -> bool:
    """Whether the interpreter is going down: it then takes no work for threads, and that is no page's fault."""
    return isinstance(error, RuntimeError) and "cannot schedule new futures" in str(error)


class Run:
    """Drives one job to its end; cancelling its task stops it where it stands, and a new run goes on from there.

    Args:
        tools: The parts of the service.
        job: The job's row.
        source: Where its pages come from.
        announce: Called after every change that may have queued a webhook.
        at_once: Pages that surely need not wait for others of the job; those behind them are said to have waited.
        in_order: Settles pages in the order in which they were taken, and takes nothing from the cache that was stored
            after the job began: what comes of the job then does not depend on how long each page took.
    """

    def __init__(
        self,
        tools: Tools,
        job: Row,
        source: Source,
        announce: Callable[[], None],
        *,
        at_once: int,
        in_order: bool = False,
    ) -> None:
        self._tools = tools
        self._job_id: str = job["id"]
        self._kind: str = job["kind"]
        self._team: str = job["team"]
        self._options = job_records.decoded(job["options"])
        self._source = source
        self._announce = announce
        self._cached_before: float | None = job["created"] if in_order else None
        self._in_order = in_order
        self._at_once = at_once
        #: Set when the page that was taken last is settled.
        self._settled: asyncio.Event | None = None
        self._appended = asyncio.Event()

    def wake(self) -> None:
        """Says that pages were appended."""
        self._appended.set()

    async def run(self) -> None:
        """Returns when the job has ended; raises what the database raises."""
        flying: set[asyncio.Task[None]] = set()
        bell = asyncio.create_task(self._appended.wait())
        try:
            await self._source.prepare()
            while True:
                await self._fill(flying)
                if not flying:
                    if await self._tools.store.write(self._end):
                        return
                    self._source.appended()
                    continue
                done, _ = await asyncio.wait({*flying, bell}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & flying:
                    task.result()
                flying -= done
                if bell in done:
                    self._appended.clear()
                    bell = asyncio.create_task(self._appended.wait())
                    self._source.appended()
        finally:
            for task in (*flying, bell):
                task.cancel()
            await asyncio.gather(*flying, bell, return_exceptions=True)

    async def _fill(self, flying: set[asyncio.Task[None]]) -> None:
        while len(flying) < self._source.width:
            page = self._source.take()
            if page is not None:
                flying.add(asyncio.create_task(self._page(page, *self._places())))
            elif not await self._source.refill():
                return

    def _places(self) -> tuple[asyncio.Event | None, asyncio.Event | None]:
        """What a page waits for before it is settled, and what it sets then; nothing where order does not matter."""
        if not self._in_order:
            return None, None
        before, self._settled = self._settled, asyncio.Event()
        return before, self._settled

    def _end(self, db: Connection) -> bool:
        return job_records.end(db, self._job_id, "completed", self._tools.clock.now(), drained=self._source.drained)

    async def _page(self, page: Todo, before: asyncio.Event | None, settled: asyncio.Event | None) -> None:
        try:
            found = await self._scrape(page)
            if before is not None:
                await before.wait()
            verdict = self._source.judge(page, found) if isinstance(found, Scraped) else Verdict(found)
        except Exception as error:
            if is_shutdown(error):
                raise
            # One page never stops a job.
            found = failed(error)
            if before is not None:
                await before.wait()
            verdict = Verdict(found)
        await self._settle(page, verdict, found if isinstance(found, Scraped) else None)
        if settled is not None:
            settled.set()

    async def _settle(self, page: Todo, verdict: Verdict, scraped: Scraped | None) -> None:
        now = self._tools.clock.now()

        def work(db: Connection) -> list[Todo] | None:
            if scraped is not None:
                scraped.keep(db, now)
            return job_records.settle(db, self._job_id, page, verdict.outcome, now, verdict.found, verdict.mark)

        added = await self._tools.store.write(work)
        self._source.queued(added or [])
        self._announce()

    async def _scrape(self, page: Todo) -> Scraped | Outcome:
        refused = await self._source.refuse(page)
        if refused is not None:
            return refused
        await self._source.pause()
        if await self._tools.faults.meet(page.url, self._kind, self._job_id):
            return Dropped(page.url)
        turn = Turn(
            ids.scrape_id(self._job_id, page.place),
            self._job_id,
            page.queued if page.ahead >= min(self._at_once, self._source.width) else None,
            self._cached_before,
            found=self._kind == "crawl",
        )
        options = page.options if page.options is not None else self._options
        return await self._tools.scraper.get(page.url, options, self._team, turn)
