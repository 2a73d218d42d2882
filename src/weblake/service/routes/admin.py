"""What tests and operators ask of the service itself, under /_weblake/. Imports: accounts, answers, faults, parts."""

from __future__ import annotations

from importlib.resources import files

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.service.answers import answer, bad_request, not_found, read_object
from weblake.service.clock import iso
from weblake.service.faults import read_rules
from weblake.service.parts import Parts
from weblake.service.store import accounts


class AdminRoutes:
    """The admin routes; all but health demand the key, and all are for loopback only."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/_weblake/health", self.health, methods=["GET"]),
            Route("/_weblake/requests", self.requests, methods=["GET"]),
            Route("/_weblake/counts", self.counts, methods=["GET"]),
            Route("/_weblake/reset", self.reset, methods=["POST"]),
            Route("/_weblake/faults", self.faults, methods=["GET"]),
            Route("/_weblake/faults", self.put_faults, methods=["PUT"]),
            Route("/_weblake/faults", self.delete_faults, methods=["DELETE"]),
            Route("/_weblake/clock/advance", self.advance, methods=["POST"]),
            Route("/openapi.yaml", self.contract, methods=["GET"]),
        ]

    async def health(self, request: Request) -> Response:
        """Whether the database answers, and the service's time."""
        await self._parts.store.read(lambda db: db.execute("SELECT 1").fetchone())
        return answer({"status": "ok", "now": iso(self._parts.clock.now())})

    async def requests(self, request: Request) -> Response:
        """The last requests to the API."""
        return answer({"requests": self._parts.log.entries()})

    async def counts(self, request: Request) -> Response:
        """How many jobs of each kind were started and how many pages were billed, since the last reset."""
        return answer({"counts": await self._parts.store.read(accounts.counts)})

    async def reset(self, request: Request) -> Response:
        """Empties the service."""
        await self._parts.reset()
        return answer({"success": True})

    async def faults(self, request: Request) -> Response:
        """The rules that hold, and how often they struck."""
        return answer({"rules": self._parts.faults.rules})

    async def put_faults(self, request: Request) -> Response:
        """Replaces all rules."""
        body = await read_object(request, self._parts.config.max_body)
        try:
            self._parts.faults.replace(read_rules(body))
        except ValueError as error:
            bad_request(f"These fault rules cannot be read: {error}.")
        return await self.faults(request)

    async def delete_faults(self, request: Request) -> Response:
        """Drops all rules."""
        self._parts.faults.replace([])
        return await self.faults(request)

    async def advance(self, request: Request) -> Response:
        """Moves the clock forward by `seconds`."""
        body = await read_object(request, self._parts.config.max_body)
        try:
            await self._parts.advance(msgspec.convert(body.get("seconds"), float))
        except ValueError as error:
            bad_request(f"The clock cannot be advanced: {error}")
        return answer({"now": iso(self._parts.clock.now())})

    async def contract(self, request: Request) -> Response:
        """The API's OpenAPI file."""
        file = files("weblake").joinpath("spec/service-api.openapi.yaml")
        if not file.is_file():
            not_found("The contract file is not packaged.")
        return Response(file.read_bytes(), media_type="application/yaml")
