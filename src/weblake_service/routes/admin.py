"""Admin endpoints for tests, under /_weblake/: only in a service that was started for tests.

weblake/testing/control.py lists them. All are restricted to loopback, and all but health require the API key.
`/health` is for the probes of container platforms: it answers requests from any address, without a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake_service.clock import iso
from weblake_service.components import RouteGroup
from weblake_service.faults import read_rule, read_rules
from weblake_service.jobs import webhook_queue
from weblake_service.responses import bad_request, json_response, not_found, read_object
from weblake_service.store import accounts


class AdminRoutes(RouteGroup):
    """The admin routes."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        public = [
            Route("/health", self.probe, methods=["GET"]),
            Route("/openapi.yaml", self.contract, methods=["GET"]),
        ]
        if not self._parts.config.testing:
            return public
        return [
            *public,
            Route("/_weblake/health", self.health, methods=["GET"]),
            Route("/_weblake/requests", self.requests, methods=["GET"]),
            Route("/_weblake/counts", self.counts, methods=["GET"]),
            Route("/_weblake/deliveries", self.deliveries, methods=["GET"]),
            Route("/_weblake/reset", self.reset, methods=["POST"]),
            Route("/_weblake/faults", self.faults, methods=["GET"]),
            Route("/_weblake/faults", self.put_faults, methods=["PUT"]),
            Route("/_weblake/faults", self.add_fault, methods=["POST"]),
            Route("/_weblake/faults", self.delete_faults, methods=["DELETE"]),
            Route("/_weblake/faults/{id}", self.delete_fault, methods=["DELETE"]),
            Route("/_weblake/clock", self.clock, methods=["GET"]),
            Route("/_weblake/clock/advance", self.advance, methods=["POST"]),
        ]

    async def probe(self, request: Request) -> Response:
        """Return an empty success response while the service is up and can write; otherwise 503 with the reason."""
        await self._parts.store.check()
        await self._parts.store.read(lambda db: db.execute("SELECT 1").fetchone())
        return json_response({"status": "ok"})

    async def health(self, request: Request) -> Response:
        """Return whether the database answers, and the service's time."""
        await self._parts.store.read(lambda db: db.execute("SELECT 1").fetchone())
        return json_response({"status": "ok", "now": iso(self._parts.clock.now())})

    async def requests(self, request: Request) -> Response:
        """Return the last requests to the API."""
        return json_response({"requests": self._parts.log.entries()})

    async def counts(self, request: Request) -> Response:
        """Return the number of started jobs by kind and of billed pages, since the last reset."""
        return json_response({"counts": await self._parts.store.read(accounts.counts)})

    async def deliveries(self, request: Request) -> Response:
        """Return the queued webhooks and the last attempted ones."""
        return json_response({"deliveries": await self._parts.store.read(webhook_queue.recent)})

    async def reset(self, request: Request) -> Response:
        """Reset the service: delete all jobs and data."""
        await self._parts.reset()
        return json_response({"success": True})

    async def faults(self, request: Request) -> Response:
        """Return the active fault rules, with the number of requests that they matched and affected."""
        return json_response({"rules": self._parts.faults.rules})

    async def put_faults(self, request: Request) -> Response:
        """Replace all rules."""
        body = await self._body(request, "rules")
        try:
            self._parts.faults.replace(read_rules(body))
        except ValueError as error:
            bad_request(f"These fault rules cannot be used: {error}.")
        return await self.faults(request)

    async def add_fault(self, request: Request) -> Response:
        """Add a rule after the others; return its id."""
        body = await read_object(request, self._parts.config.max_body)
        try:
            (added,) = self._parts.faults.add([read_rule(body)])
        except ValueError as error:
            bad_request(f"This fault rule cannot be used: {error}.")
        return json_response({"id": added, "rules": self._parts.faults.rules})

    async def delete_faults(self, request: Request) -> Response:
        """Drop all rules."""
        self._parts.faults.replace([])
        return await self.faults(request)

    async def delete_fault(self, request: Request) -> Response:
        """Drop one rule."""
        named: str = request.path_params["id"]
        if not (named.isascii() and named.isdigit() and len(named) < 16 and self._parts.faults.remove(int(named))):
            not_found(f"There is no fault rule {named[:50]!r}: GET /_weblake/faults lists those that hold.")
        return await self.faults(request)

    async def clock(self, request: Request) -> Response:
        """Return the service's time, and its offset from the machine's clock in seconds."""
        clock = self._parts.clock
        return json_response({"now": iso(clock.now()), "ahead": clock.offset})

    async def advance(self, request: Request) -> Response:
        """Move the clock forward by `seconds`."""
        body = await self._body(request, "seconds")
        try:
            await self._parts.advance(msgspec.convert(body["seconds"], float))
        except (ValueError, OverflowError) as error:
            bad_request(f"The clock cannot be advanced by `seconds`: {error}.")
        return await self.clock(request)

    async def contract(self, request: Request) -> Response:
        """Return the API's OpenAPI file."""
        file = files("weblake.api").joinpath("spec/service-api.openapi.yaml")
        if not file.is_file():
            not_found("The contract file is not packaged.")
        return Response(file.read_bytes(), media_type="application/yaml")

    async def _body(self, request: Request, name: str) -> Mapping[str, object]:
        """Return the body of a call that accepts only the field `name`."""
        body = await read_object(request, self._parts.config.max_body)
        if set(body) != {name}:
            found = ", ".join(f"`{key[:50]}`" for key in sorted(body)[:5]) or "nothing"
            bad_request(f"The body must be a JSON object with `{name}` alone; it has {found}.")
        return body
