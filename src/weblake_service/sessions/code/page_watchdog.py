"""Watches the pages of a browser: tracks the page in front, ends loops that code left behind, answers dialogs.

`page.evaluate("while (true) {}")` continues after its code is killed, and a busy page accepts no new client, so the
client that ends the loop must already be attached. A dialog that opens while no client listens blocks its page forever;
an unanswered dialog is answered here, after a delay that lets other clients answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

from weblake import aio
from weblake_service.sessions.attached_page import PageActionError
from weblake_service.sessions.cdp import Cdp, CdpError
from weblake_service.sessions.open_pages import front_page

#: Timeout of the browser's responses in seconds.
_COMMAND_TIMEOUT_S = 5.0
#: Seconds in which a page must respond to be considered not in a loop.
_RESPONSIVE_S = 1.0
#: Seconds after which a dialog is considered unanswered.
_DIALOG_TIMEOUT_S = 5.0


class PageWatchdog:
    """Attaches to all current and future pages of a browser; does nothing if there is no browser.

    One watchdog can serve a session for its whole lifetime, including all executions in it.
    """

    def __init__(self, cdp: Cdp | None) -> None:
        self._cdp = cdp
        self._sessions: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._viewers = 0
        #: Set while no viewer can answer a dialog.
        self._unseen = asyncio.Event()
        self._unseen.set()
        if cdp is not None:
            cdp.listen(self._on_event)

    async def start(self) -> None:
        """Attach to the existing pages and to every new one.

        Raises:
            CdpError: The browser refuses.
        """
        if self._cdp is not None:
            command_params = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
            await self._cdp.send("Target.setAutoAttach", command_params)

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

    def stop(self) -> None:
        """Stop watching."""
        for key in list(self._tasks):
            self._cancel(key)

    async def front(self) -> str | None:
        """Return the page in front. None if unknown; the code then gets the error when it connects."""
        with suppress(CdpError, PageActionError, TimeoutError):
            async with aio.timeout(_COMMAND_TIMEOUT_S):
                return await front_page(self._cdp) if self._cdp else None
        return None

    async def unblock(self) -> None:
        """Terminate scripts in pages that do not respond."""
        await asyncio.gather(*(self._unblock_page(session) for session in self._sessions))

    async def _unblock_page(self, session: str) -> None:
        assert self._cdp is not None
        with suppress(CdpError):
            try:
                async with aio.timeout(_RESPONSIVE_S):
                    await self._cdp.send("Runtime.evaluate", {"expression": "1"}, session)
            except TimeoutError:
                with suppress(TimeoutError):
                    async with aio.timeout(_RESPONSIVE_S):
                        await self._cdp.send("Runtime.terminateExecution", None, session)

    def _send_in_background(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background, one task per key; errors are ignored."""
        self._cancel(key)
        self._tasks[key] = asyncio.ensure_future(work)

    def _cancel(self, key: str) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def _attach(self, session: str) -> None:
        assert self._cdp is not None
        with suppress(CdpError):
            await self._cdp.send("Page.enable", None, session)

    async def _handle_dialog(self, session: str, kind: object) -> None:
        assert self._cdp is not None
        await asyncio.sleep(_DIALOG_TIMEOUT_S)
        await self._unseen.wait()
        with suppress(CdpError):
            yes = {"accept": kind in {"alert", "beforeunload"}}
            await self._cdp.send("Page.handleJavaScriptDialog", yes, session)

    def _on_event(self, method: str, params: dict[str, Any], session: str | None) -> None:
        if method == "Target.attachedToTarget" and session is None and params["targetInfo"]["type"] == "page":
            self._sessions.add(params["sessionId"])
            self._send_in_background(f"enter {params['sessionId']}", self._attach(params["sessionId"]))
        elif session in self._sessions and method == "Page.javascriptDialogOpening":
            self._send_in_background(f"answer {session}", self._handle_dialog(str(session), params.get("type")))
        elif method == "Page.javascriptDialogClosed":
            self._cancel(f"answer {session}")
        elif method == "Target.detachedFromTarget":
            self._sessions.discard(params["sessionId"])
            for key in ("enter", "answer"):
                self._cancel(f"{key} {params['sessionId']}")


@asynccontextmanager
async def watchdog(cdp_url: str) -> AsyncIterator[PageWatchdog]:
    """Yield a watchdog for a browser; an inactive one if there is no browser."""
    from weblake_service.sessions.code.connection import open_connection

    async with AsyncExitStack() as stack:
        guard = PageWatchdog(None)
        with suppress(CdpError, TimeoutError):
            async with aio.timeout(_COMMAND_TIMEOUT_S):
                guard = PageWatchdog(await stack.enter_async_context(open_connection(cdp_url)))
                await guard.start()
        try:
            yield guard
        finally:
            guard.stop()
