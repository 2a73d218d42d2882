"""POST /v2/extract and GET /v2/extract/{id}; the latter also reads agents, as the contract's text says."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import RouteGroup
from weblake_service.config import Access
from weblake_service.feature_checks import check_page_options, not_configured
from weblake_service.jobs.extract import DEFAULT_PAGES, MAX_PAGES
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_cache import is_private
from weblake_service.llm.model_options import EXTRACTION_CREDITS
from weblake_service.responses import bad_request
from weblake_service.routes import model_jobs
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.request_options import page_price, read_options, read_webhook, run_once
from weblake_service.routes.target_urls import split_urls, target_error

#: Request fields that are not stored in the job's plan.
_NOT_STORED = frozenset({"webhook", "scrape_options", "origin", "integration", "urls"})


class ExtractRoutes(RouteGroup):
    """The extract endpoints."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/extract", self.start, methods=["POST"]),
            Route("/v2/extract/{id}", self.read, methods=["GET"]),
        ]

    async def start(self, request: Request) -> Response:
        """Start a job that reads pages and extracts data from all of them."""
        return await run_once(self._parts, request, self._start)

    async def read(self, request: Request) -> Response:
        """Return the status, and the data if there is a result."""
        return await model_jobs.read(self._parts, request, "id", "Extract", ("extract", "agent"))

    async def _start(self, access: Access, body: dict[str, object], ticket: IdempotencyTicket) -> Response:
        parts = self._parts
        request_options = read_options(options.ExtractRequest, body)
        model_jobs.check_model(parts, "Extract")
        model_jobs.check_schema(request_options)
        if request_options.get("allow_external_links"):
            raise not_configured("The option `allowExternalLinks` of extract", "a part of the service that comes later")
        pages = request_options.get("scrape_options", {})
        assert isinstance(pages, dict)
        check_page_options(pages, parts.config.plan(access.team), llm=parts.llm.missing)
        if is_private(pages):
            bad_request(
                "`scrapeOptions.lockdown` does not go with an extract, which keeps what it reads until its end."
            )
        webhook = read_webhook(request_options, parts.config)
        urls, invalid = self._urls(request_options)
        parts.rate.take(access.team)
        count = min(max(len(urls), int(str(request_options.get("limit", DEFAULT_PAGES if not urls else 1)))), MAX_PAGES)
        needed = count * page_price({**pages, "formats": ["markdown"]}) + EXTRACTION_CREDITS
        plan = {name: value for name, value in request_options.items() if name not in _NOT_STORED} | {"urls": urls}
        first = urls[0] if urls else str(request_options.get("prompt", ""))[:200]
        job = NewJob(
            "", "extract", access, first, parts.clock.now(), pages, plan, {}, webhook, expected=needed, target=first
        )
        return await model_jobs.start(parts, job, ticket, needed, {} if invalid is None else {"invalidURLs": invalid})

    def _urls(self, request_options: Mapping[str, object]) -> tuple[list[str], list[str] | None]:
        """Return the URLs to read, some with `*`, and the invalid ones to report; None if invalid URLs are not
        tolerated.
        """
        given = request_options.get("urls") or []
        assert isinstance(given, list)
        tolerant = request_options.get("ignore_invalid_urls", True) is True
        good: list[str] = []
        bad: list[str] = []
        for url in given:
            start, star, rest = str(url).partition("*")
            found, wrong, problem = split_urls([start], allow_private=self._parts.config.allow_private)
            if problem is not None and not tolerant:
                raise target_error(problem)
            good += [one + star + rest for one in found]
            bad += [str(url)] if wrong else []
        if given and not good:
            bad_request("No valid URLs provided")
        return good, bad if tolerant else None
