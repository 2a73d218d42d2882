"""Live view of a browser session: sends frames to a viewer and handles its input.

One LiveView serves one viewer over one connection, usually a WebSocket. The viewer receives frames, as binary messages
that are JPEGs, and JSON texts:

    {"type": "hello", "interactive": …}                                       once, first
    {"type": "page", "url", "title", "width", "height", "scale", "tab", "tabs"}  when any of it has changed; tab 0: none
    {"type": "dialog", "open": true, "kind", "text", "default"}               a dialog of the page is open
    {"type": "dialog", "open": false}                                         the dialog was closed
    {"type": "pong"}                                                          the answer to a ping
    {"type": "ended"}                                                         the browser has ended; the last message

The viewer sends the messages of viewer_messages. It acknowledges each frame with `taken`, also in a read-only view: the
next frame is sent after that, so that a slow connection shows the current state and not a backlog.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from weblake_service.sessions import viewer_messages
from weblake_service.sessions.cdp import Cdp, CdpError
from weblake_service.sessions.live_frames import Frame, FrameQueue
from weblake_service.sessions.live_tabs import LiveTabs

Receive = Callable[[], Awaitable[str | bytes | None]]

#: Maximum size of a frame, and its JPEG quality: text is readable, and a page has about 50 KB.
WIDTH, HEIGHT, QUALITY = 1280, 800, 60
#: Minimum seconds between two frames: a browser renders up to 60 a second.
_MIN_FRAME_S = 0.06
#: Seconds: the interval of polling for changes without an event; the timeout of a screenshot, for which polling waits;
#: the timeout of a viewer that draws; the time until an unanswered dialog is dismissed, which blocks its page.
_POLL_S, _SCREENSHOT_TIMEOUT_S, _DRAW_TIMEOUT_S, DIALOG_TIMEOUT_S = 0.5, 3.0, 5.0, 60.0
#: Limits of pending input events: beyond the first, pointer moves are dropped, and beyond the second, all events.
_MAX_PENDING_MOVES, _MAX_PENDING_EVENTS = 16, 256
#: Maximum characters of a dialog's text.
_MAX_DIALOG_CHARS = 2000


class LiveView:
    """One viewer of one browser.

    Args:
        cdp: A CDP client; other clients of the browser, such as its user's program, are not affected.
        interactive: Whether the viewer's input is sent to the browser. A read-only viewer can change nothing.
        on_input: Called for every input of an interactive viewer; watching does not count as use.
    """

    def __init__(self, cdp: Cdp, *, interactive: bool, on_input: Callable[[], None] = lambda: None) -> None:
        self._cdp = cdp
        self._interactive = interactive
        self._on_input = on_input
        self._tabs = LiveTabs()
        self._frames = FrameQueue(self._acknowledge)
        #: The attached page, and the CDP session id of the attachment.
        self._target: str | None = None
        self._session: str | None = None
        self._hidden = False
        self._dialog_since: float | None = None
        self._sent_at = 0.0
        self._pause: asyncio.TimerHandle | None = None
        #: Texts to send, the newest of each type.
        self._outbox: dict[str, dict[str, object]] = {}
        self._last_page_message: dict[str, object] = {}
        self._has_output, self._tab_changed = asyncio.Event(), asyncio.Event()
        self._inputs = 0
        self._running: set[asyncio.Task[None]] = set()

    async def run(
        self,
        receive: Receive,
        send_bytes: Callable[[bytes], Awaitable[object]],
        send_text: Callable[[str], Awaitable[object]],
    ) -> None:
        """Serve the viewer until the connection or the browser ends.

        Args:
            receive: Returns the viewer's next message; None after a disconnect.
            send_bytes: Sends a frame; returns only when its buffer has space.
            send_text: Sends a text.
        """
        deaf = self._cdp.listen(self._on_event)
        self._queue_message({"type": "hello", "interactive": self._interactive})
        parts = [
            asyncio.create_task(part)
            for part in (
                self._read_viewer(receive),
                self._write_viewer(send_bytes, send_text),
                self._follow_tabs(),
                self._poll_page(),
            )
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            errors = [error for task in done if (error := task.exception()) is not None]
            if any(isinstance(error, CdpError) for error in errors):
                with suppress(Exception):  # the viewer may be disconnected as well
                    await send_text(json.dumps({"type": "ended"}))
            elif errors:
                raise errors[0]
        finally:
            deaf()
            if self._pause is not None:
                self._pause.cancel()
            self._detach()
            # Pending commands are short, and closing the view does not wait for them.
            for task in parts:
                task.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            if self._running:
                await asyncio.wait(self._running, timeout=1)
            for task in self._running:
                task.cancel()

    # Messages to the viewer

    async def _read_viewer(self, receive: Receive) -> None:
        while (raw := await receive()) is not None:
            message = viewer_messages.read(raw)
            if isinstance(message, viewer_messages.Ping):
                self._queue_message({"type": "pong"})
            elif isinstance(message, viewer_messages.Taken):
                if self._frames.acknowledged or self._pause is not None:
                    continue
                early = self._sent_at + _MIN_FRAME_S - monotonic()
                self._pause = asyncio.get_running_loop().call_later(max(early, 0), self._on_drawn)
            elif message is not None and self._interactive:
                self._on_input()
                self._handle_message(message)

    async def _write_viewer(
        self, send_bytes: Callable[[bytes], Awaitable[object]], send_text: Callable[[str], Awaitable[object]]
    ) -> None:
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            picture = self._frames.next()
            if picture is not None:
                self._queue_page_message()  # the frame's size is sent before the frame
            try:
                while self._outbox:
                    await send_text(json.dumps(self._outbox.pop(next(iter(self._outbox)))))
                if picture is not None:
                    self._sent_at = monotonic()
                    await send_bytes(picture.data)
            except Exception:  # noqa: BLE001
                return  # disconnected; each kind of connection raises its own exception

    def _queue_message(self, news: dict[str, object]) -> None:
        self._outbox.pop(str(news["type"]), None)
        self._outbox[str(news["type"])] = news
        self._has_output.set()

    def _queue_page_message(self) -> None:
        url, title = self._tabs.pages.get(self._target or "", ("", ""))
        shown = self._frames.shown
        news: dict[str, object] = {
            **{"type": "page", "url": url, "title": title},
            "width": shown.page_width if shown else 0,
            "height": shown.page_height if shown else 0,
            "scale": round(shown.scale, 4) if shown else 1,
            **{"tab": self._tabs.number, "tabs": len(self._tabs.pages)},
        }
        if news != self._last_page_message:
            self._last_page_message = news
            self._queue_message(news)

    def _on_drawn(self) -> None:
        self._pause = None
        self._frames.on_drawn()
        self._has_output.set()

    # Messages from the viewer

    def _handle_message(self, message: viewer_messages.Message) -> None:
        match message:
            case viewer_messages.Answer():
                self._answer_dialog(accept=message.accept, text=message.text)
            case viewer_messages.Tab():
                self._show_tab(message.number)
            case _ if self._dialog_since is not None:
                return  # the page processes nothing before the dialog is answered
            case viewer_messages.Navigate():
                if message.is_web():
                    self._send_command("Page.navigate", {"url": message.url})
            case viewer_messages.Go():
                self._start(self._go_in_history(message.where))
            case _:
                shown = self._frames.shown
                order = viewer_messages.command(message, shown.scale if shown else 1.0)
                moves = isinstance(message, viewer_messages.Mouse) and message.what == "move"
                if order is not None and self._inputs < (_MAX_PENDING_MOVES if moves else _MAX_PENDING_EVENTS):
                    self._inputs += 1
                    self._send_command(*order, finally_=self._input_done)

    def _input_done(self) -> None:
        self._inputs -= 1

    def _answer_dialog(self, *, accept: bool, text: str = "") -> None:
        if self._dialog_since is not None:
            self._send_command("Page.handleJavaScriptDialog", {"accept": accept, "promptText": text})

    def _show_tab(self, number: int) -> None:
        targets = list(self._tabs.pages)
        if number <= len(targets):
            self._tabs.follow(targets[number - 1])
            self._start(self._command("Target.activateTarget", {"targetId": targets[number - 1]}))
            self._tab_changed.set()

    async def _go_in_history(self, where: str) -> None:
        session = self._session
        if where == "reload":
            return await self._command("Page.reload", {}, session)
        history = await self._cdp.send("Page.getNavigationHistory", None, session)
        at = int(history["currentIndex"]) + (1 if where == "forward" else -1)
        if 0 <= at < len(history["entries"]):
            await self._command("Page.navigateToHistoryEntry", {"entryId": history["entries"][at]["id"]}, session)

    # Events of the browser

    def _on_event(self, method: str, params: dict[str, Any], session: str | None) -> None:
        match method:
            case "Target.targetCreated" | "Target.targetInfoChanged":
                if self._tabs.on_target_info(params["targetInfo"]):
                    self._tab_changed.set()
            case "Target.targetDestroyed":
                if self._tabs.on_target_destroyed(str(params["targetId"])):
                    self._tab_changed.set()
            case "Target.detachedFromTarget" if self._session is not None and params["sessionId"] == self._session:
                self._session = self._target = None  # another client has detached it, or it was closed
                self._tab_changed.set()
        if session is None or session != self._session:
            return
        match method:
            case "Page.screencastFrame":
                self._frames.on_screencast_frame(params)
                self._has_output.set()
            case "Page.screencastVisibilityChanged":
                self._hidden = not params["visible"]
            case "Page.javascriptDialogOpening":
                self._dialog_since = monotonic()
                text, default = (str(params.get(name, ""))[:_MAX_DIALOG_CHARS] for name in ("message", "defaultPrompt"))
                self._queue_message(
                    {"type": "dialog", "open": True, "kind": str(params["type"]), "text": text, "default": default}
                )
            case "Page.javascriptDialogClosed":
                self._on_dialog_closed()

    def _on_dialog_closed(self) -> None:
        if self._dialog_since is not None:
            self._dialog_since = None
            self._queue_message({"type": "dialog", "open": False})

    async def _follow_tabs(self) -> None:
        # In this order: after the second command the browser reports all existing pages, one by one and in any order.
        self._tabs.add_existing((await self._cdp.send("Target.getTargets"))["targetInfos"])
        await self._cdp.send("Target.setDiscoverTargets", {"discover": True})
        while True:
            if self._tabs.followed != self._target:
                await self._attach_to(self._tabs.followed)
            self._queue_page_message()
            await self._tab_changed.wait()
            self._tab_changed.clear()

    async def _attach_to(self, target: str | None) -> None:
        self._detach()
        self._target = target
        if target is None:
            return
        try:
            reply = await self._cdp.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        except CdpError:
            # The page may have been closed meanwhile. If the browser has ended, this fails too, which ends the view.
            await self._cdp.send("Target.getTargets")
            self._tabs.on_target_destroyed(target)
            self._tab_changed.set()
            return
        self._session = str(reply["sessionId"])
        # Not awaited: a page with an open dialog responds only after the dialog is closed.
        self._send_command("Page.enable")
        self._send_command(
            "Page.startScreencast",
            # Every frame, since a page that changes once sends only one; the viewer's acknowledgements limit the rate.
            {"format": "jpeg", "quality": QUALITY, "maxWidth": WIDTH, "maxHeight": HEIGHT, "everyNthFrame": 1},
        )

    def _detach(self) -> None:
        """Detach from the page; dismiss its open dialog first, because the page would otherwise stay blocked."""
        if self._interactive:
            self._answer_dialog(accept=False)
        session, self._session, self._hidden = self._session, None, False
        self._frames.clear()
        self._on_dialog_closed()
        if session is not None:
            self._start(self._command("Target.detachFromTarget", {"sessionId": session}))

    async def _poll_page(self) -> None:
        """Poll for changes without an event: a new title, a still page, an unresponsive viewer, an ended browser."""
        while True:
            await asyncio.sleep(_POLL_S)
            # Fails if the browser has ended. A new title causes no event of its own.
            infos = (await self._cdp.send("Target.getTargets"))["targetInfos"]
            for info in infos:
                if self._tabs.on_target_info(info):
                    self._tab_changed.set()
            if self._dialog_since is not None and monotonic() - self._dialog_since > DIALOG_TIMEOUT_S:
                self._answer_dialog(accept=False)
            if not self._frames.acknowledged and monotonic() - self._sent_at > _DRAW_TIMEOUT_S:
                self._on_drawn()
            if self._needs_screenshot():
                await self._take_screenshot()

    def _needs_screenshot(self) -> bool:
        if self._session is None or self._dialog_since is not None or not self._frames.acknowledged:
            return False
        # A still page and a page in the background send no frames, and the last frame of a page that changed faster
        # than the viewer's connection may be missing.
        return self._frames.newest is None and (self._frames.behind or self._hidden)

    async def _take_screenshot(self) -> None:
        session = self._session
        with suppress(CdpError, TimeoutError, KeyError):
            async with asyncio.timeout(_SCREENSHOT_TIMEOUT_S):
                layout = await self._cdp.send("Page.getLayoutMetrics", None, session)
                view = layout["cssVisualViewport"]
                width, height = float(view["clientWidth"]), float(view["clientHeight"])
                scale = min(1.0, WIDTH / max(width, 1), HEIGHT / max(height, 1))
                clip = {"x": view["pageX"], "y": view["pageY"], "width": width, "height": height, "scale": scale}
                how: dict[str, object] = {"format": "jpeg", "quality": QUALITY, "clip": clip}
                shot = await self._cdp.send("Page.captureScreenshot", how, session)
                if session == self._session:
                    self._frames.on_screenshot(Frame.from_base64(str(shot["data"]), width, height))
                    self._has_output.set()

    # Commands without a waiting caller

    def _acknowledge(self, number: int) -> None:
        self._send_command("Page.screencastFrameAck", {"sessionId": number}, finally_=self._frames.on_acknowledged)

    def _send_command(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        finally_: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a command to the followed page, in the order of the calls, without waiting for the response."""
        self._start(self._command(method, params, self._session, finally_))

    async def _command(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        session: str | None = None,
        finally_: Callable[[], None] = lambda: None,
    ) -> None:
        try:
            await self._cdp.send(method, params, session)
        except CdpError:
            pass  # the page is closed, or the browser has ended, which `_poll_page` detects
        finally:
            finally_()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_ignore_cdp_errors(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


async def _ignore_cdp_errors(work: Coroutine[Any, Any, None]) -> None:
    with suppress(CdpError):
        await work
