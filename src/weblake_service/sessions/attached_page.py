"""One attached page: sends commands, handles dialogs, tracks navigation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from weblake import aio
from weblake_service.sessions.cdp import Cdp, CdpError

#: Seconds that a page may take to answer a command.
_ANSWER = 30.0
#: Seconds in which a page that was asked for begins to load.
_BEGIN = 2.0


class PageActionError(Exception):
    """Something could not be done on a page; the text says what, why, and what to do next."""


@dataclass(frozen=True)
class NavigationMark:
    """A point in the life of a page: how often it asked for another, began to load one, and got to one."""

    requested: int
    started: int
    committed: int


class AttachedPage:
    """A session with one page. Dialogs that it opens are answered, for they would stop everything else."""

    def __init__(self, cdp: Cdp, target: str, session: str) -> None:
        self.target = target
        #: What the page's dialogs said since this was last emptied.
        self.dialogs: list[str] = []
        self._cdp = cdp
        self._session = session
        self._changed = asyncio.Event()
        # What the main frame did so far, each counted; and whether it loads just now.
        self._requested = 0
        self._started = 0
        self._committed = 0
        self._loading = False
        self._closed_reason = ""
        #: The main frame's documents that are loaded, by their loaders.
        self._loaded: set[str] = set()
        #: Commands that are under way.
        self._sent: set[asyncio.Task[dict[str, Any]]] = set()
        self._forget = cdp.listen(self._on_event)

    @classmethod
    async def attach(cls, cdp: Cdp, target: str, *, watch: bool = True) -> AttachedPage:
        """Attach to a page.

        :param watch: hears of loads, and answers dialogs

        Raises:
            PageActionError: There is no such page any more.
        """
        try:
            reply = await cdp.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        except CdpError as error:
            raise PageActionError(
                f"The page {target} is not there any more: {error}. List the pages that are."
            ) from error
        page = cls(cdp, target, str(reply["sessionId"]))
        if watch:
            # Not waited for: commands are taken in their order, and a page that is busy can still be sent elsewhere.
            page._start("Page.enable", {})
            page._start("Page.setLifecycleEventsEnabled", {"enabled": True})
        return page

    async def detach(self) -> None:
        """Leave the page as it is."""
        self._forget()
        for task in self._sent:
            task.cancel()
        with suppress(CdpError):
            await self._cdp.send("Target.detachFromTarget", {"sessionId": self._session})

    async def send(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return a command to the page.

        Raises:
            PageActionError: It was refused, the page is gone, or does not answer.
        """
        if self._closed_reason:
            raise PageActionError(self._closed_reason)
        task = self._start(method, params)
        try:
            async with aio.timeout(_ANSWER):
                # Not `await task`: a cancellation of this task and one of the command could not be told apart.
                await asyncio.wait([task])
            if task.cancelled():  # by `_end`: nobody answers for a page that is gone
                raise PageActionError(self._closed_reason)
            return task.result()
        except CdpError as error:
            raise PageActionError(self._closed_reason or str(error)) from error
        except TimeoutError as error:
            message = f"The page did not answer within {_ANSWER:g} s ({method}): a script may keep it busy. Reload it."
            raise PageActionError(message) from error
        finally:
            task.cancel()

    def _start(self, method: str, params: Mapping[str, object] | None) -> asyncio.Task[dict[str, Any]]:
        task = asyncio.ensure_future(self._cdp.send(method, params, self._session))
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)
        # One that nobody waits for may fail; whoever waits hears it all the same.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def evaluate(self, expression: str, *, by_value: bool = True, gesture: bool = True) -> Any:
        """Return the value of some JavaScript, promises waited for; with `by_value` false, the remote object that holds it.

        Raises:
            PageActionError: It threw.
        """
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": by_value, "userGesture": gesture}
        return _value(await self.send("Runtime.evaluate", {**asked, "replMode": True}), by_value)

    async def call(self, object_id: str, function: str, *arguments: object, by_value: bool = True) -> Any:
        """What a JavaScript function returns that is called with an element as `this`.

        Raises:
            PageActionError: It threw.
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
        """Return the id of the load that the page's document came by: another document, another id."""
        return str((await self.send("Page.getFrameTree"))["frameTree"]["frame"]["loaderId"])

    async def loaded(self, loader: str, timeout_s: float) -> bool:
        """Wait until the document of this loader has loaded; False when it did not in time."""
        return await self._until(lambda: loader in self._loaded, timeout_s)

    def navigation_mark(self) -> NavigationMark:
        """Now, for `settle` and `arrive`."""
        return NavigationMark(self._requested, self._started, self._committed)

    async def wait_for_load(self, since: NavigationMark, start_s: float, load_s: float) -> None:
        """Give what was done since a mark a moment to ask for another page, and that some time to load."""
        if not await self._until(lambda: self._requested > since.requested or self._started > since.started, start_s):
            return
        # What was asked for may come to nothing, as an address does that nobody may go to.
        if await self._until(lambda: self._started > since.started, _BEGIN):
            await self._until(lambda: not self._loading, load_s)

    async def wait_for_navigation(self, since: NavigationMark, load_s: float) -> None:
        """Give a step of the history some time to get where it leads, and to load."""
        if await self._until(lambda: self._committed > since.committed, load_s):
            await self._until(lambda: not self._loading, load_s)

    async def _until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        with suppress(TimeoutError):
            async with aio.timeout(timeout_s):
                while not done() and not self._closed_reason:
                    self._changed.clear()
                    await self._changed.wait()
        return done()

    def _on_event(self, method: str, params: dict[str, Any], session: str | None) -> None:
        if method == "Target.detachedFromTarget" and params.get("sessionId") == self._session:
            self._end("The page was closed. List the pages that are there, or open a new one.")
        if session == self._session:
            if method == "Page.javascriptDialogOpening":
                self._handle_dialog(params)
            elif method == "Inspector.targetCrashed":
                self._end("The page crashed. Close it and open a new one.")
            elif method == "Page.frameNavigated":
                self._committed += params["frame"]["id"] == self.target
            elif params.get("frameId") == self.target:
                # The id of a page is that of its main frame.
                self._on_frame_event(method, params)
        self._changed.set()

    def _on_frame_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.frameRequestedNavigation":
            self._requested += params.get("disposition") == "currentTab"
        elif method == "Page.frameStartedLoading":
            self._started += 1
            self._loading = True
        elif method == "Page.frameStoppedLoading":
            self._loading = False
        elif method == "Page.navigatedWithinDocument":
            self._committed += 1
        elif method == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])

    def _handle_dialog(self, params: dict[str, Any]) -> None:
        """Say yes to what only informs and to leaving a page, no to what asks."""
        kind = str(params.get("type"))
        yes = kind in {"alert", "beforeunload"}
        self.dialogs.append(f"{kind} ({'accepted' if yes else 'dismissed'}): {params.get('message')}")

        self._start("Page.handleJavaScriptDialog", {"accept": yes})

    def _end(self, why: str) -> None:
        self._closed_reason = self._closed_reason or why
        for task in self._sent:
            task.cancel()


def _value(reply: dict[str, Any], by_value: bool) -> Any:
    if "exceptionDetails" in reply:
        details = reply["exceptionDetails"]
        thrown = details.get("exception", {})
        said = thrown.get("description") or thrown.get("value") or details.get("text")
        raise PageActionError(str(said).partition("\n    at ")[0])
    result = reply["result"]
    if not by_value:
        return result
    # Numbers that JSON lacks come as texts.
    return result.get("value", result.get("unserializableValue"))
