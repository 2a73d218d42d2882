"""One running job: as many pages in flight as it may have, each settled as it ends.

Imports: clock, records, scraping, store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from sqlite3 import Connection, Row
from typing import Protocol

from weblake.service.clock import Clock
from weblake.service.jobs import records
from weblake.service.jobs.records import Outcome, Todo
from weblake.service.jobs.scraping import Scraped, Scraper, failed
from weblake.service.store.database import Store


@dataclass(frozen=True, slots=True)
class Tools:
    """What every run works with."""

    store: Store
    clock: Clock
    scraper: Scraper


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a page is to its job."""

    outcome: Outcome
    #: The URLs that it led to, each with its depth.
    found: Sequence[tuple[str, int]] = ()
    #: The last place that was known when this was decided: a crawl that is resumed decides again in the same order.
    mark: int = 0


class Source(Protocol):
    """Where a run's pages come from, and what it does with what they lead to."""

    #: Pages in flight at most.
    width: int

    async def prepare(self) -> None:
        """Done once before the first page."""

    def take(self) -> Todo | None:
        """The next page, or None where none waits now."""

    async def refill(self) -> None:
        """Looks for pages that were queued meanwhile."""

    async def refuse(self, page: Todo) -> Outcome | None:
        """How the page ends before it is fetched at all, or None."""

    async def pause(self, page: Todo) -> None:
        """Waits as long as must lie between two pages."""

    def judge(self, page: Todo, scraped: Scraped) -> Verdict:
        """What the page is to the job."""

    def queued(self, pages: Sequence[Todo]) -> None:
        """Told of the places of the URLs that were found."""

    @property
    def drained(self) -> bool:
        """Whether the job may end only when no page waits in the database."""


class BatchSource:
    """The URLs of a batch, in the order in which they were given."""

    drained = True

    def __init__(self, tools: Tools, job_id: str, width: int) -> None:
        self._tools = tools
        self._job_id = job_id
        self._waiting: deque[Todo] = deque()
        self._last = 0
        self.width = width

    async def prepare(self) -> None:
        """Reads the queue."""
        await self.refill()

    def take(self) -> Todo | None:
        """The next URL."""
        return self._waiting.popleft() if self._waiting else None

    async def refill(self) -> None:
        """Reads what was appended."""
        more = await self._tools.store.read(partial(records.todo, job_id=self._job_id, after=self._last))
        self._waiting.extend(more)
        if more:
            self._last = more[-1].seq

    async def refuse(self, page: Todo) -> Outcome | None:
        """Never: the URLs were chosen by hand."""
        return None

    async def pause(self, page: Todo) -> None:
        """Never."""

    def judge(self, page: Todo, scraped: Scraped) -> Verdict:
        """Every page is a document."""
        return Verdict(scraped.stored)

    def queued(self, pages: Sequence[Todo]) -> None:
        """A batch finds nothing."""


def is_shutdown(error: BaseException) -> bool:
    """Whether the interpreter is going down: it then takes no work for threads, and that is no page's fault."""
    return isinstance(error, RuntimeError) and "cannot schedule new futures" in str(error)


class Run:
    """Drives one job to its end; cancelling its task stops it where it stands, and a new run goes on from there."""

    def __init__(self, tools: Tools, job: Row, source: Source, announce: Callable[[], None]) -> None:
        self._tools = tools
        self._job_id: str = job["id"]
        self._team: str = job["team"]
        self._options = records.decoded(job["options"])
        self._source = source
        self._announce = announce
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
                while len(flying) < self._source.width and (page := self._source.take()) is not None:
                    flying.add(asyncio.create_task(self._page(page)))
                if not flying:
                    if await self._tools.store.write(self._end):
                        return
                    await self._source.refill()
                    continue
                done, _ = await asyncio.wait({*flying, bell}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & flying:
                    task.result()
                flying -= done
                if bell in done:
                    self._appended.clear()
                    bell = asyncio.create_task(self._appended.wait())
                    await self._source.refill()
        finally:
            for task in (*flying, bell):
                task.cancel()
            await asyncio.gather(*flying, bell, return_exceptions=True)

    def _end(self, db: Connection) -> bool:
        return records.end(db, self._job_id, "completed", self._tools.clock.now(), drained=self._source.drained)

    async def _page(self, page: Todo) -> None:
        try:
            verdict, scraped = await self._scrape(page)
        except Exception as error:
            if is_shutdown(error):
                raise
            # One page never stops a job.
            verdict, scraped = Verdict(failed(error)), None
        now = self._tools.clock.now()

        def work(db: Connection) -> list[Todo] | None:
            if scraped is not None:
                scraped.keep(db, now)
            return records.settle(db, self._job_id, page, verdict.outcome, now, verdict.found, verdict.mark)

        added = await self._tools.store.write(work)
        self._source.queued(added or [])
        self._announce()

    async def _scrape(self, page: Todo) -> tuple[Verdict, Scraped | None]:
        refused = await self._source.refuse(page)
        if refused is not None:
            return Verdict(refused), None
        await self._source.pause(page)
        options = page.options if page.options is not None else self._options
        scraped = await self._tools.scraper.get(page.url, options, self._team)
        return self._source.judge(page, scraped), scraped
