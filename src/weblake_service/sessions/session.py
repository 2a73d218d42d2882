"""One live session: its Chromium process, egress proxy and clients."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from weblake import aio
from weblake_service.browser.context_settings import ContextSettings
from weblake_service.browser.egress_proxy import EgressProxy
from weblake_service.browser.temporary_folders import remove_abandoned
from weblake_service.page_failure import PageFailure
from weblake_service.sessions.cdp import Cdp, CdpError
from weblake_service.sessions.cdp_multiplexer import CdpClient, CdpMultiplexer
from weblake_service.sessions.chromium_process import ChromiumProcess
from weblake_service.sessions.code.page_watchdog import PageWatchdog
from weblake_service.sessions.external_client import Backlog
from weblake_service.web.connection_pools import ConnectionPools

_LOG = logging.getLogger("weblake.service")
#: Seconds until a Chromium must have responded for the first time, on a busy machine.
_START_TIMEOUT_S = 60.0
#: Events with the URL of a target, and the beginning of that of the developer tools.
_URL_EVENTS, _DEVTOOLS = frozenset(["Target.targetCreated", "Target.targetInfoChanged"]), "devtools://"
#: Maximum bytes that a session may load.
_MAX_BYTES = 8 << 30


class Session:
    """A running browser; `aclose` ends it, and `gone` is set when it has ended by itself."""

    def __init__(
        self,
        chromium: ChromiumProcess,
        mux: CdpMultiplexer,
        keeper: CdpClient,
        egress_proxy: EgressProxy,
        settings: ContextSettings,
    ) -> None:
        self.chromium = chromium
        self.egress_proxy = egress_proxy
        self.settings = settings
        self._multiplexer = mux
        self._control_client = keeper
        self._agent = ""
        self._secret = secrets.token_bytes(32)
        #: Ends infinite loops, and answers dialogs that no client answers.
        self.watchdog = PageWatchdog(None)
        #: The messages to external clients.
        self.backlog = Backlog()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Version of Chromium, such as `156.0.8078.79`.
        self.version = ""

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
            async with aio.timeout(_START_TIMEOUT_S):
                session = cls(chromium, mux, await mux.client(), egress_proxy, settings)
                await session._prepare()
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
        self.watchdog.stop()
        self._control_client.close()
        await self._multiplexer.aclose()
        await self.chromium.aclose()
        await self.egress_proxy.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _prepare(self) -> None:
        """Apply the settings to every page before it loads."""
        keeper = self._control_client
        product: str = (await keeper.send("Browser.getVersion"))["product"]
        self.version = product.rpartition("/")[2]
        self._agent = self.settings.user_agent(self.version)
        await keeper.send("Browser.setDownloadBehavior", {"behavior": "deny"})
        keeper.listen(self._on_target)
        # The multiplexer follows the URLs of all targets.
        await keeper.send("Target.setDiscoverTargets", {"discover": True})
        await keeper.send("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True})
        # The first page existed before; it is ready once it was attached.
        targets = (await keeper.send("Target.getTargets"))["targetInfos"]
        first = next((one for one in targets if one["type"] == "page"), None)
        if first is None:
            await keeper.send("Target.createTarget", {"url": "about:blank"})
        await asyncio.gather(*self._tasks)
        self.watchdog = PageWatchdog(await self._multiplexer.client())
        await self.watchdog.start()

    def _on_target(self, method: str, params: dict[str, Any], session: str | None) -> None:
        if method == "Target.attachedToTarget":
            kind = str(params["targetInfo"]["type"])
            self._run(self._configure_target(params["sessionId"], kind, waits=params["waitingForDebugger"]))
        elif method in _URL_EVENTS and str(params["targetInfo"]["url"]).startswith(_DEVTOOLS):
            # A keyboard shortcut has opened the developer tools, which no client can use.
            self._run(self._close_target(str(params["targetInfo"]["targetId"])))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_target(self, target: str) -> None:
        with suppress(CdpError):
            await self._control_client.send("Target.closeTarget", {"targetId": target})

    async def _configure_target(self, session: str, kind: str, *, waits: bool) -> None:
        keeper: Cdp = self._control_client
        width, height = self.settings.size
        screen = {
            "width": width, "height": height, "deviceScaleFactor": self.settings.scale, "mobile": self.settings.mobile,
        }  # fmt: skip
        # Any of them may have been closed already.
        with suppress(CdpError):
            if kind == "page":
                await keeper.send("Emulation.setDeviceMetricsOverride", screen, session)
                if self.settings.mobile:
                    await keeper.send("Emulation.setTouchEmulationEnabled", {"enabled": True}, session)
                spoken = ",".join(self.settings.languages) or "en-US"
                await keeper.send(
                    "Emulation.setUserAgentOverride", {"userAgent": self._agent, "acceptLanguage": spoken}, session
                )
        if waits:
            with suppress(CdpError):
                await keeper.send("Runtime.runIfWaitingForDebugger", {}, session)
