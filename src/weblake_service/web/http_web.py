"""The access of jobs and routes to the web, over HTTP and the scrape browser; tests substitute it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import httpx

from weblake.api.models import NEEDS_SCRIPTS
from weblake_service.browser.chromium import what_is_missing
from weblake_service.browser.context_settings import BrowserIdentity
from weblake_service.browser.rendering_options import needs_browser_for_formats_only, requested_captures
from weblake_service.browser.scrape_browser import ScrapeBrowser
from weblake_service.config import ServiceConfig
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.files.upload import Upload
from weblake_service.page.content_types import ContentKind, kind_of
from weblake_service.page.document import HTML_TYPE, Page, page_of_upload, with_warning
from weblake_service.page.parse_process import read_page
from weblake_service.page.requested_formats import number, read_page_options
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse, Fetcher
from weblake_service.web.frontier import Frontier
from weblake_service.web.location import with_accept_language
from weblake_service.web.redirect_chain import is_same_site
from weblake_service.web.response_pages import make_page
from weblake_service.web.robots import RobotsRules
from weblake_service.web.sitemap import sitemap_urls


class HttpWeb:
    """Fetches from the network; created and used on one event loop. What has no page raises PageFailure."""

    def __init__(self, config: ServiceConfig) -> None:
        self._fetcher = Fetcher(allow_private=config.allow_private)
        self._converters = ConverterPool()
        self._robots = RobotsRules(self._fetcher, self._converters)
        self._mode = config.render
        self._browsers = ScrapeBrowser(
            allow_private=config.allow_private, max_pages=config.max_browser_pages, is_shell=self._is_shell
        )

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

    def renders(self, page: Page, fetched: FetchedResponse | None) -> bool:
        """Return whether a page that was made from this response has to be rendered first, and can be."""
        if fetched is None or fetched.rendered or self._mode == "never":
            return False
        is_html = kind_of(fetched.content_type, fetched.body) is ContentKind.HTML
        return bool(page.script_filled or (self._mode == "always" and is_html)) and not what_is_missing()

    async def render(self, url: str, options: Mapping[str, object], page: Page) -> Page:
        """Return the page of a URL with what its scripts make of it; with a warning, if it cannot be rendered.

        The page must have been fetched by `scrape`: its response is not requested again.
        """
        source = page.fetched
        if source is None or not self.renders(page, source):
            why = what_is_missing() and f"this service has no browser: install {what_is_missing()}"
            why = "this service does not render pages (--render)" if self._mode == "never" else why
            return with_warning(page, f"{NEEDS_SCRIPTS}, and {why or 'was not rendered'}.")
        target, asked = httpx.URL(source.url), httpx.URL(url)
        if asked.userinfo and is_same_site(url, source.url):
            target = target.copy_with(userinfo=asked.userinfo)
        if asked.fragment and not target.fragment:
            target = target.copy_with(fragment=asked.fragment)
        try:
            visited = await self._browsers.render(str(target), options, BrowserIdentity(), source)
        except PageFailure as failure:
            # What came over HTTP is not cached: the next scrape tries again.
            unkept = replace(page, fetched=None)
            return with_warning(unkept, f"{NEEDS_SCRIPTS}, and was not rendered: {failure.message}")
        if visited.fetched is None or not visited.fetched.rendered:
            return page
        moved = () if visited.fetched.url == source.url else (source.url,)
        fetched = replace(
            visited.fetched,
            redirects=tuple(dict.fromkeys((*source.redirects, *moved, *visited.fetched.redirects))),
            script_filled=page.script_filled,
        )
        return replace(await self.remake(url, options, fetched), fetched=fetched)

    async def _is_shell(self, html: str, url: str) -> bool:
        body, wanted = html.encode("utf-8", "replace"), read_page_options({"formats": ["links"]})
        document, _ = await read_page(self._converters, "html", HTML_TYPE, body, url, wanted, url)
        metadata = document["metadata"]
        return isinstance(metadata, Mapping) and "scriptFilled" in metadata

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
