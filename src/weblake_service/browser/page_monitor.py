"""Tracks a page while it is used: requests in flight, responses of the main document, crashes and popups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from weblake_service.browser.ad_hosts import is_ad_host

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request, Response

#: Seconds without a request after which a page counts as loaded, and maximum seconds to wait for that.
_IDLE_S, _MAX_IDLE_WAIT_S = 0.15, 3.0
#: Maximum seconds to wait for the pictures of a page whose text is loaded, and for its other resources.
_MAX_PICTURES_WAIT_S, _MAX_LOAD_WAIT_S = 10.0, 3.0
#: Types of requests that bring no text, and of those that may stay open for as long as the page does.
_PICTURES = frozenset(["image", "font", "media"])
_ENDLESS = frozenset(["eventsource", "websocket", "ping"])
_UNTIL_SCRIPTS_HAVE_RUN = "() => new Promise(done => requestIdleCallback(done, { timeout: 500 }))"


class PageMonitor:
    """Watches one page from before its first request.

    Args:
        page: The page.
        pictures: Whether the page also waits for its pictures, fonts and media.
        until: Monotonic time after which it does not wait any more.
    """

    def __init__(self, page: Page, *, pictures: bool = True, until: float = inf) -> None:
        self._page = page
        self.until = until
        self._load_wait_s = _MAX_PICTURES_WAIT_S if pictures else _MAX_LOAD_WAIT_S
        self._ignored = _ENDLESS if pictures else _ENDLESS | _PICTURES
        self._in_flight: set[Request] = set()
        self._last = time.monotonic()
        #: The response of the current document; None before the first one.
        self.answer: Response | None = None
        #: The URL and the network error of the main document, if its last load failed.
        self.failed: tuple[str, str] | None = None
        self.crashed = asyncio.Event()
        self._heard: dict[str, Callable[[Any], None]] = {
            "request": self._on_request,
            "requestfinished": self._on_end,
            "requestfailed": self._on_failed,
            "response": self._on_response,
            "crash": lambda _: self.crashed.set(),
            "popup": self._on_popup,
        }
        for event, listener in self._heard.items():
            page.on(event, listener)  # type: ignore[call-overload]

    def detach(self) -> None:
        """Remove the listeners; the page may continue to be used elsewhere."""
        for event, listener in self._heard.items():
            self._page.remove_listener(event, listener)

    async def wait_until_idle(self) -> None:
        """Wait until the page is loaded and has had no requests for a moment, up to a maximum time."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as TooSlow

        left = min(self._load_wait_s, self.until - time.monotonic())
        try:
            await self._page.wait_for_load_state("load", timeout=max(1.0, left * 1000))
        except TooSlow:
            # The text is already loaded; an image that never arrives must not delay the page.
            return
        until = min(time.monotonic() + _MAX_IDLE_WAIT_S, self.until)
        while (now := time.monotonic()) < until:
            if not self._in_flight and now - self._last >= _IDLE_S:
                # What scripts request is known once they have run, which a busy machine delays.
                with suppress(Error):
                    await self._page.evaluate(_UNTIL_SCRIPTS_HAVE_RUN)
                if not self._in_flight and self._last < now:
                    return
            await asyncio.sleep(0.02)

    def _on_popup(self, popup: Page) -> None:
        task = asyncio.get_running_loop().create_task(popup.close())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _on_request(self, request: Request) -> None:
        if request.resource_type not in self._ignored and not is_ad_host(urlsplit(request.url).hostname or ""):
            self._last = time.monotonic()
            self._in_flight.add(request)
        if self._is_main(request):
            self.failed = None

    def _on_end(self, request: Request) -> None:
        if request in self._in_flight:
            self._last = time.monotonic()
            self._in_flight.discard(request)

    def _on_failed(self, request: Request) -> None:
        self._on_end(request)
        if self._is_main(request):
            self.failed = (request.url, request.failure or "it was broken off")

    def _on_response(self, response: Response) -> None:
        if self._is_main(response.request) and not 300 <= response.status < 400:
            self.answer = response

    def _is_main(self, request: Request) -> bool:
        if not request.is_navigation_request():
            return False
        frame: Frame = request.frame
        return frame == self._page.main_frame
