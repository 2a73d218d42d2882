"""Access middleware: allowed host names, authentication, read rate limit, and the common response header."""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weblake_service.components import ServiceComponents
from weblake_service.fair_queue import TEAM
from weblake_service.responses import ErrorResponse, error_response
from weblake_service.routing import is_outside_api

#: A host name or address with an optional port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+)(?::[0-9]*)?", re.ASCII)
#: Tells clients that a retry with the same idempotency key gets the first response, so that they may repeat a lost
#: start.
_REPLAY_HEADER = "Weblake-Idempotency"
#: The only paths without access control.
_PUBLIC_PATHS = frozenset({"/health", "/_weblake/health", "/openapi.yaml"})
#: For the probes of container platforms, which use an address of the container; the response contains no data.
_PROBE_PATH = "/health"


class AccessMiddleware:
    """Wraps the application; accepted requests have `access` in their state."""

    def __init__(self, app: ASGIApp, parts: ServiceComponents) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":
            try:
                self._check(scope)
            except ErrorResponse:
                await send({"type": "websocket.close", "code": 1008, "reason": ""})
                return
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[_REPLAY_HEADER] = "replay"
            await send(message)

        try:
            self._check(scope)
        except ErrorResponse as refusal:
            await error_response(refusal)(scope, receive, marked)
            return
        await self._app(scope, receive, marked)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if scope["path"] != _PROBE_PATH and not self._knows_host(scope):
            raise ErrorResponse(
                403, "This service is not known under the name in the Host header.", code="HOST_NOT_ALLOWED"
            )
        path: str = scope["path"]
        if path.startswith("/_weblake/") and not _is_loopback(scope):
            raise ErrorResponse(403, "The admin routes answer to this machine only.", code="LOOPBACK_ONLY")
        if path in _PUBLIC_PATHS or is_outside_api(path):
            return
        # Web browsers, and the public SDK for JavaScript, can send the key of a websocket only as its subprotocol.
        sent = next(iter(scope.get("subprotocols", ())), "")
        access = self._parts.authenticate(headers.get("authorization", f"Bearer {sent}"))
        if access is None:
            raise ErrorResponse(
                401, "Unauthorized: Invalid token", code="UNAUTHORIZED", headers={"WWW-Authenticate": "Bearer"}
            )
        scope.setdefault("state", {})["access"] = access
        TEAM.set(access.team)
        if scope.get("method") != "POST" and path.startswith("/v2/"):
            # Starts are counted by their routes, which can exclude replays and malformed requests.
            self._parts.rate.take_read(access.team)

    def _knows_host(self, scope: Scope) -> bool:
        """Return whether the Host header is accepted.

        This prevents DNS rebinding: a page in the user's browser can reach loopback under its own host name.
        """
        hosts = self._parts.config.hosts
        return hosts is None or _host(Headers(scope=scope).get("host", "")) in hosts


def _host(header: str) -> str:
    found = _HOST.fullmatch(header)
    return found[1].strip("[]").lower() if found is not None else ""


def _is_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
