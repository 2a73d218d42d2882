"""The Chromium process that all scrapes share: started on demand, restarted after a crash, stopped when idle.

Playwright's driver is connected to this process by pipes, and Chromium to the driver. If the service ends for any
reason, the pipes are closed and both processes exit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING

from weblake_service.browser import chromium
from weblake_service.browser.temporary_folders import TemporaryFolder, remove_abandoned
from weblake_service.page_failure import PageFailure, not_configured

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

_LOG = logging.getLogger("weblake.service")
#: Start timeout of Chromium in milliseconds, on a busy machine.
_START_TIMEOUT_MS = 60_000
#: Seconds that a browser may take to close; then its pipes are closed.
_CLOSE_TIMEOUT_S = 3.0
#: Maximum memory of the scripts of one page, in megabytes; a page that needs more crashes alone.
_MEMORY_LIMIT = "--js-flags=--max-old-space-size=512"
#: A port without a listener, used as the proxy of a context without an egress proxy.
_CLOSED_PORT_URL = "http://127.0.0.1:9"


def first_line(error: Exception) -> str:
    """Return the first line of an error of Playwright, whose message continues with a log of its steps."""
    return (str(error).splitlines() or ["no reason given"])[0][:300].rstrip(".")


class PlaywrightBrowser:
    """One running Chromium and its driver."""

    def __init__(self, playwright: Playwright, browser: Browser, folder: TemporaryFolder | None = None) -> None:
        self.playwright = playwright
        self.browser = browser
        self._folder = folder
        self._gone = False

    @classmethod
    async def start(cls) -> PlaywrightBrowser:
        """Start Chromium.

        Raises:
            PageFailure: It did not start.
        """
        from playwright.async_api import Error, async_playwright

        program = chromium.find_chromium()
        if program is None:
            raise not_configured("A page in the browser", chromium.what_is_missing())
        await asyncio.to_thread(remove_abandoned)
        folder = await asyncio.to_thread(TemporaryFolder)
        playwright = None
        try:
            playwright = await async_playwright().start()
            browser = await playwright.chromium.launch(
                executable_path=program,
                args=[*chromium.arguments(), _MEMORY_LIMIT],
                chromium_sandbox=chromium.uses_sandbox(),
                env=chromium.environment(folder.path),
                proxy={"server": _CLOSED_PORT_URL},
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=_START_TIMEOUT_MS,
            )
        except BaseException as error:
            if playwright is not None:
                await _close_in_time(playwright.stop())
            folder.remove()
            if not isinstance(error, Error | OSError):
                raise
            _LOG.warning("Chromium (%s) did not start: %s", program, error)
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            hint = f"Check that it runs; without user namespaces set {chromium.SANDBOX}=off"
            message = f"Chromium ({program}) did not start: {first[:300].rstrip('.')}. {hint}."
            raise PageFailure("SCRAPE_ALL_ENGINES_FAILED", message, reached=False) from error
        return cls(playwright, browser, folder)

    @property
    def alive(self) -> bool:
        """Return whether it can create another context."""
        return not self._gone and self.browser.is_connected()

    async def aclose(self) -> None:
        """End Chromium and the driver; kill them if they do not exit in time."""
        if self._gone:
            return
        self._gone = True
        await _close_in_time(self.browser.close())
        await _close_in_time(self.playwright.stop())
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)


async def _close_in_time(closing: Awaitable[None]) -> None:
    with suppress(Exception):
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await closing
