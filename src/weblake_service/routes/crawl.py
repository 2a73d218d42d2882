"""POST /v2/crawl, GET /v2/crawl/active and POST /v2/crawl/params-preview."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weblake.api import options
from weblake_service.clock import iso
from weblake_service.components import requester
from weblake_service.config import Access
from weblake_service.feature_checks import check_crawl_options, check_page_options
from weblake_service.jobs.crawl import DEFAULT_LIMIT
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_cache import is_private
from weblake_service.llm.crawl_params import generate
from weblake_service.responses import json_response, read_object
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.jobs import JobRoutes, job_address
from weblake_service.routes.request_options import (
    once,
    page_price,
    read_options,
    read_target,
    read_webhook,
    start_job,
)
from weblake_service.web.path_patterns import PathPatterns

#: Fields of a crawl's options that are not stored in its plan.
_NOT_STORED = frozenset({"url", "webhook", "scrape_options", "origin", "integration", "zero_data_retention", "prompt"})


class CrawlRoutes(JobRoutes):
    """The crawl endpoints."""

    kind, path = "crawl", "/v2/crawl"

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route(self.path, once(self._parts, self.start), methods=["POST"]),
            Route("/v2/crawl/active", self.active, methods=["GET"]),
            Route("/v2/crawl/params-preview", self.preview, methods=["POST"]),
            *super().routes(),
        ]

    async def active(self, request: Request) -> Response:
        """Return the team's running crawls, newest first."""
        team = requester(request).team

        def work(db: Connection) -> list[dict[str, object]]:
            rows = db.execute(
                "SELECT id, url, created, shown FROM jobs WHERE status = 'scraping' AND kind = 'crawl' AND team = ?"
                " ORDER BY created DESC, rowid DESC",
                (team,),
            )
            return [
                {
                    "id": row["id"],
                    "teamId": team,
                    "url": row["url"],
                    "created_at": iso(row["created"]),
                    "options": {"scrapeOptions": msgspec.Raw(row["shown"])},
                }
                for row in rows
            ]

        return json_response({"success": True, "crawls": await self._parts.store.read(work)})

    async def preview(self, request: Request) -> Response:
        """Return the options for POST /v2/crawl that match a prompt; starts no job and is free."""
        parts = self._parts
        body = await read_object(request, parts.config.max_body)
        request_options = read_options(options.CrawlParamsPreviewRequest, body)
        model = parts.llm.require("Crawl parameter preview")
        url = read_target(request_options["url"], parts.config)
        parts.rate.take(requester(request).team)
        found, _ = await generate(model, url, str(request_options["prompt"]))
        return json_response({"success": True, "data": {"url": url, **found}})

    async def start(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Start a crawl."""
        parts = self._parts
        request_options = read_options(options.CrawlRequest, body)
        pages = request_options.get("scrape_options", {})
        assert isinstance(pages, dict)
        check_crawl_options(request_options, parts.config.plan(access.team), llm=parts.llm.missing)
        check_page_options(pages, llm=parts.llm.missing)
        if request_options.get("zero_data_retention"):
            pages = {**pages, "zero_data_retention": True}
        PathPatterns(request_options)  # invalid patterns are refused before anything is recorded
        webhook = read_webhook(request_options, parts.config)
        url = read_target(request_options["url"], parts.config)
        parts.rate.take(access.team)
        if request_options.get("prompt"):
            _, generated = await generate(parts.llm.require("The option `prompt`"), url, str(request_options["prompt"]))
            request_options = {**generated, **request_options}
        now = parts.clock.now()
        limit, target = request_options.get("limit", DEFAULT_LIMIT), None if is_private(pages) else url
        assert isinstance(limit, int)
        plan = {name: value for name, value in request_options.items() if name not in _NOT_STORED} | {"limit": limit}
        price = page_price(pages)

        job = NewJob("", "crawl", access, url, now, pages, plan, _public_options(body), webhook, limit, price, target)
        return await start_job(parts, job, ticket, limit * price, address=job_address(request, self.path))


def _public_options(body: Mapping[str, object]) -> dict[str, object]:
    """Return the scrape options in request form, as the list of active crawls shows them."""
    given = body.get("scrapeOptions")
    return given if isinstance(given, dict) else {}
