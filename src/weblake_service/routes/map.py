"""POST /v2/map: the URLs of a site, from its sitemaps and its front page."""

from __future__ import annotations

import asyncio
from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import RouteGroup
from weblake_service.config import Access
from weblake_service.jobs.web_tools import MAP_PRICE, list_site
from weblake_service.responses import ErrorResponse, bad_request, encode, encoded_json_response
from weblake_service.routes.idempotency import KEEP_SCRAPES_S, IdempotencyTicket
from weblake_service.routes.request_options import once, read_options, read_target
from weblake_service.store import accounts
from weblake_service.web.location import country_problem, languages_problem


class MapRoutes(RouteGroup):
    """The map endpoint."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/v2/map", once(self._parts, self.map, KEEP_SCRAPES_S), methods=["POST"])]

    async def map(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """List the URLs of a site."""
        parts = self._parts
        request_options = read_options(options.MapRequest, body)
        if problem := languages_problem(request_options) or country_problem(request_options):
            bad_request(problem)
        url = read_target(request_options["url"], parts.config)
        parts.rate.take(access.team)
        now, plan = parts.clock.now(), parts.config.plan(access.team).credits
        await parts.store.read(lambda db: accounts.require_credits(db, access.team, MAP_PRICE, plan, now))
        timeout = request_options.get("timeout")
        try:
            async with asyncio.timeout(timeout / 1000 if isinstance(timeout, int) and timeout > 0 else None):
                links, warning = await list_site(parts.tools, access.team, url, request_options)
        except TimeoutError:
            message = f"The map of {url} was not done within {timeout} ms. Allow more with `timeout`."
            raise ErrorResponse(408, message, code="MAP_TIMEOUT") from None

        reply = encode({"success": True, "links": links} | ({"warning": warning} if warning else {}))

        def work(db: Connection) -> None:
            accounts.charge(db, access, MAP_PRICE, now)
            accounts.record_activity(db, access, "map", parts.ids.start(db), url, now)
            ticket.save(db, 200, reply)

        await parts.store.write(work)
        return encoded_json_response(reply)
