"""A bounded number of browser pages at a time, each in a context of its own, which is closed after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weblake_service.browser.context_settings import ContextSettings
from weblake_service.browser.egress_proxy import EgressProxy
from weblake_service.browser.playwright_browser import PlaywrightBrowser
from weblake_service.fair_queue import QUEUE, TEAM, FairQueue
from weblake_service.page_failure import PageFailure
from weblake_service.web.connection_pools import ConnectionPools

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

#: Seconds that creating or closing a context may take.
_OPEN_TIMEOUT_S, _CLOSE_TIMEOUT_S = 30.0, 5.0
#: Seconds without a page after which Chromium is stopped.
IDLE_S = 120.0


@dataclass(eq=False, slots=True)
class PooledContext:
    """A browser context with its egress proxy."""

    engine: PlaywrightBrowser
    context: BrowserContext
    egress_proxy: EgressProxy
    settings: ContextSettings

    async def aclose(self) -> bool:
        """Close the context; return False if Chromium does not respond."""
        await self.egress_proxy.aclose()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.context.close()
        except Exception:  # noqa: BLE001 - hung or crashed: the caller ends the whole browser
            return not self.engine.alive
        return True


class ContextPool:
    """The pool; used on one event loop, closed with `aclose`."""

    def __init__(self, *, max_pages: int, allow_private: bool, idle: float = IDLE_S) -> None:
        self._allow_private = allow_private
        self._idle_s = idle
        self._places, self._all = FairQueue(lambda _: max_pages), asyncio.Semaphore(max_pages + 1)
        self._starting = asyncio.Lock()
        self._pools = ConnectionPools(allow_private=allow_private)
        self._engine: PlaywrightBrowser | None = None
        self._busy: set[PooledContext] = set()
        self._wanted = 0
        self._after: set[asyncio.Task[None]] = set()
        self._sleep: asyncio.TimerHandle | None = None
        self._closed = False

    @asynccontextmanager
    async def slot(self, site: str) -> AsyncIterator[None]:
        """Wait for a slot for a page of a site and hold it while the block runs; the jobs of a team take turns."""
        async with self._places.acquire(TEAM.get(), site, QUEUE.get()), self._all:
            yield

    @asynccontextmanager
    async def context(self, settings: ContextSettings, own: dict[str, Any]) -> AsyncIterator[PooledContext]:
        """Yield a context for one page; `own` are further arguments of Playwright's `new_context`.

        Raises:
            PageFailure: Chromium does not start.
        """
        # Counted before the context exists, so that the browser is not stopped for idleness while it is created.
        self._wanted += 1
        try:
            pooled = await self._open(settings, own)
            self._busy.add(pooled)
            try:
                yield pooled
            finally:
                self._busy.discard(pooled)
                # The response does not wait for it.
                self._run_in_background(self._release(pooled))
        finally:
            self._wanted -= 1

    async def aclose(self) -> None:
        """Stop the browser and all background tasks."""
        self._closed = True
        if self._sleep is not None:
            self._sleep.cancel()
        for pooled in self._busy:
            await pooled.egress_proxy.aclose()
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.aclose()
        for task in self._after:
            task.cancel()
        await asyncio.gather(*self._after, return_exceptions=True)
        await self._pools.aclose()

    async def _open(self, settings: ContextSettings, own: dict[str, Any]) -> PooledContext:
        engine = await self._running_browser()
        egress_proxy = EgressProxy(self._pools, allow_private=self._allow_private)
        try:
            made = {**settings.context(engine.browser.version), **own}
            async with asyncio.timeout(_OPEN_TIMEOUT_S):
                context = await engine.browser.new_context(**made, proxy=await egress_proxy.open())
                await context.new_page()
        except TimeoutError as error:
            await egress_proxy.aclose()
            await self._discard(engine)
            message = f"The browser did not answer within {_OPEN_TIMEOUT_S:g} s and was ended. Try again."
            raise PageFailure("SCRAPE_ALL_ENGINES_FAILED", message, reached=False) from error
        except BaseException:
            await egress_proxy.aclose()
            raise
        return PooledContext(engine, context, egress_proxy, settings)

    async def _running_browser(self) -> PlaywrightBrowser:
        async with self._starting:
            if self._sleep is not None:
                self._sleep.cancel()
            engine = self._engine
            if engine is not None and engine.alive:
                return engine
            if engine is not None:
                await self._discard(engine)
            self._engine = await PlaywrightBrowser.start()
            return self._engine

    async def _release(self, pooled: PooledContext) -> None:
        if not await pooled.aclose():
            await self._discard(pooled.engine)
        if not self._wanted and not self._closed:
            loop = asyncio.get_running_loop()
            if self._sleep is not None:
                self._sleep.cancel()
            self._sleep = loop.call_later(self._idle_s, lambda: self._run_in_background(self._stop_when_idle()))

    async def _stop_when_idle(self) -> None:
        async with self._starting:
            engine = self._engine
            if engine is not None and not self._wanted:
                await self._discard(engine)

    async def _discard(self, engine: PlaywrightBrowser) -> None:
        """Stop a browser; pages that are still in it are loaded again in the next one."""
        if engine is self._engine:
            self._engine = None
        await engine.aclose()

    def _run_in_background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)
