"""Playwright for sessions: profiles, the page of a scrape, and the active page for commands and prompts.

One driver serves all sessions; it connects as an external CDP client, with the token of each session.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import httpx

from weblake_service.browser.context_settings import site_credentials_of
from weblake_service.browser.page_rendering import IsFile, PageRendering
from weblake_service.browser.playwright_browser import PlaywrightBrowser, first_line
from weblake_service.browser.pool import PooledContext
from weblake_service.jobs.browser_profiles import BrowserProfiles
from weblake_service.keyed_locks import KeyedLocks
from weblake_service.page_failure import PageFailure
from weblake_service.sessions.page_actions import PageActionError
from weblake_service.sessions.sessions import LiveSession
from weblake_service.web.addresses import clean_url

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Dialog, Page, Playwright

_LOG = logging.getLogger("weblake.service")
#: Seconds for Playwright to connect, and for loading or reading a profile.
_CONNECT_TIMEOUT_S, _PROFILE_TIMEOUT_S = 30.0, 20.0
#: Milliseconds in which Playwright must have learned of a new page.
_PAGE_TIMEOUT_MS = 2_000
#: Seconds that a session waits for another one to release its profile.
_PROFILE_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class SessionProfile:
    """The profile of a session, and whether it is saved at the end."""

    name: str
    saves: bool


def profile_of(options: Mapping[str, object]) -> SessionProfile | None:
    """Return the profile of the options (snake_case), or None."""
    profile = options.get("profile")
    if not isinstance(profile, Mapping):
        return None
    return SessionProfile(str(profile["name"]), profile.get("save_changes") is not False)


class PlaywrightDriver:
    """The shared driver, started on first use; `address` is the loopback address of this service."""

    def __init__(self, profiles: BrowserProfiles, *, allow_private: bool) -> None:
        self._profiles = profiles
        self._allow_private = allow_private
        self._starting = asyncio.Lock()
        self._connecting = KeyedLocks()
        self._playwright: Playwright | None = None
        self._contexts: dict[str, BrowserContext] = {}
        self._targets: WeakKeyDictionary[Page, str] = WeakKeyDictionary()
        self.address = ""

    async def aclose(self) -> None:
        """Stop the driver."""
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            with suppress(Exception):
                async with asyncio.timeout(3.0):
                    await playwright.stop()

    def cdp_url(self, live: LiveSession) -> str:
        """Return the URL for local CDP clients of a session."""
        return self.address.replace("http", "ws", 1) + live.path("cdp")

    async def active_page(self, live: LiveSession) -> Page:
        """Return the active page of a session; a new one if there is none.

        Raises:
            PageActionError: The browser does not respond.
        """
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as PageTimeout

        try:
            context = await self._context(live)
            for _ in range(2):
                for page in context.pages:
                    if await self.target_of(page) == live.session.active_page:
                        return page
                if context.pages and live.session.active_page is not None:
                    # Playwright learns of a new page a little later than the session.
                    with suppress(PageTimeout):
                        await context.wait_for_event("page", timeout=_PAGE_TIMEOUT_MS)
            return context.pages[-1] if context.pages else await context.new_page()
        except (Error, PageFailure) as error:
            raise PageActionError(f"The browser does not respond: {first_line(error)}") from error

    async def target_of(self, page: Page) -> str:
        """Return the target id of a page."""
        if page not in self._targets:
            protocol = await page.context.new_cdp_session(page)
            self._targets[page] = (await protocol.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
            await protocol.detach()
        return self._targets[page]

    async def with_profile(self, live: LiveSession, profile: SessionProfile) -> None:
        """Load a profile into a new session; if it is to be saved, that happens when the session ends.

        Raises:
            PageFailure: 409 if another session holds the profile's lock, or the profile cannot be loaded.
        """
        team = live.spec.access.team
        if profile.saves:
            await live.cleanup.enter_async_context(self._profiles.locked(team, profile.name, _PROFILE_WAIT_S))
        state = await self._profiles.load(team, profile.name)
        if not state and not profile.saves:
            return
        context = await self._context(live)
        if state:
            async with asyncio.timeout(_PROFILE_TIMEOUT_S):
                await context.set_storage_state(json.loads(state))
        if profile.saves:
            live.cleanup.push_async_callback(self._save, live, profile, context)

    async def restore_page(self, live: LiveSession, url: str, options: Mapping[str, object]) -> None:
        """Restore the page of a scrape with the effects of the scrape's options (snake_case).

        Raises:
            PageFailure: It cannot be restored.
        """
        from playwright.async_api import Error

        profile = profile_of(options)
        if profile is not None:
            await self.with_profile(live, profile)
        context = await self._context(live)
        target = httpx.URL(clean_url(url, allow_private=self._allow_private))
        private = site_credentials_of(target, options)
        shown = str(target.copy_with(userinfo=b"") if target.userinfo else target)
        browser = context.browser
        assert browser is not None
        assert self._playwright is not None
        engine = PlaywrightBrowser(self._playwright, browser)
        pooled = PooledContext(engine, context, live.session.egress_proxy, live.spec.settings)
        plain = {**options, "formats": ["rawHtml"]}
        try:
            await PageRendering(pooled, shown, plain, private).run()
        except IsFile:
            raise PageFailure("SCRAPE_UNSUPPORTED_FILE", f"{shown} is a file, and no page to go on with.") from None
        except Error as error:
            raise PageFailure("BROWSER_FAILED", f"The browser failed ({first_line(error)}).", status=502) from error

    async def _context(self, live: LiveSession) -> BrowserContext:
        """Return the browser context with the session's pages; connected until the session ends."""
        async with self._connecting.lock(live.id):
            if live.id in self._contexts:
                return self._contexts[live.id]
            browser = await self._connect(live)
            live.cleanup.push_async_callback(self._disconnect, live, browser)
            context = self._contexts[live.id] = browser.contexts[0]
            # Without a listener Playwright dismisses dialogs before the user's own client or a viewer can answer them.
            context.on("dialog", _ignore_dialog)
            return context

    async def _connect(self, live: LiveSession) -> Browser:
        from playwright.async_api import Error, async_playwright

        async with self._starting:
            if self._playwright is None:
                self._playwright = await async_playwright().start()
        try:
            return await self._playwright.chromium.connect_over_cdp(
                self.cdp_url(live), timeout=_CONNECT_TIMEOUT_S * 1000
            )
        except Error as error:
            message = f"The browser of the session could not be steered ({first_line(error)})."
            raise PageFailure("BROWSER_FAILED", message, status=502) from error

    async def _disconnect(self, live: LiveSession, browser: Browser) -> None:
        self._contexts.pop(live.id, None)
        with suppress(Exception):
            async with asyncio.timeout(3.0):
                await browser.close()

    async def _save(self, live: LiveSession, profile: SessionProfile, context: BrowserContext) -> None:
        if live.session.gone.is_set():
            _LOG.warning("The profile %r was not saved: the browser of its session ended by itself.", profile.name)
            return
        try:
            async with asyncio.timeout(_PROFILE_TIMEOUT_S):
                state = await context.storage_state(indexed_db=True)
        except Exception as error:  # noqa: BLE001 - the session ends in any case
            _LOG.warning("The profile %r was not saved: %s", profile.name, first_line(error))
            return
        warning = await self._profiles.save(live.spec.access.team, profile.name, json.dumps(state).encode())
        if warning:
            _LOG.warning("%s", warning)


def _ignore_dialog(dialog: Dialog) -> None:
    """Leave a dialog to the other clients of the browser."""
