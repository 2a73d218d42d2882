"""Relays an external CDP client over a WebSocket, and refuses commands that do not concern pages.

CDP can do more than control pages: it opens files of this machine, writes downloads, bypasses the proxy, and exposes
itself to a page. Commands that do not concern pages are refused with a CDP error.
"""

from __future__ import annotations

import asyncio
from asyncio import WriteTransport
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from weblake_service.sessions.cdp import CdpError
from weblake_service.sessions.cdp_multiplexer import CdpClient, Message

#: Allowed commands of the browser itself: a new version of Chromium can have others, such as Target.openDevTools, with
#: which files of this machine can be read.
_BROWSER_COMMANDS = frozenset({
    "Browser.close", "Browser.getHistogram", "Browser.getHistograms", "Browser.getVersion", "Browser.getWindowBounds",
    "Browser.getWindowForTarget", "Browser.grantPermissions", "Browser.resetPermissions", "Browser.setContentsSize",
    "Browser.setDownloadBehavior", "Browser.setPermission", "Browser.setWindowBounds", "Target.activateTarget",
    "Target.attachToBrowserTarget", "Target.attachToTarget", "Target.autoAttachRelated", "Target.closeTarget",
    "Target.createBrowserContext", "Target.createTarget", "Target.detachFromTarget", "Target.disposeBrowserContext",
    "Target.getBrowserContexts", "Target.getTargetInfo", "Target.getTargets", "Target.setAutoAttach",
    "Target.setDiscoverTargets",
})  # fmt: skip
#: Allowed domains: those that concern pages.
_ALLOWED_DOMAINS = frozenset({
    "Accessibility", "Animation", "Audits", "BackgroundService", "CacheStorage", "Console", "CSS", "DOM",
    "DOMDebugger", "DOMSnapshot", "DOMStorage", "Debugger", "DeviceAccess", "DeviceOrientation", "Emulation",
    "EventBreakpoints", "Fetch", "HeadlessExperimental", "HeapProfiler", "IO", "IndexedDB", "Input", "Inspector",
    "LayerTree", "Log", "Media", "Network", "Overlay", "Page", "Performance", "PerformanceTimeline", "Preload",
    "Profiler", "Runtime", "Schema", "Security", "ServiceWorker", "Storage", "WebAudio", "WebAuthn",
})  # fmt: skip
_REFUSED_COMMANDS = frozenset({
    # Access to files of this machine.
    "DOM.setFileInputFiles",
    # Crashing a page is not a supported way to end a session.
    "Page.crash",
})  # fmt: skip
#: Acknowledged without effect: clients send it when they connect, and downloads are never written.
_ACKNOWLEDGED_COMMANDS = frozenset(["Browser.setDownloadBehavior", "Page.setDownloadBehavior"])
#: Commands that navigate to a URL.
_NAVIGATION_COMMANDS = frozenset(["Page.navigate", "Target.createTarget", "Network.loadNetworkResource"])
#: Commands that drag data, which may include files.
_DRAG_COMMAND = "Input.dispatchDragEvent"
_ALLOWED_SCHEMES = frozenset(["", "http", "https", "about", "data", "blob", "javascript"])
_ALLOWED_PAGES = frozenset(["about:blank", "about:srcdoc"])
#: Maximum bytes buffered for all clients of a session that do not read.
_MAX_BUFFERED_BYTES = 256 << 20
_EMPTY_OBJECT = msgspec.Raw(b"{}")


class _Params(msgspec.Struct):
    url: object = None
    proxy: object = msgspec.field(default=None, name="proxyServer")
    bypass: object = msgspec.field(default=None, name="proxyBypassList")
    data: object = None
    attach: object = msgspec.field(default=None, name="autoAttach")
    flatten: object = None


