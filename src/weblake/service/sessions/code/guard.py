"""Watches over a browser while code runs: which page is in front, and an end to loops that the code left in pages.

`page.evaluate("while (true) {}")` goes on when the code is killed, and a page that is busy takes no new client: whoever
is to end it has to be there before. Imports: attached, cdp, connection, pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from weblake.service.sessions.attached import HandsError
from weblake.service.sessions.cdp import CdpError
from weblake.service.sessions.code.connection import Connection, connected
from weblake.service.sessions.pages import front_page

#: Seconds that the browser may take to answer here.
_ANSWER = 5.0
#: Seconds in which a page shows that it is not in a loop.
_FREE = 1.0


class Guard:
    """A client of the browser that is attached to all of its pages, also to those that are still to come."""

    def __init__(self, cdp: Connection | None) -> None:
        self._cdp = cdp
        self._sessions: set[str] = set()
        if cdp is not None:
            cdp.listen(self._hear)

    async def watch(self) -> None:
        """Attaches to the pages.

        Raises:
            CdpError: The browser refuses.
        """
        if self._cdp is not None:
            asked = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
            await self._cdp.send("Target.setAutoAttach", asked)

    async def front(self) -> str | None:
        """The page in front. None where nobody says, which the code will hear when it connects itself."""
        with suppress(CdpError, HandsError, TimeoutError):
            async with asyncio.timeout(_ANSWER):
                return await front_page(self._cdp) if self._cdp else None
        return None

    async def free(self) -> None:
        """Ends what scripts do in pages that do not answer."""
        await asyncio.gather(*(self._free(session) for session in self._sessions))

    async def _free(self, session: str) -> None:
        assert self._cdp is not None
        with suppress(CdpError):
            try:
                async with asyncio.timeout(_FREE):
                    await self._cdp.send("Runtime.evaluate", {"expression": "1"}, session)
            except TimeoutError:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_FREE):
                        await self._cdp.send("Runtime.terminateExecution", None, session)

    def _hear(self, method: str, params: dict[str, Any], session: str | None) -> None:
        if method == "Target.attachedToTarget" and session is None and params["targetInfo"]["type"] == "page":
            self._sessions.add(params["sessionId"])
        elif method == "Target.detachedFromTarget":
            self._sessions.discard(params["sessionId"])


@asynccontextmanager
async def guarding(cdp_url: str) -> AsyncIterator[Guard]:
    """Watches over a browser until the end of the block; over none where there is none."""
    async with AsyncExitStack() as stack:
        guard = Guard(None)
        with suppress(CdpError, TimeoutError):
            async with asyncio.timeout(_ANSWER):
                guard = Guard(await stack.enter_async_context(connected(cdp_url)))
                await guard.watch()
        yield guard
