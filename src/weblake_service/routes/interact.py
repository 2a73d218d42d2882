"""POST and DELETE /v2/scrape/{id}/interact."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.browser.chromium import require_browser
from weblake_service.components import RouteGroup, requester
from weblake_service.config import Access
from weblake_service.page.requested_formats import number
from weblake_service.responses import json_response, read_job_id
from weblake_service.routes.code_execution import require_code, run_in_session, session_urls
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.request_options import once, read_options, save_response
from weblake_service.sessions.prompt_agent import follow_prompt
from weblake_service.sessions.sessions import LiveSession

#: Default timeout of a prompt in seconds.
_DEFAULT_TIMEOUT_S = 30


class InteractRoutes(RouteGroup):
    """The interact endpoints."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/scrape/{id}/interact", once(self._parts, self.interact), methods=["POST"]),
            Route("/v2/scrape/{id}/interact", self.stop, methods=["DELETE"]),
        ]

    async def stop(self, request: Request) -> Response:
        """End the browser of a scrape and bill it."""
        ended = await self._parts.interact.stop(requester(request), read_job_id(request, unreadable=404))
        return json_response({"success": True, "sessionDurationMs": ended.milliseconds, "creditsBilled": ended.credits})

    async def interact(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Run code or follow a prompt on the page of a scrape."""
        parts, scrape_id = self._parts, read_job_id(request)
        request_options = read_options(options.InteractOptions, body)
        prompt = str(request_options["prompt"]) if "prompt" in request_options else None
        if prompt is None:
            require_code(parts, "Interact with code")
        else:
            require_browser("Interact with a prompt")
            parts.llm.require("Interact with a prompt")
        parts.rate.take(access.team)
        live = await parts.interact.session(access, scrape_id)
        if prompt is None:
            result, value = await run_in_session(parts, live, request_options)
            result["result"] = value
        else:
            result = await self._follow(live, prompt, number(request_options.get("timeout"), _DEFAULT_TIMEOUT_S))
        reply = {"success": True, **session_urls(live, str(request.base_url)), **result}
        return await save_response(parts, ticket, reply)

    async def _follow(self, live: LiveSession, prompt: str, timeout_s: float) -> dict[str, object]:
        """Run a language model that follows a prompt in the browser."""
        parts = self._parts
        model = parts.llm.require("Interact with a prompt")
        done = await parts.sessions.use(live, follow_prompt(model, parts.playwright, live, prompt, timeout_s))
        result: dict[str, object] = {"stdout": None, "stderr": None, "exitCode": 0, "killed": False, "error": None}
        if done is not None:
            return {**result, "output": done.output, "result": done.snapshot}
        error = f"The prompt was ended after {timeout_s:g} s, its timeout. Give it a larger one, or ask for less."
        return {**result, "exitCode": None, "killed": True, "error": error, "output": None, "result": None}
