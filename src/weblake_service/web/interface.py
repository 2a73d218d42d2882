"""The interface to the web that jobs and routes use; tests substitute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from weblake_service.browser.browser_identity import BrowserIdentity
from weblake_service.files.upload import Upload
from weblake_service.jobs.page_fetcher import FreshPage
from weblake_service.web.fetch import FetchedResponse


class CrawlQueue(Protocol):
    """The frontier of a crawl: which URLs it visits, and in which order."""

    def offer(self, url: str, depth: int) -> bool:
        """Offer a URL; return whether it is new and will be visited."""

    def wants(self, url: str, depth: int) -> bool:
        """Return whether the options allow the crawl to visit the URL, whether or not it was offered before."""

    async def match_paths(self, urls: Sequence[str]) -> Sequence[str]:
        """Return the URLs without those that costly path patterns do not allow; call it before `wants` or `offer`."""

    def take(self) -> tuple[str, int] | None:
        """Return the next URL and its depth, in the order of the offers; None if there is none or at the limit."""

    def redirect_problem(self, url: str, final_url: str, depth: int) -> str:
        """Return why a visited URL must not be answered by its final URL; empty if it may."""

    def record_final_url(self, url: str, final_url: str | None = None) -> bool:
        """Record the final URL of a visited URL; return False if it is another page of this crawl."""

    def uncount(self) -> None:
        """Do not count a URL that was taken but not fetched."""


class ParsedFile(Protocol):
    """A converted uploaded file."""

    @property
    def document(self) -> dict[str, object]:
        """Return the document in its wire form, without a scrape id."""

    @property
    def credits(self) -> int:
        """Return the price in credits."""


class Web(Protocol):
    """The service's access to the web."""

    async def scrape(self, url: str, options: Mapping[str, object]) -> FreshPage:
        """Fetch a page and return it as a document; raises PageFailure."""

    async def browse(self, url: str, options: Mapping[str, object], visitor: BrowserIdentity) -> FreshPage:
        """Load a page in a browser and return it as a document; raises PageFailure."""

    async def remake(self, url: str, options: Mapping[str, object], fetched: FetchedResponse) -> FreshPage:
        """Make a document from an earlier response of a URL; raises PageFailure."""

    async def parse(self, read: Callable[[], Upload], options: Mapping[str, object], timeout_s: float) -> ParsedFile:
        """Make a document from an uploaded file, which is read when a converter slot is free; raises PageFailure."""

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        """Return whether robots.txt allows the URL."""

    async def robots_note(self, url: str) -> str:
        """Return why the site's URLs must not be fetched, if its robots.txt could not be read; otherwise empty."""

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        """Return the site's crawl delay in seconds, or None."""

    async def sitemap(self, url: str, limit: int) -> tuple[list[str], str]:
        """Return the URLs in the site's sitemaps, and a warning that names those that could not be read in full."""

    def frontier(self, url: str, options: Mapping[str, object]) -> CrawlQueue:
        """Return the frontier of a crawl that begins at a URL."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post to a webhook's receiver and return its status; private addresses only if they are allowed."""

    def clear_cache(self) -> None:
        """Clear cached data about sites, such as robots.txt."""

    async def aclose(self) -> None:
        """Close all connections."""
