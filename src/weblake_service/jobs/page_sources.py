"""The interface of page sources, which supply the pages of a job, and the source of batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from weblake_service.jobs import page_queue
from weblake_service.jobs.page_outcomes import Outcome
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.jobs.scraper import Scraped
from weblake_service.store.database import Store

#: Pages of a batch that are read ahead, as a multiple of those in flight and a number on top.
_AHEAD, _AT_LEAST = 4, 40


@dataclass(frozen=True, slots=True)
class PageResult:
    """What a page is to its job."""

    outcome: Outcome
    #: The URLs that it led to, each with its depth.
    found: Sequence[tuple[str, int]] = ()
    #: The last place that was known when this was decided: a crawl that is resumed decides again in the same order.
    mark: int = 0


class PageSource(Protocol):
    """Where a run's pages come from, and what it does with what they lead to."""

    #: Pages in flight at most.
    width: int

    async def prepare(self) -> None:
        """Done once before the first page."""

    def take(self) -> QueuedPage | None:
        """Return the next page, or None where none is at hand."""

    async def refill(self) -> bool:
        """Read pages that are queued; says whether there were any."""

    def appended(self) -> None:
        """Told that pages may have been queued meanwhile."""

    async def refuse(self, page: QueuedPage) -> Outcome | None:
        """Return how the page ends before it is fetched at all, or None."""

    async def pause(self) -> None:
        """Wait as long as must lie between two pages."""

    def judge(self, page: QueuedPage, scraped: Scraped) -> PageResult:
        """What the page is to the job."""

    def queued(self, pages: Sequence[QueuedPage]) -> None:
        """Told of the places of the URLs that were found."""

    @property
    def drained(self) -> bool:
        """Return whether the job may end only when no page waits in the database."""


class BatchSource:
    """The URLs of a batch, in the order in which they were given; few of them are in memory at a time."""

    drained = True

    def __init__(self, store: Store, job_id: str, width: int) -> None:
        self._store = store
        self._job_id = job_id
        self._waiting: deque[QueuedPage] = deque()
        self._last = 0
        self._more = True
        self.width = width

    async def prepare(self) -> None:
        """Nothing: the first pages are read when they are taken."""

    def take(self) -> QueuedPage | None:
        """Return the next URL."""
        return self._waiting.popleft() if self._waiting else None

    async def refill(self) -> bool:
        """Read the next URLs."""
        if not self._more:
            return False
        most = max(_AT_LEAST, _AHEAD * self.width)
        # Before the read: what is appended while it goes on is read by the next one.
        self._more = False
        found = await self._store.read(partial(page_queue.waiting, job_id=self._job_id, after=self._last, most=most))
        self._more = self._more or len(found) == most
        if found:
            self._waiting.extend(found)
            self._last = found[-1].place
        return bool(found)

    def appended(self) -> None:
        """There is more to read."""
        self._more = True

    async def refuse(self, page: QueuedPage) -> Outcome | None:
        """Never: the URLs were chosen by hand."""
        return None

    async def pause(self) -> None:
        """Never."""

    def judge(self, page: QueuedPage, scraped: Scraped) -> PageResult:
        """Every page is a document."""
        return PageResult(scraped.stored)

    def queued(self, pages: Sequence[QueuedPage]) -> None:
        """A batch finds nothing."""
