"""Multiplexes the CDP clients of one Chromium over one pipe.

Each client gets a browser session (`Target.attachToBrowserTarget`) that behaves like a connection of its own: it sees
only the sessions that it opened, and its settings end with it.

Chromium's own pages, such as its developer tools, have more rights than pages of the web: they read files of this
machine. A page can become one at any time, because Chromium executes its keyboard shortcuts, so no client may send
commands to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from weblake_service.sessions.cdp import CdpError, Listener
from weblake_service.sessions.chromium_process import ChromiumProcess


class Message(msgspec.Struct, omit_defaults=True):
    """A CDP message, of which only the ids for routing are parsed."""

    id: int | None = None
    method: str | None = None
    session: str | None = msgspec.field(default=None, name="sessionId")
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


#: Receives the response to a command, or None if the browser has ended.
_Reply = Callable[[Message | None], None]
#: Schemes of pages of the web; all others are Chromium's own.
_WEB_SCHEMES = ("http:", "https:", "about:", "data:", "blob:", "javascript:", "chrome-error:")
#: Types of targets that are Chromium's own unless they have a URL of the web.
_OWN_TYPES = frozenset(["other", "browser_ui"])
_TARGET_EVENTS = frozenset(["Target.targetCreated", "Target.targetInfoChanged", "Target.attachedToTarget"])
#: Commands that bring a page to the front.
_ACTIVATE_COMMANDS = frozenset(["Target.activateTarget", "Page.bringToFront"])
#: Commands that every target accepts.
_HARMLESS_COMMANDS = frozenset(["Page.close", "Runtime.runIfWaitingForDebugger"])
_DECODER = msgspec.json.Decoder(Message)
_ENCODER = msgspec.json.Encoder()


class CdpMultiplexer:
    """The CDP clients of one browser."""

    def __init__(self, chromium: ChromiumProcess) -> None:
        self._chromium = chromium
        self._last = 0
        self._waiting: dict[int, _Reply] = {}
        self._clients: dict[str, CdpClient] = {}
        #: The targets of the sessions, and those that are Chromium's own.
        self._targets: dict[str, str] = {}
        self._own_targets: set[str] = set()
        #: The pages, the one that was opened or activated last at the end.
        self._pages: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: asyncio.Task[None] | None = None
        chromium.on_message(self._on_message)
        self._end = asyncio.get_running_loop().create_task(self._wait_for_exit())

    @property
    def active_page(self) -> str | None:
        """Return the target id of the page that a client has opened or activated last; None if there is no page."""
        return next(reversed(self._pages), None)

    async def client(self) -> CdpClient:
        """Return a new client without open sessions.

        Raises:
            CdpError: The browser has ended.
        """
        reply = await self._request(Message(method="Target.attachToBrowserTarget", params=msgspec.Raw(b"{}")))
        root: str = reply["sessionId"]
        client = CdpClient(self, root)
        self._clients[root] = client
        return client

    async def aclose(self) -> None:
        """Close all clients; the caller ends the browser itself."""
        if self._end is not None:
            self._end.cancel()
            await asyncio.gather(self._end, return_exceptions=True)
        self._fail_pending()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _request(self, message: Message) -> dict[str, Any]:
        """Send a command of the multiplexer and return its result."""
        answered: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()

        def reply(answer: Message | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        number = await self._send(message, reply)
        try:
            answer = await answered
        finally:
            self._waiting.pop(number, None)
        if answer is None:
            raise CdpError("The browser is gone.")
        if answer.error:
            raise CdpError(f"{message.method}: {msgspec.json.decode(answer.error).get('message', 'refused')}")
        result: dict[str, Any] = msgspec.json.decode(answer.result) if answer.result else {}
        return result

    async def _send(self, message: Message, reply: _Reply) -> int:
        """Send a command under a new id of this pipe."""
        if message.method in _ACTIVATE_COMMANDS:
            target = self._targets.get(message.session or "")
            if message.method == "Target.activateTarget":
                target = msgspec.json.decode(message.params, type=_Activated).target
            if target in self._pages:
                self._pages[target] = self._pages.pop(target)
        self._last += 1
        number = self._last
        self._waiting[number] = reply
        message.id = number
        try:
            await self._chromium.send(_ENCODER.encode(message))
        except (ConnectionError, RuntimeError) as error:
            self._waiting.pop(number, None)
            raise CdpError("The browser is gone.") from error
        return number

    def _on_message(self, raw: bytes) -> None:
        message = _DECODER.decode(raw)
        if message.id is not None:
            reply = self._waiting.pop(message.id, None)
            if reply is not None:
                reply(message)
            return
        owner = self._clients.get(message.session or "")
        if message.method in _TARGET_EVENTS:
            self._on_target(message)
        elif message.method == "Target.targetDestroyed":
            destroyed = msgspec.json.decode(message.params, type=_Destroyed).target
            self._own_targets.discard(destroyed)
            self._pages.pop(destroyed, None)
        if message.method == "Target.attachedToTarget":
            if owner is not None:
                self._clients[_session_in(message)] = owner
        elif message.method == "Target.detachedFromTarget":
            self._targets.pop(_session_in(message), None)
            gone = self._clients.pop(_session_in(message), None)
            if gone is not None and gone.root == _session_in(message):
                gone.on_disconnect()
        if owner is not None:
            owner.on_event(message)

    def require_web_page(self, method: str | None, session: str | None) -> None:
        """Check that a session's page is no page of Chromium's own.

        Raises:
            CdpError: It is one.
        """
        if method not in _HARMLESS_COMMANDS and self._targets.get(session or "") in self._own_targets:
            raise CdpError(f"{str(method)[:100]} is for pages of the web; this page is the browser's own. Close it.")

    def _on_target(self, message: Message) -> None:
        """Record the target of a new session, and whether a target is Chromium's own."""
        event = msgspec.json.decode(message.params, type=_TargetEvent)
        if event.session is not None:
            self._targets[event.session] = event.info.id
        if event.info.is_own:
            self._own_targets.add(event.info.id)
            self._pages.pop(event.info.id, None)
        else:
            self._own_targets.discard(event.info.id)
            if event.info.type == "page":
                self._pages.setdefault(event.info.id)

    def _forget(self, client: CdpClient) -> None:
        """Close a client's sessions."""
        if not any(one is client for one in self._clients.values()):
            return
        self._clients = {session: one for session, one in self._clients.items() if one is not client}
        self._targets = {session: target for session, target in self._targets.items() if session in self._clients}
        if self._chromium.gone.is_set():
            return
        bye = msgspec.json.encode({"sessionId": client.root})
        task = asyncio.get_running_loop().create_task(
            self._detach(Message(method="Target.detachFromTarget", params=msgspec.Raw(bye)))
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _detach(self, message: Message) -> None:
        with suppress(CdpError):
            await self._request(message)

    async def _wait_for_exit(self) -> None:
        await self._chromium.gone.wait()
        self._fail_pending()

    def _fail_pending(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            reply(None)
        for client in {id(one): one for one in self._clients.values()}.values():
            client.on_disconnect()
        self._clients.clear()


class CdpClient:
    """A CDP client; see cdp.py for the interface, and `forward` for relaying a client that speaks CDP itself."""

    def __init__(self, mux: CdpMultiplexer, root: str) -> None:
        self._mux = mux
        self._listeners: list[Listener] = []
        self._raw: Callable[[Message | None], None] | None = None
        #: The id of the browser session of this client.
        self.root = root
        self.gone = False

    async def send(
        self, method: str, params: Mapping[str, object] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Send a command and return its result.

        Raises:
            CdpError: It was refused, or the browser has ended.
        """
        if self.gone:
            raise CdpError("The browser is gone.")
        self._mux.require_web_page(method, session)
        given = msgspec.Raw(_ENCODER.encode(params or {}))
        return await self._mux._request(Message(method=method, session=session or self.root, params=given))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for every event of this client; return a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def forward_raw(self, listener: Callable[[Message | None], None]) -> None:
        """Pass unparsed events and responses to `listener`, for a client that speaks CDP itself; None at the end."""
        self._raw = listener

    async def forward(self, message: Message) -> None:
        """Send a message of such a client; the response has the client's own id.

        Raises:
            CdpError: The session does not belong to this client or is one of Chromium's own pages, or the browser has
                ended.
        """
        number, session = message.id, message.session
        if session is not None and self._mux._clients.get(session) is not self:
            raise CdpError("Session with given id not found.")
        self._mux.require_web_page(message.method, session)

        def reply(answer: Message | None) -> None:
            if self._raw is None:
                return
            if answer is not None:
                answer.id, answer.session = number, session
            self._raw(answer)

        await self._mux._send(
            Message(method=message.method, session=session or self.root, params=message.params), reply
        )

    def on_event(self, message: Message) -> None:
        """Dispatch an event of one of this client's sessions."""
        session = None if message.session == self.root else message.session
        if self._raw is not None:
            message.session = session
            self._raw(message)
        if self._listeners and message.method is not None:
            params: dict[str, Any] = msgspec.json.decode(message.params) if message.params else {}
            for listener in [*self._listeners]:
                listener(message.method, params, session)

    def on_disconnect(self) -> None:
        """Record that the browser has ended."""
        self.gone = True
        if self._raw is not None:
            self._raw(None)

    def close(self) -> None:
        """Close this client's sessions."""
        self.gone = True
        self._raw = None
        self._listeners.clear()
        self._mux._forget(self)


class _TargetInfo(msgspec.Struct):
    id: str = msgspec.field(name="targetId")
    type: str = ""
    url: str = ""

    @property
    def is_own(self) -> bool:
        """Return whether it is one of Chromium's own pages; a page without a URL has not loaded yet."""
        if self.url.startswith(_WEB_SCHEMES):
            return False
        return bool(self.url) or self.type in _OWN_TYPES


class _TargetEvent(msgspec.Struct):
    info: _TargetInfo = msgspec.field(name="targetInfo")
    session: str | None = msgspec.field(name="sessionId", default=None)


class _Destroyed(msgspec.Struct):
    target: str = msgspec.field(name="targetId")


class _Activated(msgspec.Struct):
    target: str | None = msgspec.field(name="targetId", default=None)


class _Attached(msgspec.Struct):
    session: str = msgspec.field(name="sessionId")


def _session_in(message: Message) -> str:
    return msgspec.json.decode(message.params, type=_Attached).session
