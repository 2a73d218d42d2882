"""POST and GET /v2/browser, POST /v2/browser/{id}/execute, DELETE /v2/browser/{id}."""

from __future__ import annotations

from sqlite3 import Row

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.browser.chromium import require_browser
from weblake_service.browser.context_settings import context_settings_of
from weblake_service.clock import iso, iso_seconds
from weblake_service.components import RouteGroup, requester
from weblake_service.config import Access
from weblake_service.page.requested_formats import number
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse, bad_request, json_response, not_found
from weblake_service.routes.code_execution import require_code, run_in_session, session_urls
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.request_options import once, read_options, save_response
from weblake_service.sessions import session_records
from weblake_service.sessions.playwright_driver import profile_of
from weblake_service.sessions.session_records import SessionSpec
from weblake_service.sessions.sessions import LiveSession, destroyed_error

#: Default lifetime and idle time in seconds; the contract's text gives 600 and 300 for the lifetime.
_DEFAULT_TTL_S, _DEFAULT_IDLE_S = 300, 300
_STATUSES = {"active": True, "destroyed": False}
#: Seconds after which a locked profile may be available again (Retry-After).
_RETRY_AFTER_S = "5"


class BrowserRoutes(RouteGroup):
    """The browser session endpoints."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/browser", once(self._parts, self.create), methods=["POST"]),
            Route("/v2/browser", self.list, methods=["GET"]),
            Route("/v2/browser/{id}", self.close, methods=["DELETE"]),
            Route("/v2/browser/{id}/execute", once(self._parts, self.execute), methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        """Return the team's sessions."""
        parts, team = self._parts, requester(request).team
        status = request.query_params.get("status")
        if status is not None and status not in _STATUSES:
            bad_request("status must be active or destroyed.")
        active, now = _STATUSES.get(status or ""), parts.clock.now()
        found = await parts.store.read(lambda db: session_records.list_recent(db, team, active=active, at=now))
        shown = [self._to_dict(row, str(request.base_url)) for row in found]
        # Between its end and the recording of its end, a session is neither active nor ended.
        return json_response({"success": True, "sessions": [one for one in shown if status in (None, one["status"])]})

    async def close(self, request: Request) -> Response:
        """End a session and bill it; one that has ended exists no more, as for interact."""
        row = await self._row(request, requester(request))
        if row["ended"] is not None:
            not_found("Browser session not found: it has ended")
        ended = await self._parts.sessions.end_recorded(row)
        return json_response({"success": True, "sessionDurationMs": ended.milliseconds, "creditsBilled": ended.credits})

    async def create(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Start a session."""
        parts = self._parts
        request_options = read_options(options.BrowserOptions, body)
        require_browser("A browser session")
        parts.rate.take(access.team)
        wanted = SessionSpec(
            access,
            context_settings_of({}),
            number(request_options.get("ttl"), _DEFAULT_TTL_S),
            number(request_options.get("activity_ttl"), _DEFAULT_IDLE_S),
            streamed=request_options.get("stream_web_view") is not False,
        )
        profile = profile_of(request_options)

        async def prepare(live: LiveSession) -> None:
            if profile is not None:
                await parts.playwright.with_profile(live, profile)

        session_id = await parts.ids.draw(parts.store)
        try:
            live = await parts.sessions.begin(session_id, wanted, prepare)
        except PageFailure as failure:
            if failure.code == "PROFILE_IN_USE":
                # The write lock of a profile is a concurrency limit, and the contract defines no 409 here.
                raise ErrorResponse(
                    429, failure.message, code=failure.code, headers={"Retry-After": _RETRY_AFTER_S}
                ) from failure
            raise
        urls = session_urls(live, str(request.base_url))
        reply = {"success": True, "id": live.id, **urls, "expiresAt": iso_seconds(live.expires)}
        return await save_response(parts, ticket, reply)

    async def execute(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Run code in a session."""
        parts = self._parts
        request_options = read_options(options.ExecuteRequest, body)
        require_code(parts, "Running code in a browser session")
        row = await self._row(request, access)
        live = parts.sessions.live(row["id"])
        if row["ended"] is not None or live is None:
            raise destroyed_error()
        parts.rate.take_read(access.team)
        result, _ = await run_in_session(parts, live, request_options)
        return await save_response(parts, ticket, {"success": True, **result, "result": result["stdout"]})

    async def _row(self, request: Request, access: Access) -> Row:
        session_id = str(request.path_params["id"]).lower()
        row = await self._parts.store.read(lambda db: session_records.by_id(db, session_id))
        if row is None or row["scrape"] is not None:
            not_found("Browser session not found")
        if row["team"] != access.team:
            raise ErrorResponse(403, "Forbidden: the session belongs to another team.", code="FORBIDDEN")
        return row

    def _to_dict(self, row: Row, base: str) -> dict[str, object]:
        live = self._parts.sessions.live(row["id"])
        return {
            "id": row["id"],
            "status": "active" if live is not None else "destroyed",
            **session_urls(live or row["id"], base),
            "streamWebView": bool(row["streamed"]),
            "createdAt": iso(row["created"]),
            "lastActivity": iso(live.used if live is not None else row["used"]),
        }
