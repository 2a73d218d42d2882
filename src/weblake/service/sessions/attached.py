"""One page of a browser that a client is attached to: its commands, its dialogs, and when it loads. Imports: cdp."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from weblake.service.sessions.cdp import Cdp, CdpError

#: Seconds that a page may take to answer a command.
_ANSWER = 30.0
#: What tells that the page in the main frame is about to be another.
_STARTS = {"Page.frameStartedNavigating", "Page.frameRequestedNavigation", "Page.frameStartedLoading"}
_SAME_DOCUMENT = {"sameDocument", "historySameDocument"}


class HandsError(Exception):
    """Something could not be done on a page; the text says what, why, and what to do next."""


class Attached:
    """A session with one page. Dialogs that it opens are answered, for they would stop everything else."""

    def __init__(self, cdp: Cdp, target: str, session: str) -> None:
        self.target = target
        #: What the page's dialogs said since this was last emptied.
        self.dialogs: list[str] = []
        self._cdp = cdp
        self._session = session
        self._news = asyncio.Event()
        self._starts = 0
        self._stops = 0
        self._gone = ""
        #: The main frame's documents that are loaded, by their loaders.
        self._loaded: set[str] = set()
        self._answers: set[asyncio.Task[None]] = set()
        self._forget = cdp.listen(self._hear)

    @classmethod
    async def attach(cls, cdp: Cdp, target: str) -> Attached:
        """Attaches to a page.

        Raises:
            HandsError: There is no such page any more.
        """
        try:
            reply = await cdp.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        except CdpError as error:
            raise HandsError(f"The page {target} is not there any more: {error}. List the pages that are.") from error
        page = cls(cdp, target, str(reply["sessionId"]))
        await page.send("Page.enable")
        await page.send("Page.setLifecycleEventsEnabled", {"enabled": True})
        return page

    async def detach(self) -> None:
        """Leaves the page as it is."""
        self._forget()
        for task in self._answers:
            task.cancel()
        with suppress(CdpError):
            await self._cdp.send("Target.detachFromTarget", {"sessionId": self._session})

    async def send(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """A command to the page.

        Raises:
            HandsError: It was refused, the page is gone, or does not answer.
        """
        if self._gone:
            raise HandsError(self._gone)
        try:
            async with asyncio.timeout(_ANSWER):
                return await self._cdp.send(method, params, self._session)
        except CdpError as error:
            raise HandsError(self._gone or str(error)) from error
        except TimeoutError as error:
            message = f"The page did not answer within {_ANSWER:g} s ({method}): a script may keep it busy. Reload it."
            raise HandsError(message) from error

    async def evaluate(self, expression: str, *, by_value: bool = True, gesture: bool = True) -> Any:
        """The value of some JavaScript, promises waited for; with `by_value` false, the remote object that holds it.

        Raises:
            HandsError: It threw.
        """
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": by_value, "userGesture": gesture}
        return _value(await self.send("Runtime.evaluate", {**asked, "replMode": True}), by_value)

    async def call(self, object_id: str, function: str, *arguments: object, by_value: bool = True) -> Any:
        """What a JavaScript function returns that is called with an element as `this`.

        Raises:
            HandsError: It threw.
        """
        asked = {
            "objectId": object_id,
            "functionDeclaration": function,
            "arguments": [{"value": argument} for argument in arguments],
            "awaitPromise": True,
            "returnByValue": by_value,
            "userGesture": True,
        }
        return _value(await self.send("Runtime.callFunctionOn", asked), by_value)

    async def loader(self) -> str:
        """The id of the load that the page's document came by: another document, another id."""
        return str((await self.send("Page.getFrameTree"))["frameTree"]["frame"]["loaderId"])

    async def loaded(self, loader: str, timeout_s: float) -> bool:
        """Waits until the document of this loader has loaded; False when it did not in time."""
        return await self._until(lambda: loader in self._loaded, timeout_s)

    def mark(self) -> tuple[int, int]:
        """A point in time, for `settle`."""
        return self._starts, self._stops

    async def settle(self, since: tuple[int, int], start_s: float, load_s: float) -> None:
        """Gives what was done since a mark a moment to start a load, and one that started some time to end."""
        if await self._until(lambda: self._starts > since[0], start_s):
            await self._until(lambda: self._stops > since[1], load_s)

    async def _until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not done() and not self._gone:
                    self._news.clear()
                    await self._news.wait()
        return done()

    def _hear(self, method: str, params: dict[str, Any], session: str | None) -> None:
        if method == "Target.detachedFromTarget" and params.get("sessionId") == self._session:
            self._gone = self._gone or "The page was closed. List the pages that are there, or open a new one."
        if session == self._session:
            if method == "Page.javascriptDialogOpening":
                self._answer(params)
            elif method == "Inspector.targetCrashed":
                self._gone = "The page crashed. Close it and open a new one."
            elif params.get("frameId") == self.target:
                # The id of a page is that of its main frame.
                self._hear_frame(method, params)
        self._news.set()

    def _hear_frame(self, method: str, params: dict[str, Any]) -> None:
        if method in _STARTS:
            self._starts += params.get("navigationType") not in _SAME_DOCUMENT
        elif method == "Page.frameStoppedLoading":
            self._stops += 1
        elif method == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])

    def _answer(self, params: dict[str, Any]) -> None:
        """Says yes to what only informs and to leaving a page, no to what asks."""
        kind = str(params.get("type"))
        yes = kind in {"alert", "beforeunload"}
        self.dialogs.append(f"{kind} ({'accepted' if yes else 'dismissed'}): {params.get('message')}")

        async def answer() -> None:
            with suppress(HandsError):
                await self.send("Page.handleJavaScriptDialog", {"accept": yes})

        task = asyncio.get_running_loop().create_task(answer())
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)


def _value(reply: dict[str, Any], by_value: bool) -> Any:
    if "exceptionDetails" in reply:
        details = reply["exceptionDetails"]
        thrown = details.get("exception", {})
        said = thrown.get("description") or thrown.get("value") or details.get("text")
        raise HandsError(str(said).partition("\n    at ")[0])
    result = reply["result"]
    if not by_value:
        return result
    # Numbers that JSON lacks come as texts.
    return result.get("value", result.get("unserializableValue"))
