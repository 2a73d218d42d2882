"""POST /v2/scrape and GET /v2/scrape/{id}."""

from __future__ import annotations

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import RouteGroup, requester
from weblake_service.config import Access
from weblake_service.feature_checks import check_page_options
from weblake_service.jobs import job_records
from weblake_service.jobs.job_run import is_service_failure
from weblake_service.jobs.page_cache import is_private
from weblake_service.jobs.scraper import ScrapeContext, failure_record
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse, failure_error, json_response, read_job_id
from weblake_service.routes.idempotency import KEEP_SCRAPES_S, IdempotencyTicket
from weblake_service.routes.request_options import once, page_options, page_price, read_options, read_target
from weblake_service.routes.single_call import SinglePageCall
from weblake_service.store import accounts
from weblake_service.web.addresses import with_scheme

_LOG = logging.getLogger("weblake.service")


class ScrapeRoutes(RouteGroup):
    """The scrape endpoints."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/scrape", once(self._parts, self.scrape, KEEP_SCRAPES_S), methods=["POST"]),
            Route("/v2/scrape/{id}", self.read, methods=["GET"]),
        ]

    async def read(self, request: Request) -> Response:
        """Return a page that was scraped within the last day, in a single call or a job."""
        scrape_id, team, now = read_job_id(request), requester(request).team, self._parts.clock.now()
        document = await self._parts.store.read(lambda db: job_records.read_scrape(db, scrape_id, team, now))
        return json_response({"success": True, "data": msgspec.Raw(document)})

    async def scrape(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Scrape one page and return its document."""
        parts = self._parts
        request_options = read_options(options.ScrapeRequest, body)
        plan = parts.config.plan(access.team)
        check_page_options(request_options, plan, llm=parts.llm.missing)
        # The document shows the URL as requested, so that form is passed on.
        url = with_scheme(str(request_options["url"]))
        read_target(url, parts.config)
        parts.rate.take(access.team)
        price, now = page_price(request_options), parts.clock.now()
        await parts.store.read(lambda db: accounts.require_credits(db, access.team, price, plan.credits, now))
        scrape_id = await parts.ids.draw(parts.store)
        call = SinglePageCall(
            access, "scrape", url, scrape_id, is_private(request_options), ticket, page_options(request_options)
        )
        try:
            await parts.faults.apply_to_page(url, "scrape", call.id)
            scraped = await parts.scraper.get(url, request_options, access.team, ScrapeContext(call.id))
        except PageFailure as failure:
            return await call.record_failure(parts, failure_error(failure), failure_record(failure))
        except Exception as error:
            if not call.private or is_service_failure(error):
                raise
            # The message of an unexpected exception may contain the URL, so only its class is logged.
            _LOG.error("A scrape that keeps nothing failed in an unforeseen way: %s.", type(error).__name__)
            raise ErrorResponse(500, "An unexpected error occurred.", code="UNKNOWN_ERROR") from None
        return await call.record_success(parts, scraped.stored, scraped.keep)
