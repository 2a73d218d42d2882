"""The web itself: the page half of the service behind the door that door.py draws.

Imports: config, fetch, frontier, page, robots, sitemap, door.
"""

from __future__ import annotations

from collections.abc import Mapping

from weblake.service.config import ServiceConfig
from weblake.service.jobs.scraping import FreshPage
from weblake.service.page.document import scrape
from weblake.service.web.door import CrawlQueue
from weblake.service.web.fetch import Fetcher
from weblake.service.web.frontier import Frontier
from weblake.service.web.robots import Robots
from weblake.service.web.sitemap import sitemap_urls


class RealWeb:
    """Fetches for real; made and used on one event loop."""

    def __init__(self, config: ServiceConfig) -> None:
        self._fetcher = Fetcher(allow_private=config.allow_private)
        self._robots = Robots(self._fetcher)

    async def scrape(self, url: str, options: Mapping[str, object]) -> FreshPage:
        """Fetches a page and makes it a document."""
        return await scrape(url, options, fetcher=self._fetcher)

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        """Whether robots.txt lets us fetch the URL."""
        return await self._robots.allowed(url, user_agent)

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        """Seconds that robots.txt wants between two pages."""
        return await self._robots.crawl_delay(url, user_agent)

    async def sitemap(self, url: str, limit: int) -> list[str]:
        """The URLs in the site's sitemaps."""
        return await sitemap_urls(url, fetcher=self._fetcher, robots=self._robots, limit=limit)

    def frontier(self, url: str, options: Mapping[str, object]) -> CrawlQueue:
        """The queue of a crawl."""
        return Frontier(url, options)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Posts to the very address that was judged, under the name in the URL; redirects are not followed."""
        return await self._fetcher.post(url, body, headers=headers)

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._fetcher.aclose()
