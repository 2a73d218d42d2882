"""POST /v2/agent, GET and DELETE /v2/agent/{id}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import RouteGroup
from weblake_service.config import Access
from weblake_service.jobs.agent import DEFAULT_CREDITS
from weblake_service.jobs.job_records import NewJob
from weblake_service.llm.model_options import EXTRACTION_CREDITS
from weblake_service.responses import bad_request
from weblake_service.routes import model_jobs
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.request_options import read_options, read_target, read_webhook, run_once

#: Request fields that are not stored in the job's plan.
_NOT_STORED = frozenset({"webhook", "origin", "integration"})


class AgentRoutes(RouteGroup):
    """The agent endpoints."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/agent", self.start, methods=["POST"]),
            Route("/v2/agent/{id}", self.read, methods=["GET"]),
            Route("/v2/agent/{id}", self.cancel, methods=["DELETE"]),
        ]

    async def start(self, request: Request) -> Response:
        """Start a job in which a language model chooses what to read."""
        return await run_once(self._parts, request, self._start)

    async def read(self, request: Request) -> Response:
        """Return the status, and the data if there is a result."""
        return await model_jobs.read(self._parts, request, "id", "The agent", ("agent",))

    async def cancel(self, request: Request) -> Response:
        """Cancel the job immediately."""
        return await model_jobs.cancel(self._parts, request, "id", "The agent", "agent")

    async def _start(self, access: Access, body: dict[str, object], ticket: IdempotencyTicket) -> Response:
        parts = self._parts
        request_options = read_options(options.AgentRequest, body)
        model_jobs.check_model(parts, "The agent")
        model_jobs.check_schema(request_options)
        webhook = read_webhook(request_options, parts.config)
        given = request_options.get("urls") or []
        assert isinstance(given, list)
        urls = [read_target(url, parts.config) for url in given]
        if request_options.get("strict_constrain_to_urls") and not urls:
            bad_request("`strictConstrainToURLs` needs `urls`: without any, nothing could be read.")
        most = request_options.get("max_credits", DEFAULT_CREDITS)
        if not isinstance(most, int | float) or not EXTRACTION_CREDITS < most < 10**9:
            bad_request(f"`maxCredits` must be above {EXTRACTION_CREDITS}: that much its answer costs alone.")
        parts.rate.take(access.team)
        plan = {name: value for name, value in request_options.items() if name not in _NOT_STORED}
        plan |= {"urls": urls, "max_credits": int(most), "model": parts.config.llm_model or ""}
        first = urls[0] if urls else str(request_options["prompt"])[:200]
        needed = EXTRACTION_CREDITS + 1
        job = NewJob(
            "", "agent", access, first, parts.clock.now(), {}, plan, {}, webhook, expected=needed, target=first
        )
        return await model_jobs.start(parts, job, ticket, needed, {})
