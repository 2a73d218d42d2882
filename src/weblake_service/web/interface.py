"""The interface to the web that jobs and routes use; tests substitute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from weblake_service.browser.browser_identity import BrowserIdentity
from weblake_service.files.upload import Upload
from weblake_service.jobs.page_fetcher import FreshPage
from weblake_service.web.fetch import FetchedResponse


class CrawlQueue(Protocol):
    """Which URLs a crawl visits, and in which order."""

    def offer(self, url: str, depth: int) -> bool:
        """Return whether the URL is to be visited and was not offered before."""

    def wants(self, url: str, depth: int) -> bool:
        """Return whether the options let the crawl visit the URL, offered before or not."""

    def take(self) -> tuple[str, int] | None:
        """Return the next URL and its depth, in the order of the offers; None where none waits or the limit is reached."""

    def landed(self, url: str, final_url: str | None = None) -> bool:
        """Told where a URL's redirects led; False where that is another page of this crawl."""

    def uncount(self) -> None:
        """Give back the place of a taken URL that was not fetched."""


class ParsedFile(Protocol):
    """What becomes of an uploaded file."""

    @property
    def document(self) -> dict[str, object]:
        """Return the document in its wire form, without a scrape id."""

    @property
    def credits(self) -> int:
        """What it costs."""


class Web(Protocol):
    """What the service asks of the web."""

    async def scrape(self, url: str, options: Mapping[str, object]) -> FreshPage:
        """Fetch a page and make it a document; raises PageFailure."""

    async def browse(self, url: str, options: Mapping[str, object], visitor: BrowserIdentity) -> FreshPage:
        """Load a page in a browser and make it a document; raises PageFailure."""

    async def remake(self, url: str, options: Mapping[str, object], fetched: FetchedResponse) -> FreshPage:
        """Make a document of what a URL answered before; raises PageFailure."""

    async def parse(self, read: Callable[[], Upload], options: Mapping[str, object], timeout_s: float) -> ParsedFile:
        """Make a document of an uploaded file, which is read when its turn has come; raises PageFailure."""

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        """Return whether robots.txt lets us fetch the URL."""

    async def robots_note(self, url: str) -> str:
        """Return why nothing there may be fetched, where robots.txt could not be read; empty where it was."""

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        """Seconds that the site wants between two pages."""

    async def sitemap(self, url: str, limit: int) -> list[str]:
        """Return the URLs in the site's sitemaps."""

    def frontier(self, url: str, options: Mapping[str, object]) -> CrawlQueue:
        """Return the queue of a crawl that begins at a URL."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post to a webhook's receiver and return its status; private addresses only where they are allowed."""

    def forget(self) -> None:
        """Forget what it remembers of sites, such as their robots.txt."""

    async def aclose(self) -> None:
        """Close all connections."""
