"""Renders pages for scrapes, each in a browser context of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from weblake_service.browser.context_settings import BrowserIdentity, context_settings_of, site_credentials_of
from weblake_service.browser.page_rendering import IsFile, PageRendering
from weblake_service.browser.playwright_browser import first_line
from weblake_service.browser.pool import ContextPool
from weblake_service.browser.rendering_options import needs_pictures
from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url
from weblake_service.web.fetch import FetchedResponse

#: Maximum bytes that one page may load.
_MAX_BYTES = 128 << 20
#: Seconds that reading a profile may take.
_READ_PROFILE_S = 20.0


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """The result of a page visit."""

    #: None if the URL is a file, which is fetched over HTTP instead.
    fetched: FetchedResponse | None
    #: The profile after the visit; None if it is not to be saved.
    profile: bytes | None = None


class ScrapeBrowser:
    """Loads pages in Chromium; used on one event loop, closed with `aclose`. Chromium starts with the first page."""

    def __init__(
        self, *, allow_private: bool, max_pages: int, is_shell: Callable[[str, str], Awaitable[bool]] | None = None
    ) -> None:
        self._allow_private = allow_private
        self._is_shell = is_shell
        self._contexts = ContextPool(max_pages=max_pages, allow_private=allow_private)

    async def render(
        self,
        url: str,
        options: Mapping[str, object],
        visitor: BrowserIdentity,
        source: FetchedResponse | None = None,
    ) -> RenderedPage:
        """Load a page, apply the options (snake_case), and return the final page.

        Waiting for a slot, and for the start of Chromium, does not count against the page's timeout. `source` is the
        response to the URL, if it was fetched before: the page is made from it, and not requested again.

        Raises:
            PageFailure: SCRAPE_TIMEOUT (408) after `timeout` milliseconds, SCRAPE_ACTION_ERROR, or the load failed.
        """
        from playwright.async_api import Error

        for last in (False, True):
            try:
                async with self._contexts.slot(urlsplit(url).netloc):
                    return await self._render(url, options, visitor, source)
            except (Error, PageFailure) as error:
                # Perhaps because of another page; actions with side effects are not repeated.
                once = last or options.get("actions") or visitor.saves_profile
                cause = error.__cause__ if isinstance(error, PageFailure) and error.reached else error
                if not once and isinstance(cause, Error):
                    continue
                if isinstance(error, PageFailure):
                    raise
                message = f"The browser ended while it had {url} ({first_line(error)}). Try again."
                raise PageFailure("SCRAPE_ALL_ENGINES_FAILED", message) from error
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Stop the browser."""
        await self._contexts.aclose()

    async def _render(
        self, url: str, options: Mapping[str, object], visitor: BrowserIdentity, source: FetchedResponse | None
    ) -> RenderedPage:
        from playwright.async_api import Error

        target = httpx.URL(clean_url(url, allow_private=self._allow_private))
        private = site_credentials_of(target, options)
        shown = str(target.copy_with(userinfo=b"") if target.userinfo else target)
        own: dict[str, Any] = {"http_credentials": private.login} if private.login else {}
        if visitor.profile is not None:
            own["storage_state"] = json.loads(visitor.profile or b"{}")
        async with self._contexts.context(context_settings_of(options), own) as pooled:
            for cookie in source.cookies if source is not None else ():
                with suppress(Error):
                    await pooled.context.add_cookies([cookie])  # type: ignore[list-item]
            pooled.egress_proxy.begin(block_ads=options.get("block_ads") is not False, max_bytes=_MAX_BYTES)
            try:
                rendering = PageRendering(
                    pooled,
                    shown,
                    options,
                    private,
                    pictures=needs_pictures(options),
                    source=source,
                    is_shell=self._is_shell,
                )
                fetched = await rendering.run()
            except IsFile:
                return RenderedPage(None)
            if not visitor.saves_profile:
                return RenderedPage(fetched)
            try:
                async with asyncio.timeout(_READ_PROFILE_S):
                    state = await pooled.context.storage_state(indexed_db=True)
            except TimeoutError as error:
                message = (
                    f"The profile could not be read out within {_READ_PROFILE_S:g} s, so it was not saved. Try again."
                )
                raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error
            return RenderedPage(fetched, json.dumps(state).encode())
