"""Log of the last requests, for tests; it contains no bodies and no keys."""

from __future__ import annotations

import time
from collections import deque

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weblake_service.clock import Clock, iso
from weblake_service.routing import is_outside_api

_MAX_ENTRIES = 10_000
#: Maximum characters of a text of an entry: a request without a key is recorded too, and its head can have 64 KB.
_MAX_CHARS = 1000


class RequestLog:
    """The last 10,000 requests, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: deque[dict[str, object]] = deque(maxlen=_MAX_ENTRIES)

    def begin(self, scope: Scope) -> dict[str, object]:
        """Record a request as it arrives: `status` is None while it is processed, and if no response was sent."""
        key = next((value for name, value in scope["headers"] if name == b"x-idempotency-key"), None)
        query = scope["query_string"].decode("latin-1")
        path = scope["path"] + (f"?{query}" if query else "")
        entry: dict[str, object] = {
            "method": scope["method"][:_MAX_CHARS],
            "path": path[:_MAX_CHARS],
            "status": None,
            "at": iso(self._clock.now()),
            "milliseconds": None,
            "idempotencyKey": key[:_MAX_CHARS].decode("latin-1") if key is not None else None,
            #: The id of the fault rule that affected it.
            "fault": None,
        }
        self._entries.append(entry)
        return entry

    def entries(self) -> list[dict[str, object]]:
        """Return all entries, as the admin route shows them."""
        return [dict(entry) for entry in self._entries]

    def clear(self) -> None:
        """Delete all entries."""
        self._entries.clear()


class LoggedApp:
    """Wraps the application and records every request to the API."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"].startswith("/_weblake/") or is_outside_api(scope["path"]):
            await self._app(scope, receive, send)
            return
        entry, begun = self._log.begin(scope), time.perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry["status"] = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            entry["milliseconds"] = round((time.perf_counter() - begun) * 1000, 3)
            entry["fault"] = scope.get("state", {}).get("fault")
