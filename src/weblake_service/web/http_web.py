"""The access of jobs and routes to the web, over HTTP and the scrape browser; tests substitute it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from weblake_service.browser.context_settings import BrowserIdentity
from weblake_service.browser.rendering_options import needs_browser_for_formats_only, requested_captures
from weblake_service.browser.scrape_browser import ScrapeBrowser
from weblake_service.config import ServiceConfig
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.files.upload import Upload
from weblake_service.page.document import Page, page_of_upload
from weblake_service.page.requested_formats import number
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse, Fetcher
from weblake_service.web.frontier import Frontier
from weblake_service.web.location import with_accept_language
from weblake_service.web.response_pages import make_page
from weblake_service.web.robots import RobotsRules
from weblake_service.web.sitemap import sitemap_urls


class HttpWeb:
    """Fetches from the network; created and used on one event loop. What has no page raises PageFailure."""

    def __init__(self, config: ServiceConfig) -> None:
        self._fetcher = Fetcher(allow_private=config.allow_private)
        self._converters = ConverterPool()
        self._robots = RobotsRules(self._fetcher, self._converters)
        self._browsers = ScrapeBrowser(allow_private=config.allow_private, max_pages=config.max_browser_pages)

    async def scrape(self, url: str, options: Mapping[str, object]) -> Page:
        """Fetch a page and return it as a document."""
        options, until = with_accept_language(options), _until(options)
        headers = options.get("headers")
        fetched = await self._fetcher.get(
            url,
            headers={str(k): str(v) for k, v in headers.items()} if isinstance(headers, Mapping) else None,
            timeout_s=number(options.get("timeout"), 60_000) / 1000,
            verify=options.get("skip_tls_verification") is False,
            refresh=True,
        )
        return replace(await make_page(fetched, url, options, self._converters, until), fetched=fetched)

    async def browse(self, url: str, options: Mapping[str, object], visitor: BrowserIdentity) -> Page:
        """Load a page in a browser and return it as a document; what the browser cannot read is fetched instead."""
        try:
            visited = await self._browsers.render(url, options, visitor)
        except PageFailure as failure:
            if not failure.reached or not needs_browser_for_formats_only(options):
                raise
            page = await self.scrape(url, {**options, "timeout": min(number(options.get("timeout"), 60_000), 10_000)})
            failures = {**page.failures, **dict.fromkeys(requested_captures(options), failure)}
            return replace(page, fetched=None, failures=failures)
        if visited.fetched is None:
            return await self.scrape(url, options)
        page = await self.remake(url, options, visited.fetched)
        return replace(page, fetched=visited.fetched, profile=visited.profile)

    async def remake(self, url: str, options: Mapping[str, object], fetched: FetchedResponse) -> Page:
        """Make a document from an earlier response of a URL."""
        return await make_page(fetched, url, options, self._converters, _until(options))

    async def parse(self, read: Callable[[], Upload], options: Mapping[str, object], timeout_s: float) -> Page:
        """Make a document from an uploaded file."""
        return await page_of_upload(read, options, converters=self._converters, timeout_s=timeout_s)

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        """Return whether robots.txt allows the URL."""
        return await self._robots.allowed(url, user_agent)

    async def robots_note(self, url: str) -> str:
        """Return why the site's URLs must not be fetched, if its robots.txt could not be read; otherwise empty."""
        return await self._robots.note(url)

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        """Return the crawl delay of robots.txt in seconds, or None."""
        return await self._robots.crawl_delay(url, user_agent)

    async def sitemap(self, url: str, limit: int) -> tuple[list[str], str]:
        """Return the URLs in the site's sitemaps, and a warning that names those that could not be read in full."""
        return await sitemap_urls(
            url, fetcher=self._fetcher, robots=self._robots, converters=self._converters, limit=limit
        )

    def frontier(self, url: str, options: Mapping[str, object]) -> Frontier:
        """Return the frontier of a crawl."""
        return Frontier(url, options, self._converters)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post to the checked address, under the host name of the URL; redirects are not followed."""
        return await self._fetcher.post(url, body, headers=headers)

    def clear_cache(self) -> None:
        """Clear the cache of robots.txt files."""
        self._robots = RobotsRules(self._fetcher, self._converters)

    async def aclose(self) -> None:
        """Close all connections, the browser and the converter processes."""
        await self._robots.aclose()
        await self._browsers.aclose()
        await self._converters.aclose()
        await self._fetcher.aclose()


def _until(options: Mapping[str, object]) -> float:
    """Return the monotonic time at which the timeout of a page ends."""
    return time.monotonic() + number(options.get("timeout"), 60_000) / 1000
