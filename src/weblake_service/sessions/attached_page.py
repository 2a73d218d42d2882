"""One attached page: sends commands, handles dialogs, tracks navigation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from weblake import aio
from weblake_service.sessions.cdp import Cdp, CdpError

#: Timeout of a command in seconds.
_COMMAND_TIMEOUT_S = 30.0
#: Seconds in which a requested page must begin to load.
_BEGIN_TIMEOUT_S = 2.0


class PageActionError(Exception):
    """An action failed; the message says what failed, why, and what to do next."""


@dataclass(frozen=True)
class NavigationMark:
    """A point in the navigation history of a page: counts of requested, started and finished navigations."""

    requested: int
    started: int
    committed: int


class AttachedPage:
    """A CDP session that is attached to one page. It answers dialogs, which would otherwise block the page."""

    def __init__(self, cdp: Cdp, target: str, session: str) -> None:
        self.target = target
        #: The texts of dialogs since this list was last cleared.
        self.dialogs: list[str] = []
        self._cdp = cdp
        self._session = session
        self._changed = asyncio.Event()
        # Navigation counts of the main frame, and whether it is loading.
        self._requested = 0
        self._started = 0
        self._committed = 0
        self._loading = False
        self._closed_reason = ""
        #: The loader ids of the main frame's documents that have finished loading.
        self._loaded: set[str] = set()
        #: Commands in progress.
        self._sent: set[asyncio.Task[dict[str, Any]]] = set()
        self._forget = cdp.listen(self._on_event)

    @classmethod
    async def attach(cls, cdp: Cdp, target: str, *, watch: bool = True) -> AttachedPage:
        """Attach to a page.

        :param watch: listens for load events, and answers dialogs

        Raises:
            PageActionError: The page no longer exists.
        """
        try:
            reply = await cdp.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        except CdpError as error:
            raise PageActionError(
                f"The page {target} is not there any more: {error}. List the pages that are."
            ) from error
        page = cls(cdp, target, str(reply["sessionId"]))
        if watch:
            # Not awaited: commands are processed in order, and a busy page can still be navigated.
            page._start("Page.enable", {})
            page._start("Page.setLifecycleEventsEnabled", {"enabled": True})
        return page

    async def detach(self) -> None:
        """Detach; the page is not changed."""
        self._forget()
        for task in self._sent:
            task.cancel()
        with suppress(CdpError):
            await self._cdp.send("Target.detachFromTarget", {"sessionId": self._session})

    async def send(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Send a command to the page and return its result.

        Raises:
            PageActionError: The command was refused, the page is closed, or it does not respond.
        """
        if self._closed_reason:
            raise PageActionError(self._closed_reason)
        task = self._start(method, params)
        try:
            async with aio.timeout(_COMMAND_TIMEOUT_S):
                # Not `await task`: that could not distinguish a cancellation of this task from one of the command.
                await asyncio.wait([task])
            if task.cancelled():  # cancelled by `_end`: a closed page does not respond
                raise PageActionError(self._closed_reason)
            return task.result()
        except CdpError as error:
            raise PageActionError(self._closed_reason or str(error)) from error
        except TimeoutError as error:
            waited = f"{_COMMAND_TIMEOUT_S:g} s ({method})"
            message = f"The page did not answer within {waited}: a script may keep it busy. Reload it."
            raise PageActionError(message) from error
        finally:
            task.cancel()

    def _start(self, method: str, params: Mapping[str, object] | None) -> asyncio.Task[dict[str, Any]]:
        task = asyncio.ensure_future(self._cdp.send(method, params, self._session))
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)
        # Retrieve the exception, so that asyncio does not log it for a command without a waiting caller.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def evaluate(self, expression: str, *, by_value: bool = True, gesture: bool = True) -> Any:
        """Return the value of a JavaScript expression; promises are awaited.

        With `by_value` false, the remote object of the value is returned.

        Raises:
            PageActionError: It threw, or the page was closed before a promise was settled.
        """
        command_params = {
            "expression": expression,
            "awaitPromise": True,
            "returnByValue": by_value,
            "userGesture": gesture,
        }
        value = _value(await self.send("Runtime.evaluate", {**command_params, "replMode": True}), by_value)
        if by_value and value == {}:
            # In replMode, a page that is being closed returns its pending promise, which is an empty object by value.
            await self.send("Runtime.evaluate", {"expression": "0"})
        return value

    async def call(self, object_id: str, function: str, *arguments: object, by_value: bool = True) -> Any:
        """Return the result of a JavaScript function that is called with an element as `this`.

        Raises:
            PageActionError: It threw.
        """
        command_params = {
            "objectId": object_id,
            "functionDeclaration": function,
            "arguments": [{"value": argument} for argument in arguments],
            "awaitPromise": True,
            "returnByValue": by_value,
            "userGesture": True,
        }
        return _value(await self.send("Runtime.callFunctionOn", command_params), by_value)

    async def loader(self) -> str:
        """Return the loader id of the page's document; each document load has its own."""
        return str((await self.send("Page.getFrameTree"))["frameTree"]["frame"]["loaderId"])

    async def loaded(self, loader: str, timeout_s: float) -> bool:
        """Wait until the document of this loader has loaded; return False after the timeout."""
        return await self._wait_until(lambda: loader in self._loaded, timeout_s)

    def navigation_mark(self) -> NavigationMark:
        """Return the current mark, for `wait_for_load` and `wait_for_navigation`."""
        return NavigationMark(self._requested, self._started, self._committed)

    async def wait_for_load(self, since: NavigationMark, start_s: float, load_s: float) -> None:
        """Wait `start_s` seconds for a navigation after a mark to start, and `load_s` seconds for it to load."""
        if not await self._wait_until(
            lambda: self._requested > since.requested or self._started > since.started, start_s
        ):
            return
        # A requested navigation may end without a load, for example if the URL is blocked.
        if await self._wait_until(lambda: self._started > since.started, _BEGIN_TIMEOUT_S):
            await self._wait_until(lambda: not self._loading, load_s)

    async def wait_for_navigation(self, since: NavigationMark, load_s: float) -> None:
        """Wait for a history navigation after a mark to start and to load."""
        if await self._wait_until(lambda: self._committed > since.committed, load_s):
            await self._wait_until(lambda: not self._loading, load_s)

    async def _wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
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
                # The id of a page equals the id of its main frame.
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
        """Accept alert and beforeunload dialogs, dismiss confirm and prompt dialogs."""
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
        description = thrown.get("description") or thrown.get("value") or details.get("text")
        raise PageActionError(str(description).partition("\n    at ")[0])
    result = reply["result"]
    if not by_value:
        return result
    # CDP returns numbers that JSON cannot represent as strings.
    return result.get("value", result.get("unserializableValue"))
