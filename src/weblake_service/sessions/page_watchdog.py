"""Watches all pages of a session: applies its settings, answers forgotten dialogs, ends loops that code left behind.

`page.evaluate("while (true) {}")` continues after its code is killed, and a busy page accepts no new client, so the
client that ends the loop must already be attached. A dialog that opens while no client listens blocks its page forever;
an unanswered dialog is answered here, after a delay that lets other clients answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from weblake_service.browser.context_settings import ContextSettings
from weblake_service.sessions.cdp import CdpError
from weblake_service.sessions.cdp_multiplexer import CdpClient

#: Seconds in which a page must respond to be considered not in a loop.
_RESPONSIVE_S = 1.0
#: Seconds after which a dialog is considered unanswered.
_DIALOG_TIMEOUT_S = 5.0
#: Events with the URL of a target, and the beginning of that of the developer tools.
_URL_EVENTS, _DEVTOOLS = frozenset(["Target.targetCreated", "Target.targetInfoChanged"]), "devtools://"


class PageWatchdog:
    """A client that is attached to all pages of one session, from before they load."""

    def __init__(self, cdp: CdpClient, settings: ContextSettings) -> None:
        self._cdp = cdp
        self._settings = settings
        self._agent = ""
        #: The protocol sessions of the pages.
        self._sessions: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: The tasks that answer dialogs, by session.
        self._dialogs: dict[str, asyncio.Task[None]] = {}
        self._viewers = 0
        #: Set while no viewer can answer a dialog.
        self._unseen = asyncio.Event()
        self._unseen.set()

    async def start(self) -> None:
        """Apply the settings to the existing pages and to every new one, before it loads; there is at least one page.

        Raises:
            CdpError: The browser refuses.
        """
        product: str = (await self._cdp.send("Browser.getVersion"))["product"]
        self._agent = self._settings.user_agent(product.rpartition("/")[2])
        await self._cdp.send("Browser.setDownloadBehavior", {"behavior": "deny"})
        self._cdp.listen(self._on_event)
        # The multiplexer follows all targets.
        await self._cdp.send("Target.setDiscoverTargets", {"discover": True})
        attach = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
        await self._cdp.send("Target.setAutoAttach", attach)
        # The first page existed before; it is ready once it was attached.
        targets = (await self._cdp.send("Target.getTargets"))["targetInfos"]
        if all(one["type"] != "page" for one in targets):
            await self._cdp.send("Target.createTarget", {"url": "about:blank"})
        await asyncio.gather(*self._tasks)

    async def aclose(self) -> None:
        """Stop watching."""
        self._cdp.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def viewed(self) -> Iterator[None]:
        """Leave dialogs to a viewer while the block runs."""
        self._viewers += 1
        self._unseen.clear()
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._unseen.set()

    async def unblock(self) -> None:
        """Terminate scripts in pages that do not respond."""
        await asyncio.gather(*map(self._unblock_page, self._sessions))

    async def _unblock_page(self, session: str) -> None:
        with suppress(CdpError, TimeoutError):
            try:
                async with asyncio.timeout(_RESPONSIVE_S):
                    await self._cdp.send("Runtime.evaluate", {"expression": "1"}, session)
            except TimeoutError:
                async with asyncio.timeout(_RESPONSIVE_S):
                    await self._cdp.send("Runtime.terminateExecution", None, session)

    def _on_event(self, method: str, params: dict[str, Any], session: str | None) -> None:
        if method == "Target.attachedToTarget":
            page = params["targetInfo"]["type"] == "page"
            if page:
                self._sessions.add(params["sessionId"])
            self._run(self._configure(params["sessionId"], page=page, waits=params["waitingForDebugger"]))
        elif method == "Target.detachedFromTarget":
            self._sessions.discard(params["sessionId"])
            self._forget_dialog(params["sessionId"])
        elif method in _URL_EVENTS and str(params["targetInfo"]["url"]).startswith(_DEVTOOLS):
            # A keyboard shortcut has opened the developer tools, which no client can use.
            self._run(self._send("Target.closeTarget", {"targetId": params["targetInfo"]["targetId"]}))
        elif session is not None and method == "Page.javascriptDialogOpening":
            self._forget_dialog(session)
            self._dialogs[session] = self._run(self._answer_dialog(session, params["type"]))
        elif session is not None and method == "Page.javascriptDialogClosed":
            self._forget_dialog(session)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _forget_dialog(self, session: str) -> None:
        task = self._dialogs.pop(session, None)
        if task is not None:
            task.cancel()

    async def _answer_dialog(self, session: str, kind: str) -> None:
        await asyncio.sleep(_DIALOG_TIMEOUT_S)
        await self._unseen.wait()
        await self._send("Page.handleJavaScriptDialog", {"accept": kind in {"alert", "beforeunload"}}, session)

    async def _configure(self, session: str, *, page: bool, waits: bool) -> None:
        """Apply the settings to a new target, and let it run."""
        width, height = self._settings.size
        screen: dict[str, object] = {
            "width": width,
            "height": height,
            "deviceScaleFactor": self._settings.scale,
            "mobile": self._settings.mobile,
        }
        agent: dict[str, object] = {
            "userAgent": self._agent,
            "acceptLanguage": ",".join(self._settings.languages) or "en-US",
        }
        commands: list[tuple[str, dict[str, object]]] = []
        if page:
            commands = [("Emulation.setDeviceMetricsOverride", screen), ("Emulation.setUserAgentOverride", agent)]
            if self._settings.mobile:
                commands.append(("Emulation.setTouchEmulationEnabled", {"enabled": True}))
            commands.append(("Page.enable", {}))
        if waits:
            commands.append(("Runtime.runIfWaitingForDebugger", {}))
        # All at once and in this order: a popup may answer nothing before it runs.
        await asyncio.gather(*(self._send(method, params, session) for method, params in commands))

    async def _send(self, method: str, params: dict[str, object], session: str | None = None) -> None:
        """Send a command; errors are ignored, because the page may have been closed."""
        with suppress(CdpError):
            await self._cdp.send(method, params, session)
