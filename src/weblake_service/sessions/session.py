"""One live session: its Chromium process, egress proxy and clients."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets

from weblake_service.browser.context_settings import ContextSettings
from weblake_service.browser.egress_proxy import EgressProxy
from weblake_service.browser.temporary_folders import remove_abandoned
from weblake_service.page_failure import PageFailure
from weblake_service.sessions.cdp import CdpError
from weblake_service.sessions.cdp_multiplexer import CdpClient, CdpMultiplexer
from weblake_service.sessions.chromium_process import ChromiumProcess
from weblake_service.sessions.external_client import Backlog
from weblake_service.sessions.page_watchdog import PageWatchdog
from weblake_service.web.connection_pools import ConnectionPools

#: Seconds until a Chromium must have responded for the first time, on a busy machine.
_START_TIMEOUT_S = 60.0
#: Maximum bytes that a session may load.
_MAX_BYTES = 8 << 30


class Session:
    """A running browser; `aclose` ends it, and `gone` is set when it has ended by itself."""

    def __init__(
        self,
        chromium: ChromiumProcess,
        mux: CdpMultiplexer,
        client: CdpClient,
        egress_proxy: EgressProxy,
        settings: ContextSettings,
    ) -> None:
        self.chromium = chromium
        self.egress_proxy = egress_proxy
        self.settings = settings
        self._multiplexer = mux
        self._secret = secrets.token_bytes(32)
        self.watchdog = PageWatchdog(client, settings)
        #: The messages to external clients.
        self.backlog = Backlog()

    @classmethod
    async def start(
        cls, settings: ContextSettings, pools: ConnectionPools, *, allow_private: bool, block_ads: bool
    ) -> Session:
        """Start a browser with one blank page.

        Raises:
            PageFailure: 502 if Chromium does not start, 503 if it is not installed.
        """
        await asyncio.to_thread(remove_abandoned)
        egress_proxy = EgressProxy(pools, allow_private=allow_private, own_user_only=True)
        chromium = mux = None
        try:
            proxy = (await egress_proxy.open())["server"]
            egress_proxy.begin(block_ads=block_ads, max_bytes=_MAX_BYTES)
            chromium = await ChromiumProcess.start(proxy, settings)
            mux = CdpMultiplexer(chromium)
            async with asyncio.timeout(_START_TIMEOUT_S):
                session = cls(chromium, mux, await mux.client(), egress_proxy, settings)
                await session.watchdog.start()
            return session
        except BaseException as error:
            if mux is not None:
                await mux.aclose()
            output = chromium.last_output() if chromium is not None else ""
            if chromium is not None:
                await chromium.aclose()
            await egress_proxy.aclose()
            if isinstance(error, CdpError | TimeoutError):
                message = f"Chromium did not start ({output or str(error) or 'it said nothing'}). Check that it runs."
                raise PageFailure("BROWSER_FAILED", message, status=502, reached=False) from error
            raise

    @property
    def gone(self) -> asyncio.Event:
        """Return the event that is set when the browser has ended for any reason."""
        return self.chromium.gone

    @property
    def active_page(self) -> str | None:
        """Return the target id of the page that a client has opened or activated last; None if there is no page."""
        return self._multiplexer.active_page

    def token(self, endpoint: str) -> str:
        """Return the token for `cdp`, `view` or `control`; each has its own, because a read-only viewer must not send
        input.
        """
        return hmac.new(self._secret, endpoint.encode(), hashlib.sha256).hexdigest()[:48]

    def is_valid_token(self, endpoint: str, word: str) -> bool:
        """Return whether a token is valid for an endpoint (`cdp`, `view` or `control`)."""
        return hmac.compare_digest(word.encode("utf-8", "replace"), self.token(endpoint).encode())

    async def client(self) -> CdpClient:
        """Return a new CDP client of the browser.

        Raises:
            CdpError: The browser has ended.
        """
        return await self._multiplexer.client()

    async def aclose(self) -> None:
        """End the browser and all connections to it, and delete its files."""
        await self.watchdog.aclose()
        await self._multiplexer.aclose()
        await self.chromium.aclose()
        await self.egress_proxy.aclose()
