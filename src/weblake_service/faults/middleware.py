"""ASGI middleware that applies faults to requests, including closed connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from weblake_service.faults.active_rules import ActiveFaults
from weblake_service.faults.responses import AlteredResponse, altered_request, send_fault_response
from weblake_service.faults.rules import Effect
from weblake_service.routing import is_outside_api


class FaultMiddleware:
    """Wraps the application and applies the active faults."""

    def __init__(self, app: ASGIApp, faults: ActiveFaults) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"].startswith("/_weblake/") or is_outside_api(scope["path"]):
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        struck = self._faults.for_request(scope["method"], scope["path"] + (f"?{query}" if query else ""))
        if struck is None:
            await self._app(scope, receive, send)
            return
        # The request log reads the id of the rule here.
        scope.setdefault("state", {})["fault"] = struck.id
        effect = struck.rule.effect
        over = effect.latency_ms > 0 and await self._is_over(effect.latency_ms / 1000)
        if over or effect.drop_before:
            await _close_without_response(scope, receive)
        elif effect.stall:
            await self._stall(scope, receive)
        elif effect.replaces_response:
            await send_fault_response(effect, send)
        else:
            await self._after(effect, scope, receive, send)

    async def _is_over(self, seconds: float) -> bool:
        """Wait, and return whether the service was reset or stopped meanwhile; the request must then be dropped."""
        over = self._faults.stopped
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()
        return over.is_set()

    async def _stall(self, scope: Scope, receive: Receive) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        over = asyncio.create_task(self._faults.stopped.wait())
        try:
            await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        if not gone.done():
            _close(scope)
        await gone

    async def _after(self, effect: Effect, scope: Scope, receive: Receive, send: Send) -> None:
        """Process the request, and then alter the response."""
        spoilt = AlteredResponse(effect, scope, send)
        await self._app(altered_request(effect, scope), receive, spoilt.send)
        if effect.drop_after:
            await _close_without_response(scope, receive)
        elif spoilt.cut:
            _close(scope)
            await _disconnected(receive)


async def _close_without_response(scope: Scope, receive: Receive) -> None:
    """Close the connection without a response; returning before it is closed would send a 500."""
    _close(scope, at_once=True)
    await _disconnected(receive)


def _close(scope: Scope, *, at_once: bool = False) -> None:
    # server.py stores the transport there; without a socket there is nothing to close.
    transport: asyncio.Transport | None = scope.get("state", {}).get("transport")
    if transport is None:
        raise RuntimeError("This fault closes a connection, and this request came over none.")
    if at_once:
        transport.abort()
    else:
        transport.close()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
