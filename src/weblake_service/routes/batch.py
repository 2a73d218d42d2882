"""POST /v2/batch/scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weblake.api import options
from weblake_service.config import Access
from weblake_service.feature_checks import check_page_options
from weblake_service.jobs import job_records, page_queue
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_cache import is_private
from weblake_service.responses import ErrorResponse, bad_request, encode
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.jobs import JobRoutes, job_address
from weblake_service.routes.request_options import (
    check_queue,
    once,
    page_options,
    page_price,
    read_options,
    read_webhook,
    record_and_launch,
)
from weblake_service.routes.target_urls import split_urls
from weblake_service.store import accounts


class BatchRoutes(JobRoutes):
    """The batch scrape endpoints."""

    kind, path = "batch_scrape", "/v2/batch/scrape"

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [Route(self.path, once(self._parts, self.start), methods=["POST"]), *super().routes()]

    async def start(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Start a job, or append to an existing one."""
        parts = self._parts
        # Checking a hundred thousand URLs takes seconds; a thread keeps the event loop responsive.
        request_options = await asyncio.to_thread(read_options, options.BatchScrapeRequest, body)
        check_page_options(request_options, parts.config.plan(access.team), llm=parts.llm.missing)
        webhook = read_webhook(request_options, parts.config)
        urls, invalid = await asyncio.to_thread(self._urls, request_options)
        parts.rate.take(access.team)
        now, append_to = parts.clock.now(), request_options.get("append_to_id")
        pages, plan, price = page_options(request_options), _plan(request_options), page_price(request_options)
        shown = None if is_private(pages) else urls[0]

        def record(db: Connection) -> tuple[str, bytes]:
            accounts.require_credits(db, access.team, len(urls) * price, parts.config.plan(access.team).credits, now)
            check_queue(job_records.waiting(db, access.team), len(urls), parts.config.plan(access.team), now)
            new_id = str(append_to).lower() if append_to else parts.ids.start(db)
            job = NewJob(
                new_id, "batch_scrape", access, urls[0], now, pages, plan, {}, webhook, len(urls), price, target=shown
            )
            if append_to:
                _append(db, job, urls)
            else:
                job_records.create(db, job)
                page_queue.add(db, new_id, ((url, 0) for url in urls), now)
            url = f"{job_address(request, self.path)}/{new_id}"
            reply: dict[str, object] = {"success": True, "id": new_id, "url": url}
            encoded = encode(reply if invalid is None else reply | {"invalidURLs": invalid})
            ticket.save(db, 200, encoded)
            return new_id, encoded

        return await record_and_launch(parts, record)

    def _urls(self, request_options: Mapping[str, object]) -> tuple[list[str], list[str] | None]:
        """Return the URLs to scrape, and the invalid ones to report; None if invalid URLs are not tolerated."""
        tolerant = request_options.get("ignore_invalid_urls", True) is True
        given = request_options["urls"]
        assert isinstance(given, list)
        good, bad, problem = split_urls(given, allow_private=self._parts.config.allow_private)
        if problem is not None and not tolerant:
            raise problem
        if not good:
            bad_request("No valid URLs provided")
        return good, bad if tolerant else None


def _plan(request_options: Mapping[str, object]) -> dict[str, object]:
    return {name: request_options[name] for name in ("max_concurrency",) if name in request_options}


def _append(db: Connection, job: NewJob, urls: list[str]) -> None:
    """Add URLs to a running or completed job, with their own options if these differ."""
    found = job_records.find(db, job.id, job.kind, job.access.team, job.at)
    if found["status"] in ("failed", "cancelled"):
        raise ErrorResponse(409, f"The batch scrape is {found['status']}: nothing can be appended to it.")
    job_records.reopen(db, job.id)
    own = None if job_records.decode_object(found["options"]) == job.options else job.options
    page_queue.add(db, job.id, ((url, 0) for url in urls), job.at, own)
    db.execute(
        "UPDATE jobs SET expected = expected + ?, page_price = max(page_price, ?) WHERE id = ?",
        (len(urls), job.page_price, job.id),
    )
    accounts.record_activity(db, job.access, job.kind, job.id, job.target, job.at)
