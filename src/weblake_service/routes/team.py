"""Reports of a team: activity, credits, tokens, queue."""

from __future__ import annotations

from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake_service.clock import iso
from weblake_service.components import RouteGroup, requester
from weblake_service.jobs import job_records
from weblake_service.responses import json_response, read_boolean, read_integer
from weblake_service.store import accounts


class TeamRoutes(RouteGroup):
    """The reports of a team's usage."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/team/activity", self.activity, methods=["GET"]),
            Route("/v2/team/credit-usage", self.credits, methods=["GET"]),
            Route("/v2/team/credit-usage/historical", self.credit_periods, methods=["GET"]),
            Route("/v2/team/token-usage", self.tokens, methods=["GET"]),
            Route("/v2/team/token-usage/historical", self.token_periods, methods=["GET"]),
            Route("/v2/team/queue-status", self.queue, methods=["GET"]),
            Route("/v2/concurrency-check", self.concurrency, methods=["GET"]),
        ]

    async def activity(self, request: Request) -> Response:
        """Return the calls of the last 24 hours, newest first."""
        team, now = requester(request).team, self._parts.clock.now()
        limit = read_integer(request, "limit", minimum=1, maximum=100, default=50)
        assert limit is not None
        endpoint, cursor = request.query_params.get("endpoint"), request.query_params.get("cursor") or None

        def work(db: Connection) -> dict[str, object]:
            return accounts.list_activity(db, team, endpoint=endpoint, limit=limit, cursor=cursor, at=now)

        return json_response(await self._parts.store.read(work))

    async def credits(self, request: Request) -> Response:
        """Return the remaining credits of this month."""
        return await self._balance(request, "Credits", 1)

    async def tokens(self, request: Request) -> Response:
        """Return the remaining tokens of this month."""
        return await self._balance(request, "Tokens", accounts.TOKENS_PER_CREDIT)

    async def credit_periods(self, request: Request) -> Response:
        """Return the credits used, month by month."""
        return await self._periods(request, "totalCredits", 1)

    async def token_periods(self, request: Request) -> Response:
        """Return the tokens used, month by month."""
        return await self._periods(request, "totalTokens", accounts.TOKENS_PER_CREDIT)

    async def queue(self, request: Request) -> Response:
        """Return the number of the team's pages that wait or are being scraped."""
        team = requester(request).team

        def work(db: Connection) -> tuple[int, float | None]:
            return job_records.waiting(db, team), job_records.last_success(db, team)

        known, latest = await self._parts.store.read(work)
        active = self._parts.scraper.in_flight(team)
        return json_response(
            {
                "success": True,
                "jobsInQueue": max(known, active),
                "activeJobsInQueue": active,
                "waitingJobsInQueue": max(0, known - active),
                "maxConcurrency": self._parts.config.plan(team).concurrency,
                "mostRecentSuccess": iso(latest) if latest is not None else None,
            }
        )

    async def concurrency(self, request: Request) -> Response:
        """Return the number of the team's pages in flight."""
        team = requester(request).team
        limit = self._parts.config.plan(team).concurrency
        return json_response(
            {"success": True, "concurrency": self._parts.scraper.in_flight(team), "maxConcurrency": limit}
        )

    async def _balance(self, request: Request, noun: str, factor: int) -> Response:
        team, now = requester(request).team, self._parts.clock.now()
        plan = self._parts.config.plan(team).credits
        data = await self._parts.store.read(lambda db: accounts.balance(db, team, plan, now, noun=noun, factor=factor))
        return json_response({"success": True, "data": data})

    async def _periods(self, request: Request, name: str, factor: int) -> Response:
        team, by_key = requester(request).team, read_boolean(request, "byApiKey")
        periods = await self._parts.store.read(
            lambda db: accounts.periods(db, team, by_key=by_key, name=name, factor=factor)
        )
        return json_response({"success": True, "periods": periods})
