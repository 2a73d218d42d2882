"""The door to the web: all that jobs and routes need of the page half, in one place that tests can stand in for.

Imports: jobs.scraping, for the shape of a fresh page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from weblake.service.jobs.scraping import FreshPage


class CrawlQueue(Protocol):
    """Which URLs a crawl visits, and in which order."""

    def offer(self, url: str, depth: int) -> bool:
        """Whether the URL is to be visited and was not offered before."""

    def wants(self, url: str, depth: int) -> bool:
        """Whether the options let the crawl visit the URL, offered before or not."""

    def take(self) -> tuple[str, int] | None:
        """The next URL and its depth, in the order of the offers; None where none waits or the limit is reached."""

    def landed(self, url: str, final_url: str | None = None) -> bool:
        """Told where a URL's redirects led; False where that is another page of this crawl."""

    def uncount(self, url: str) -> None:
        """Gives back the place of a taken URL that turned out not to count."""


class Web(Protocol):
    """What the service asks of the web."""

    async def scrape(self, url: str, options: Mapping[str, object]) -> FreshPage:
        """Fetches a page and makes it a document; raises PageFailure."""

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        """Whether robots.txt lets us fetch the URL."""

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        """Seconds that the site wants between two pages."""

    async def sitemap(self, url: str, limit: int) -> list[str]:
        """The URLs in the site's sitemaps."""

    def frontier(self, url: str, options: Mapping[str, object]) -> CrawlQueue:
        """The queue of a crawl that begins at a URL."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Posts to a webhook's receiver and returns its status; private addresses only where they are allowed."""

    async def aclose(self) -> None:
        """Closes all connections."""
