"""POST /v2/extract and GET /v2/extract/{id}; POST /v2/agent, GET and DELETE /v2/agent/{id}.

GET /v2/extract/{id} also reads agents, as the contract's text says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from sqlite3 import Connection, Row

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import RouteGroup, requester
from weblake_service.config import Access
from weblake_service.feature_checks import check_page_options
from weblake_service.jobs import job_records, model_job_records
from weblake_service.jobs.agent import DEFAULT_CREDITS
from weblake_service.jobs.extract import DEFAULT_PAGES, MAX_PAGES
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_cache import is_private
from weblake_service.llm.model_options import EXTRACTION_CREDITS
from weblake_service.llm.schemas import schema_problem
from weblake_service.page_failure import not_configured
from weblake_service.responses import ErrorResponse, bad_request, json_response, read_job_id
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.request_options import (
    once,
    page_price,
    read_options,
    read_target,
    read_webhook,
    start_job,
)
from weblake_service.routes.target_urls import split_urls

_EXTRACT, _AGENT = "Extract", "The agent"
#: Request fields that are not stored in the job's plan.
_NOT_STORED = frozenset({"webhook", "scrape_options", "origin", "integration", "urls"})


class ModelJobRoutes(RouteGroup):
    """The endpoints of jobs that a language model runs."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/extract", once(self._parts, self.extract), methods=["POST"]),
            Route("/v2/extract/{id}", self.read_extract, methods=["GET"]),
            Route("/v2/agent", once(self._parts, self.agent), methods=["POST"]),
            Route("/v2/agent/{id}", self.read_agent, methods=["GET"]),
            Route("/v2/agent/{id}", self.cancel_agent, methods=["DELETE"]),
        ]

    async def read_extract(self, request: Request) -> Response:
        """Return the status, and the data if there is a result."""
        return await self._read(request, _EXTRACT, ("extract", "agent"))

    async def read_agent(self, request: Request) -> Response:
        """Return the status, and the data if there is a result."""
        return await self._read(request, _AGENT, ("agent",))

    async def cancel_agent(self, request: Request) -> Response:
        """Cancel the job immediately; its steps remain billed."""
        parts, team, now = self._parts, requester(request).team, self._parts.clock.now()

        def work(db: Connection) -> None:
            row = job_records.find(db, job, "agent", team, now)
            if row["status"] in ("completed", "failed"):
                raise ErrorResponse(409, f"{_AGENT} is already {row['status']}.")
            if row["status"] == "scraping":
                model_job_records.cancel(db, job, now)

        with self._explained(_AGENT):
            job = read_job_id(request, unreadable=404)
            await parts.jobs.cancel(job, work)
        parts.delivery.wake()
        return json_response({"success": True})

    async def extract(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Start a job that reads pages and extracts data from all of them."""
        parts = self._parts
        request_options = read_options(options.ExtractRequest, body)
        self._parts.llm.require(_EXTRACT)
        _check_schema(request_options)
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
        return await start_job(parts, job, ticket, needed, {} if invalid is None else {"invalidURLs": invalid})

    async def agent(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Start a job in which a language model chooses what to read."""
        parts = self._parts
        request_options = read_options(options.AgentRequest, body)
        self._parts.llm.require(_AGENT)
        _check_schema(request_options)
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
        return await start_job(parts, job, ticket, needed)

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
                raise problem
            good += [one + star + rest for one in found]
            bad += [str(url)] if wrong else []
        if given and not good:
            bad_request("No valid URLs provided")
        return good, bad if tolerant else None

    async def _read(self, request: Request, what: str, kinds: tuple[str, ...]) -> Response:
        team, now = requester(request).team, self._parts.clock.now()

        def work(db: Connection) -> dict[str, object]:
            return model_job_records.status_body(db, _find(db, job, kinds, team, now), now)

        with self._explained(what):
            job = read_job_id(request, unreadable=404)
            return json_response(await self._parts.store.read(work))

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Answer 503 instead of 404 without a language model: no job can exist, and the 503 gives the reason."""
        try:
            yield
        except ErrorResponse as error:
            if error.status == 404:
                self._parts.llm.require(what)
            raise


def _check_schema(request_options: Mapping[str, object]) -> None:
    """Raise a refusal if the schema of a request cannot be used."""
    schema = request_options.get("schema")
    problem = schema_problem(schema) if isinstance(schema, Mapping) else ""
    if problem:
        bad_request(f"`schema` cannot be used: {problem}.")


def _find(db: Connection, job: str, kinds: tuple[str, ...], team: str, at: float) -> Row:
    for kind in kinds[:-1]:
        try:
            return job_records.find(db, job, kind, team, at)
        except ErrorResponse:
            continue
    return job_records.find(db, job, kinds[-1], team, at)
