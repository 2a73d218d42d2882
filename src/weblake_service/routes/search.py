"""POST /v2/search: full-text search of the pages that this service scraped for a team."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake_service.components import RouteGroup
from weblake_service.config import Access, Plan
from weblake_service.ids import scrape_id
from weblake_service.jobs import job_records
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.job_run import is_service_failure
from weblake_service.jobs.page_outcomes import Failed
from weblake_service.jobs.scraper import ScrapeContext, Scraped, failure_record
from weblake_service.jobs.web_tools import SEARCH_PRICE, search_price
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse, encode, encoded_json_response
from weblake_service.routes.idempotency import KEEP_SCRAPES_S, IdempotencyTicket
from weblake_service.routes.request_options import once, page_price, read_target
from weblake_service.routes.search_request import SearchRequest, read_search, result
from weblake_service.routes.target_urls import split_urls
from weblake_service.store import accounts, search_index
from weblake_service.store.search_index import SearchHit
from weblake_service.web.redirect_chain import options_for


class SearchRoutes(RouteGroup):
    """The search endpoint."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/v2/search", once(self._parts, self.search, KEEP_SCRAPES_S), methods=["POST"])]

    async def search(
        self, request: Request, access: Access, body: dict[str, object], ticket: IdempotencyTicket
    ) -> Response:
        """Return matching pages, scraped if the request asks for it."""
        parts = self._parts
        plan = parts.config.plan(access.team)
        search_request = read_search(body, plan, parts.clock.now(), llm=parts.llm.missing)
        parts.rate.take(access.team)
        search_id = await self._parts.ids.draw(self._parts.store)
        try:
            async with asyncio.timeout(search_request.timeout_ms / 1000):
                found = await self._find(access, search_request)
                price = search_price(len(found))
                await self._check_credits(access, search_request, price, len(found), plan)
                scraped = await self._scrape(access, search_request, found, search_id)
        except TimeoutError:
            message = f"The search was not done within {search_request.timeout_ms} ms. Allow more with `timeout`."
            raise ErrorResponse(408, message, code="SEARCH_TIMEOUT") from None
        web = [
            result(search_request, one, place, page)
            for place, (one, page) in enumerate(zip(found, scraped, strict=True))
        ]
        reply = encode(
            {
                "success": True,
                "data": {source: web if source == "web" else [] for source in search_request.sources},
                "warning": " ".join(search_request.notes),
                "id": search_id,
                "creditsUsed": price + sum(_credits(page) for page in scraped),
            }
        )
        await self._keep(access, search_request, search_id, scraped, price, ticket, reply)
        return encoded_json_response(reply)

    async def _find(self, access: Access, search_request: SearchRequest) -> list[SearchHit]:
        if "web" not in search_request.sources:
            return []

        def work(db: Connection) -> tuple[list[SearchHit], bool, int]:
            found, whole = search_index.search(
                db, access.team, search_request.query, search_request.limit, newest=search_request.newest
            )
            return found, whole, search_index.count(db, access.team)

        found, whole, pages = await self._parts.store.read(work)
        if pages:
            known = "the one page" if pages == 1 else f"the {pages} pages"
            search_request.notes.insert(0, f"Searched {known} that this service scraped for this team, not the web.")
        else:
            search_request.notes.insert(
                0,
                "There is nothing to search yet: this service searches the pages that it scraped for this team, not"
                " the web. Scrape, batch or crawl some first.",
            )
        if not whole:
            search_request.notes.append("No page has all of the words, so these have some of them.")
        if search_request.only_valid:
            _, invalid, _ = split_urls([one.url for one in found], allow_private=self._parts.config.allow_private)
            found = [one for one in found if one.url not in invalid]
        return found

    async def _check_credits(
        self, access: Access, search_request: SearchRequest, price: int, results: int, plan: Plan
    ) -> None:
        """Refuse a search that the team cannot pay for before any page is fetched; a search without results is free."""
        now = self._parts.clock.now()
        needed = max(price, SEARCH_PRICE) + (
            results * page_price(search_request.page) if search_request.page is not None else 0
        )
        await self._parts.store.read(lambda db: accounts.require_credits(db, access.team, needed, plan.credits, now))

    async def _scrape(
        self, access: Access, search_request: SearchRequest, found: Sequence[SearchHit], search_id: str
    ) -> list[Scraped | Failed | None]:
        """Return each result's scrape or failure; None if scraping was not requested."""
        page = search_request.page
        if page is None:
            return [None] * len(found)

        async def one(url: str, place: int) -> Scraped | Failed:
            try:
                read_target(url, self._parts.config)
                await self._parts.faults.apply_to_page(url, "search", search_id)
                # The request names no site that its headers could belong to.
                own, context = options_for(url, page, ()), ScrapeContext(scrape_id(search_id, place))
                return await self._parts.scraper.get(url, own, access.team, context)
            except Exception as error:
                if is_service_failure(error):
                    raise
                if search_request.private and not isinstance(error, PageFailure):
                    # The message of an unexpected exception may contain the URL, so only its class is logged.
                    return failure_record(
                        PageFailure("UNKNOWN_ERROR", f"An unexpected error occurred: {type(error).__name__}")
                    )
                return failure_record(error)

        return await asyncio.gather(*(one(known.url, place) for place, known in enumerate(found, 1)))

    async def _keep(
        self,
        access: Access,
        search_request: SearchRequest,
        search_id: str,
        pages: Sequence[Scraped | Failed | None],
        price: int,
        ticket: IdempotencyTicket,
        reply: bytes,
    ) -> None:
        now = self._parts.clock.now()
        scraped = [page for page in pages if isinstance(page, Scraped)]
        stored = [] if search_request.private else [page.stored for page in scraped]
        # A stored document is billed in the same transaction.
        credits = price + sum(_credits(page) for page in pages) - sum(page.credits for page in stored)

        def work(db: Connection) -> None:
            for page in scraped:
                page.keep(db, now)
            if search_request.private:
                job_records.store_private(db, access, search_id, credits, now, "search")
                if credits:
                    ticket.save_key_only(db)
                return
            if credits:
                accounts.charge(db, access, credits, now)
            if stored:
                job = NewJob(search_id, "search", access, search_request.text, now, target=search_request.text)
                job_records.store_single(db, job, *stored)
            else:
                accounts.record_activity(db, access, "search", search_id, search_request.text, now)
            ticket.save(db, 200, reply)

        await self._parts.store.write(work)


def _credits(page: Scraped | Failed | None) -> int:
    if page is None:
        return 0
    return page.credits if isinstance(page, Failed) else page.stored.credits
