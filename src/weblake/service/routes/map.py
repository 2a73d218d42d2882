"""POST /v2/map: the URLs of a site, from its sitemaps and its front page.

Imports: accounts, answers, failures, features, intake, parts, site_map.
"""

from __future__ import annotations

import asyncio
from sqlite3 import Connection
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake import options
from weblake.service.answers import Refusal, answer, read_object
from weblake.service.failures import PageFailure
from weblake.service.features import check_location
from weblake.service.parts import Parts, asker
from weblake.service.routes.intake import read_options, read_target
from weblake.service.store import accounts
from weblake.service.web.site_map import map_site

#: Credits of one map.
_PRICE = 1


class MapRoutes:
    """The map of a site."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route("/v2/map", self.map, methods=["POST"])]

    async def map(self, request: Request) -> Response:
        """Lists the URLs of a site."""
        parts, access = self._parts, asker(request)
        asked = read_options(options.MapRequest, await read_object(request, parts.config.max_body))
        check_location(asked)
        url = read_target(asked["url"], parts.config)
        parts.rate.take(access.team)
        now, plan = parts.clock.now(), parts.config.plan_credits
        await parts.store.read(lambda db: accounts.demand(db, access.team, _PRICE, plan, now))
        timeout = asked.get("timeout")
        try:
            async with asyncio.timeout(timeout / 1000 if isinstance(timeout, int) and timeout > 0 else None):
                links = await map_site(parts.web, url, asked)
        except TimeoutError:
            raise Refusal(408, f"The map of {url} was not done within {timeout} ms.", code="MAP_TIMEOUT") from None
        except PageFailure as failure:
            raise Refusal(failure.status, failure.message, code=failure.code) from None

        def work(db: Connection) -> None:
            accounts.charge(db, access, _PRICE, now)
            accounts.record_activity(db, access, "map", str(uuid4()), url, now)

        await parts.store.write(work)
        return answer({"success": True, "links": links})
