"""The ASGI application: all routes, and the conversion of exceptions into error responses."""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weblake_service.components import ServiceComponents
from weblake_service.console.pages import ConsolePages
from weblake_service.faults import FaultMiddleware
from weblake_service.jobs.job_run import is_shutdown
from weblake_service.middleware import AccessMiddleware
from weblake_service.page_failure import PageFailure, own_limit
from weblake_service.request_log import LoggedApp
from weblake_service.responses import ErrorResponse, error_response, failure_error
from weblake_service.routes.admin import AdminRoutes
from weblake_service.routes.batch import BatchRoutes
from weblake_service.routes.browser import BrowserRoutes
from weblake_service.routes.crawl import CrawlRoutes
from weblake_service.routes.interact import InteractRoutes
from weblake_service.routes.map import MapRoutes
from weblake_service.routes.model_jobs import ModelJobRoutes
from weblake_service.routes.parse import ParseRoutes
from weblake_service.routes.request_options import check_query
from weblake_service.routes.scrape import ScrapeRoutes
from weblake_service.routes.search import SearchRoutes
from weblake_service.routes.session_connections import SessionConnections
from weblake_service.routes.team import TeamRoutes
from weblake_service.routing import make_router

_LOG = logging.getLogger("weblake.service")


def make_app(parts: ServiceComponents) -> ASGIApp:
    """Return the service as an ASGI application; the layers, outermost first: request log, access, faults, routes."""
    groups = (
        ScrapeRoutes, ParseRoutes, BatchRoutes, CrawlRoutes, MapRoutes, SearchRoutes, ModelJobRoutes,
        BrowserRoutes, InteractRoutes, TeamRoutes, AdminRoutes, ConsolePages, SessionConnections,
    )  # fmt: skip
    routes: list[BaseRoute] = [route for group in groups for route in group(parts).routes()]
    app = ExceptionMiddleware(
        make_router(routes, check_query),
        {ErrorResponse: _on_error_response, PageFailure: _on_page_failure, HTTPException: _on_http_error},
    )
    return LoggedApp(AccessMiddleware(FaultMiddleware(_ErrorMiddleware(app), parts.faults), parts), parts.log)


class _ErrorMiddleware:
    """Converts an unexpected exception to a 500 in the API's form, and logs it without the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] in ("http.response.start", "websocket.accept")
            await send(message)

        # With an application in the scope, Starlette raises its 404 and 405 instead of sending plain text.
        scope["app"] = self._app
        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if limit := own_limit(error):
                _LOG.error("The service is at a limit: %s.", limit)
            elif not is_shutdown(error):
                _LOG.exception("A request failed in an unforeseen way.")
            if begun:
                raise
            refusal = ErrorResponse(500, "An unexpected error occurred.", code="UNKNOWN_ERROR")
            if limit:
                text = f"The service is at a limit of its machine: {limit}. Send the request again later."
                refusal = ErrorResponse(503, text, code="SERVICE_UNAVAILABLE", headers={"Retry-After": "5"})
            await error_response(refusal)(scope, receive, send)


async def _on_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, ErrorResponse)
    return error_response(error)


async def _on_page_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, PageFailure)
    return error_response(failure_error(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "There is no such endpoint", 405: "This endpoint does not take this method"}
    message = text.get(error.status_code, error.detail)
    refusal = ErrorResponse(error.status_code, f"{message}: {request.method} {request.url.path}", headers=error.headers)
    return error_response(refusal)
