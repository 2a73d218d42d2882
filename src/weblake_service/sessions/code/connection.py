"""A CDP client over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from weblake_service.sessions.cdp import CdpError, Listener

#: Seconds that the browser may take to accept the connection.
_OPEN_TIMEOUT_S = 10.0


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[WebSocketCdp]:
    """Yield a connection to a browser; it is closed at the end of the block.

    Raises:
        CdpError: There is no browser at this URL.
    """
    try:
        # No size limit, because a screenshot is one message. No proxy and no pings: the browser is local, and may be
        # busy.
        socket = await connect(
            url,
            max_size=None,
            proxy=None,
            compression=None,
            ping_interval=None,
            open_timeout=_OPEN_TIMEOUT_S,
            close_timeout=0.5,
        )
    except (OSError, TimeoutError, asyncio.TimeoutError, InvalidHandshake, InvalidURI) as error:
        raise CdpError(f"There is no browser at CDP_URL: {error}") from error
    connection = WebSocketCdp(socket)
    reading = asyncio.create_task(connection.read())
    try:
        yield connection
    finally:
        reading.cancel()
        await socket.close()


class WebSocketCdp:
    """A `Cdp` over one WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: list[Listener] = []
        self._sent = 0
        self._gone = False

    async def send(
        self, method: str, params: Mapping[str, object] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Send a command and return its result.

        Raises:
            CdpError: It was refused, or the browser has ended.
        """
        if self._gone:
            raise CdpError("The browser is gone.")
        self._sent += 1
        number = self._sent
        message: dict[str, object] = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            await self._socket.send(json.dumps(message))
            return await waiting
        except WebSocketException as error:
            raise CdpError("The browser is gone.") from error
        finally:
            del self._waiting[number]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for every event; return a function that removes it."""
        self._listeners.append(listener)

        def forget() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return forget

    async def read(self) -> None:
        """Read and dispatch responses and events until the connection is closed."""
        try:
            async for text in self._socket:
                self._dispatch(json.loads(text))
        except WebSocketException:
            pass
        finally:
            self._gone = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(CdpError("The browser is gone."))

    def _dispatch(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            for listener in list(self._listeners):
                listener(message["method"], message.get("params", {}), message.get("sessionId"))
            return
        waiting = self._waiting.get(message["id"])
        if waiting is None or waiting.done():
            return
        if "error" in message:
            error = message["error"]
            # The message is the kind of the error; `data`, if present, is its subject.
            reason = ": ".join(filter(None, [error.get("message"), str(error.get("data") or "")]))
            waiting.set_exception(CdpError(reason))
        else:
            waiting.set_result(message.get("result", {}))
