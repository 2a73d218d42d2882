"""Connections of browser sessions (CDP and live views), authorised by the token in their URL and not by an API key."""

from __future__ import annotations

import asyncio
from asyncio import WriteTransport
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from weblake_service.components import RouteGroup
from weblake_service.responses import ErrorResponse, json_response, not_found
from weblake_service.sessions import live_page
from weblake_service.sessions.agent_commands import run_command
from weblake_service.sessions.cdp import CdpError
from weblake_service.sessions.cdp_multiplexer import CdpClient
from weblake_service.sessions.external_client import relay
from weblake_service.sessions.live_view import LiveView
from weblake_service.sessions.sessions import LiveSession

CONNECTED = WebSocketState.CONNECTED
#: Seconds in which a client must have received the last messages.
_CLOSE_TIMEOUT_S = 5.0


class SessionConnections(RouteGroup):
    """The endpoints behind a session's URLs."""

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/sessions/static/{name}", self.static, methods=["GET"]),
            Route("/sessions/{id}/agent", self.command, methods=["POST"]),
            Route("/sessions/{id}/{endpoint}", self.view, methods=["GET"]),
            WebSocketRoute("/sessions/{id}/cdp", self.protocol),
            WebSocketRoute("/sessions/{id}/{endpoint}/stream", self.stream),
        ]

    async def view(self, request: Request) -> Response:
        """Return the HTML page of the live view."""
        endpoint = str(request.path_params["endpoint"])
        if endpoint not in ("view", "control"):
            not_found("There is no such page.")
        live = self._find_session(str(request.path_params["id"]), endpoint, request.query_params.get("word", ""))
        if live is None:
            not_found("There is no such live view: its session has ended, or shows none, or the word is another.")
        stream = f"{request.url.path}/stream?word={live.session.token(endpoint)}"
        return HTMLResponse(
            live_page.page(stream, "/sessions/static"), headers=live_page.headers(framed=endpoint == "view")
        )

    async def static(self, request: Request) -> Response:
        """Return the style sheet and the script of the live view."""
        name = str(request.path_params["name"])
        if name not in live_page.STATIC:
            not_found("The live view has no such file.")
        headers = {"Cache-Control": "no-cache"}
        return Response(live_page.static(name), media_type=live_page.STATIC[name], headers=headers)

    async def command(self, request: Request) -> Response:
        """Perform a command of `agent-browser`."""
        live = self._find_session(str(request.path_params["id"]), "cdp", request.query_params.get("word", ""))
        if live is None:
            not_found("There is no such browser: its session has ended, or the word is another.")
        try:
            arguments = msgspec.json.decode(await request.body(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ErrorResponse(400, f"The command is no JSON object: {error}") from error
        work = run_command(self._parts.playwright, live, arguments)
        return json_response(asdict(await self._parts.sessions.use(live, work)))

    async def protocol(self, socket: WebSocket) -> None:
        """Serve the Chrome DevTools Protocol on a websocket."""
        live = self._authorize(socket, "cdp")
        if live is None:
            # Closing before the handshake is accepted is answered with 403.
            await socket.close()
            return
        client = await _accept(socket, live)
        if client is not None:
            async with _ends_with(live, socket) as transport:
                await relay(socket, client, live.session.backlog, transport, lambda: self._parts.sessions.touch(live))

    async def stream(self, socket: WebSocket) -> None:
        """Stream the frames of a live view, and receive its input events."""
        endpoint = str(socket.path_params["endpoint"])
        live = self._authorize(socket, endpoint) if endpoint in ("view", "control") else None
        if live is None:
            ended = self._parts.sessions.live(str(socket.path_params["id"])) is None
            if ended:
                # An open live view must learn that reconnecting is useless; a close code is the only way to report it.
                await socket.accept()
                await socket.send_json({"type": "ended"})
            await socket.close()
            return
        client = await _accept(socket, live)
        if client is None:
            return
        interactive = endpoint == "control"
        view = LiveView(client, interactive=interactive, on_input=lambda: self._parts.sessions.touch(live))

        async def receive() -> str | bytes | None:
            event = await socket.receive()
            if event["type"] == "websocket.disconnect":
                return None
            text: str | bytes | None = event.get("text")
            return text if text is not None else event.get("bytes") or b""

        try:
            async with _ends_with(live, socket):
                with live.session.watchdog.viewed() if interactive else nullcontext():
                    await view.run(receive, socket.send_bytes, socket.send_text)
        except (WebSocketDisconnect, RuntimeError):
            # The viewer disconnected during a send.
            pass
        finally:
            client.close()
        if socket.application_state is CONNECTED and socket.client_state is CONNECTED:
            await socket.close(1001)

    def _authorize(self, socket: WebSocket, endpoint: str) -> LiveSession | None:
        """Return the session of a websocket; None if access is refused."""
        headers = socket.headers
        origin = headers.get("origin")
        # Browsers send an Origin header; only pages of this service may connect.
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return None
        return self._find_session(str(socket.path_params["id"]), endpoint, socket.query_params.get("word", ""))

    def _find_session(self, session_id: str, endpoint: str, word: str) -> LiveSession | None:
        live = self._parts.sessions.live(session_id)
        if live is None or not live.session.is_valid_token(endpoint, word):
            return None
        return live if endpoint == "cdp" or live.spec.streamed else None


@asynccontextmanager
async def _ends_with(live: LiveSession, socket: WebSocket) -> AsyncIterator[WriteTransport]:
    """Yield the transport of an accepted websocket, which ends soon after the block or the browser.

    A client that does not read would keep the connection, and with it a task, as long as it likes.
    """
    transport: WriteTransport = socket.scope["state"]["transport"]

    async def abort_at_end() -> None:
        await live.session.gone.wait()
        await asyncio.sleep(_CLOSE_TIMEOUT_S)
        transport.abort()

    task = asyncio.create_task(abort_at_end())
    try:
        yield transport
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT_S, transport.abort)


async def _accept(socket: WebSocket, live: LiveSession) -> CdpClient | None:
    """Accept the websocket and return its CDP client; None if the browser has ended."""
    try:
        client = await live.session.client()
    except CdpError:
        await socket.close()
        return None
    await socket.accept()
    return client
