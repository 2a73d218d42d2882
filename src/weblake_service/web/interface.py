"""The interface to the web that jobs and routes use; tests substitute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from weblake_service.browser.context_settings import BrowserIdentity
from weblake_service.files.upload import Upload
from weblake_service.web.fetch import FetchedResponse

if TYPE_CHECKING:
    from weblake_service.page.document import Page
    from weblake_service.web.frontier import Frontier


class Web(Protocol):
    """The service's access to the web."""

    async def scrape(self, url: str, options: Mapping[str, object]) -> Page:
        """Fetch a page and return it as a document; raises PageFailure."""

    async def browse(self, url: str, options: Mapping[str, object], visitor: BrowserIdentity) -> Page:
        """Load a page in a browser and return it as a document; raises PageFailure."""

    async def remake(self, url: str, options: Mapping[str, object], fetched: FetchedResponse) -> Page:
        """Make a document from an earlier response of a URL; raises PageFailure."""

    async def parse(self, read: Callable[[], Upload], options: Mapping[str, object], timeout_s: float) -> Page:
        """Make a document from an uploaded file, which is read when a converter slot is free; raises PageFailure."""

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        """Return whether robots.txt allows the URL."""

    async def robots_note(self, url: str) -> str:
        """Return why the site's URLs must not be fetched, if its robots.txt could not be read; otherwise empty."""

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        """Return the site's crawl delay in seconds, or None."""

    async def sitemap(self, url: str, limit: int) -> tuple[list[str], str]:
        """Return the URLs in the site's sitemaps, and a warning that names those that could not be read in full."""

    def frontier(self, url: str, options: Mapping[str, object]) -> Frontier:
        """Return the frontier of a crawl that begins at a URL."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post to a webhook's receiver and return its status; private addresses only if they are allowed."""

    def clear_cache(self) -> None:
        """Clear cached data about sites, such as robots.txt."""

    async def aclose(self) -> None:
        """Close all connections."""
