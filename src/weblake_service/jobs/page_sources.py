"""The base of page sources, which supply the pages of a job, and the source of batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from weblake_service.jobs import page_queue
from weblake_service.jobs.page_outcomes import Outcome
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.jobs.scraper import Scraped
from weblake_service.store.database import Store

#: Maximum number of batch pages that are read ahead: a multiple of those in flight plus a constant.
_PREFETCH_FACTOR, _MIN_PREFETCH = 4, 40


@dataclass(frozen=True, slots=True)
class PageResult:
    """The outcome of a page for its job."""

    outcome: Outcome
    #: The URLs found on the page, each with its depth.
    found: Sequence[tuple[str, int]] = ()
    #: The last position known at this decision: a resumed crawl repeats the decisions in the same order.
    mark: int = 0


class PageSource:
    """Supplies the pages of a run, and processes the URLs that they link to; the URLs of a batch need none of it."""

    #: Whether the job may end only if no page is queued in the database.
    drained = True

    def __init__(self, store: Store, job_id: str, width: int) -> None:
        self._store = store
        self._job_id = job_id
        #: Maximum number of pages in flight, and of further ones that are in the browser or wait for it.
        self.width = width
        self.browser_width = 0

    async def prepare(self) -> None:
        """Do what is needed before the first page."""

    def take(self) -> QueuedPage | None:
        """Return the next page, or None if none is available."""
        raise NotImplementedError

    async def refill(self) -> bool:
        """Read queued pages; return whether there were any."""
        return False

    def on_appended(self) -> None:
        """Notify the source that pages may have been queued."""

    async def blocked_outcome(self, page: QueuedPage) -> Outcome | None:
        """Return the outcome of a page that must not be fetched, or None."""
        return None

    async def pause(self) -> None:
        """Wait for the delay between two pages."""

    async def evaluate(self, page: QueuedPage, found: Scraped | Outcome) -> PageResult:
        """Return the outcome of a page for the job, before anything of it is stored."""
        return PageResult(found.stored if isinstance(found, Scraped) else found)

    async def on_queued(self, pages: Sequence[QueuedPage]) -> None:
        """Notify the source of the positions of URLs that were found."""


class BatchSource(PageSource):
    """The URLs of a batch in request order; only a few of them are in memory at a time."""

    def __init__(self, store: Store, job_id: str, width: int) -> None:
        super().__init__(store, job_id, width)
        self._waiting: deque[QueuedPage] = deque()
        self._last = 0
        self._more = True

    def take(self) -> QueuedPage | None:
        """Return the next URL, or None."""
        return self._waiting.popleft() if self._waiting else None

    async def refill(self) -> bool:
        """Read the next URLs; return whether there were any."""
        if not self._more:
            return False
        limit = max(_MIN_PREFETCH, _PREFETCH_FACTOR * self.width)
        # Reset before the read: pages appended during it are read by the next one.
        self._more = False
        found = await self._store.read(partial(page_queue.waiting, job_id=self._job_id, after=self._last, limit=limit))
        self._more = self._more or len(found) == limit
        if found:
            self._waiting.extend(found)
            self._last = found[-1].place
        return bool(found)

    def on_appended(self) -> None:
        """Record that there are more URLs to read."""
        self._more = True
