"""A client of Chromium's debugging protocol (CDP) over a WebSocket, and a simulated viewer of a live view.

    async with connected(address) as cdp:
        await cdp.send("Browser.getVersion")

The browser is that of chromium_lab.py.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from weblake_service.sessions.cdp import CdpError, Listener


class CdpClient:
    """A client of the protocol, with the interface that `weblake_service.sessions.cdp.Cdp` requires."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: list[Listener] = []
        #: The names of all commands that were sent.
        self.sent: list[str] = []

    async def send(
        self, method: str, params: Mapping[str, object] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": dict(params or {})}
        self.sent.append(method)
        try:
            await self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
            return await answer
        except ConnectionClosed as error:
            raise CdpError(f"{method}: the browser is gone") from error
        finally:
            self._answers.pop(number, None)

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def read(self) -> None:
        """Read messages of the browser until the connection is closed."""
        with suppress(ConnectionClosed):
            async for raw in self._socket:
                self._take(json.loads(raw))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(CdpError("the browser is gone"))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            for listener in list(self._listeners):
                listener(message["method"], message.get("params", {}), message.get("sessionId"))
            return
        answer = self._answers.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(CdpError(message["error"]["message"]))
        else:
            answer.set_result(message["result"])


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[CdpClient]:
    """Yield a client of the browser at this address."""
    async with connect(address, max_size=None, compression=None) as socket:
        client = CdpClient(socket)
        reading = asyncio.create_task(client.read())
        try:
            yield client
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class Page:
    """One page of the browser, inspected independently of the live view."""

    def __init__(self, cdp: CdpClient, session: str) -> None:
        self._cdp, self._session = cdp, session

    @classmethod
    async def only(cls, cdp: CdpClient, url: str) -> Page:
        """Open a page, close all others, and return it."""
        target = (await cdp.send("Target.createTarget", {"url": url}))["targetId"]
        while len(pages := [one for one in await cls._infos(cdp) if one["type"] == "page"]) > 1:
            for other in pages:
                if other["targetId"] != target:
                    with suppress(CdpError):  # it is closing
                        await cdp.send("Target.closeTarget", {"targetId": other["targetId"]})
        reply = await cdp.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = cls(cdp, reply["sessionId"])
        await page.until("document.readyState + location.href", f"complete{url}")
        return page

    @staticmethod
    async def _infos(cdp: CdpClient) -> list[dict[str, Any]]:
        return list((await cdp.send("Target.getTargets"))["targetInfos"])

    async def run(self, code: str) -> Any:
        """Return the value of an expression in the page."""
        reply = await self._cdp.send("Runtime.evaluate", {"expression": code, "returnByValue": True}, self._session)
        return reply["result"].get("value")

    async def close_browser(self) -> None:
        """End the browser, as the end of a session does."""
        with suppress(CdpError):  # it may be gone before it has answered
            await self._cdp.send("Browser.close")

    async def until(self, code: str, value: object = True) -> None:
        """Wait until an expression has this value."""
        async with asyncio.timeout(90):
            while (found := await self.run(code)) != value:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert found == value

    async def middle(self, selector: str) -> tuple[float, float]:
        """Return the middle of an element."""
        box = f"document.querySelector('{selector}').getBoundingClientRect()"
        x, y = await self.run(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
        return x, y


class Viewer:
    """The client of a live view: the messages that it got, and methods that send messages."""

    def __init__(self, *, quick: bool = True) -> None:
        #: Whether it acknowledges each frame at once.
        self.quick = quick
        self.pictures: list[bytes] = []
        self.texts: list[dict[str, Any]] = []
        self._says: asyncio.Queue[str | bytes | None] = asyncio.Queue()

    async def receive(self) -> str | bytes | None:
        return await self._says.get()

    async def send_bytes(self, data: bytes) -> None:
        self.pictures.append(data)
        if self.quick:
            self.say(type="taken")

    async def send_text(self, text: str) -> None:
        self.texts.append(json.loads(text))

    def say(self, **message: object) -> None:
        """Send a message to the view."""
        self.raw(json.dumps(message))

    def raw(self, message: str | bytes) -> None:
        """Send any text or bytes to the view."""
        self._says.put_nowait(message)

    def leave(self) -> None:
        """Close the connection."""
        self._says.put_nowait(None)

    def last(self, kind: str) -> dict[str, Any]:
        """Return the last text message of this type; empty if there is none."""
        return next((text for text in reversed(self.texts) if text["type"] == kind), {})

    async def until(self, look: Callable[[], object], seconds: float = 90) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(seconds):
            while not look():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