def refusal_reason(message: Message) -> str:
    """Return why a command of an external client is refused; empty if it is allowed."""
    method = message.method or ""
    allowed = method in _BROWSER_COMMANDS or method.partition(".")[0] in _ALLOWED_DOMAINS
    if not allowed or method in _REFUSED_COMMANDS:
        return f"{method[:100]} is not for sessions of this service."
    if method in _NAVIGATION_COMMANDS or method == _DRAG_COMMAND or method.startswith("Target."):
        try:
            params = msgspec.json.decode(message.params, type=_Params) if message.params else _Params()
        except (msgspec.DecodeError, UnicodeDecodeError):
            return f"The parameters of {method} are no object."
        if method in _NAVIGATION_COMMANDS and not _is_page(params.url):
            return f"{method} leads to pages only: http, https, about:blank, data, blob."
        if params.proxy or params.bypass:
            return "The way out of a session is this service's own: leave proxyServer and proxyBypassList out."
        if isinstance(params.data, dict) and params.data.get("files"):
            return f"{method} drops no files of this machine."
        attaches = method in {"Target.setAutoAttach", "Target.attachToTarget"} and params.attach is not False
        if attaches and params.flatten is not True:
            return f"{method} takes `flatten: true` only."
    return ""


class Backlog:
    """The bytes that all clients of one session have not received yet."""

    def __init__(self) -> None:
        self.size = 0


class OutgoingMessages:
    """The messages to one client, which is disconnected if the backlog of its session is full."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._texts: asyncio.Queue[bytes] = asyncio.Queue()
        #: Bytes that this client has not received.
        self.size = 0
        self.full = asyncio.Event()

    def put(self, message: Message | None) -> None:
        """Add a message; None marks the end."""
        text = msgspec.json.encode(message) if message is not None else b""
        self._texts.put_nowait(text)
        self._add_size(len(text))
        if self._backlog.size > _MAX_BUFFERED_BYTES:
            self.full.set()

    async def send(self, socket: WebSocket) -> None:
        """Send the messages until the end."""
        while text := await self._texts.get():
            await socket.send_text(text.decode())
            self._add_size(-len(text))

    def discard(self) -> None:
        """Remove what was not sent from the backlog."""
        self._add_size(-self.size)

    def _add_size(self, size: int) -> None:
        self.size += size
        self._backlog.size += size


async def relay(
    socket: WebSocket, client: CdpClient, backlog: Backlog, transport: WriteTransport, used: Callable[[], None]
) -> None:
    """Relay messages between an accepted websocket and the browser until one of the two is closed.

    Args:
        socket: The client's connection.
        client: Its CDP client; closed at the end.
        backlog: The backlog of the session. A client that exceeds its limit is disconnected.
        transport: The transport of the connection.
        used: Called for every message of the client.
    """
    outgoing = OutgoingMessages(backlog)
    client.forward_raw(outgoing.put)
    ways: list[asyncio.Task[object]] = [
        asyncio.create_task(_read_client(socket, client, outgoing, used)),
        asyncio.create_task(outgoing.send(socket)),
        # A client that does not read blocks the sending task.
        asyncio.create_task(outgoing.full.wait()),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        browser_ended = client.gone
        client.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        outgoing.discard()
        if outgoing.full.is_set():
            transport.abort()
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(1001 if browser_ended else 1000)


async def _read_client(
    socket: WebSocket, client: CdpClient, outgoing: OutgoingMessages, used: Callable[[], None]
) -> None:
    decoder = msgspec.json.Decoder(Message)
    while True:
        event = await socket.receive()
        if event["type"] == "websocket.disconnect":
            return
        try:
            message = decoder.decode(event.get("text") or event.get("bytes") or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            outgoing.put(_error(Message(), -32700, "The message is no JSON of the protocol."))
            continue
        used()
        if message.id is None or message.method is None:
            outgoing.put(_error(message, -32600, "A command has an `id` and a `method`."))
        elif message.method in _ACKNOWLEDGED_COMMANDS:
            outgoing.put(Message(id=message.id, session=message.session, result=_EMPTY_OBJECT))
        elif why := refusal_reason(message):
            outgoing.put(_error(message, -32000, why))
        else:
            number, session = message.id, message.session
            try:
                await client.forward(message)
            except CdpError as error:
                outgoing.put(_error(Message(id=number, session=session), -32001, str(error)))


def _is_page(url: object) -> bool:
    text = str(url or "").strip()
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        return False
    return scheme in _ALLOWED_SCHEMES and (scheme != "about" or text.lower() in _ALLOWED_PAGES)


def _error(message: Message, code: int, text: str) -> Message:
    error = msgspec.Raw(msgspec.json.encode({"code": code, "message": text}))
    return Message(id=message.id, session=message.session, error=error)
