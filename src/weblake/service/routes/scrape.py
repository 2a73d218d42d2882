"""POST /v2/scrape and GET /v2/scrape/{id}.

Imports: accounts, answers, failures, features, orders, parts, records, replays.
"""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake import options
from weblake.service.answers import Refusal, answer, encode, job_id, not_found, raw_answer, read_object
from weblake.service.config import Access
from weblake.service.failures import PageFailure
from weblake.service.features import check_page_options
from weblake.service.jobs import records
from weblake.service.jobs.records import NewJob
from weblake.service.jobs.scraping import Scraped, failed
from weblake.service.parts import Parts, asker
from weblake.service.routes.intake import page_price, read_options, read_target
from weblake.service.routes.replays import KEEP_SCRAPES, Ticket
from weblake.service.store import accounts


class ScrapeRoutes:
    """Single scrapes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/v2/scrape", self.start, methods=["POST"]),
            Route("/v2/scrape/{id}", self.read, methods=["GET"]),
        ]

    async def start(self, request: Request) -> Response:
        """Scrapes one page and returns it."""
        access = asker(request)
        body = await read_object(request, self._parts.config.max_body)

        async def act(ticket: Ticket) -> Response:
            return await self._scrape(access, body, ticket)

        return await self._parts.replays.once(request, access, body, act, KEEP_SCRAPES)

    async def read(self, request: Request) -> Response:
        """A page that was scraped within the last day, alone or in a job."""
        scrape_id, team = job_id(request), asker(request).team
        alive = self._parts.clock.now() - records.JOB_LIFE

        def work(db: Connection) -> bytes:
            row = db.execute(
                "SELECT body FROM documents JOIN jobs ON jobs.id = job"
                " WHERE scrape_id = ? AND team = ? AND (ended IS NULL OR ended > ?)",
                (scrape_id, team, alive),
            ).fetchone()
            if row is None:
                not_found()
            found: bytes = row["body"]
            return found

        document = await self._parts.store.read(work)
        return answer({"success": True, "data": msgspec.Raw(document)})

    async def _scrape(self, access: Access, body: dict[str, object], ticket: Ticket) -> Response:
        parts = self._parts
        asked = read_options(options.ScrapeRequest, body)
        check_page_options(asked)
        # The document's sourceURL is the URL as it was asked for, so that is what goes on.
        url = str(asked["url"])
        read_target(url, parts.config)
        parts.rate.take(access.team)
        price, plan, now = page_price(asked), parts.config.plan_credits, parts.clock.now()
        await parts.store.read(lambda db: accounts.demand(db, access.team, price, plan, now))
        try:
            scraped = await parts.scraper.get(url, asked, access.team)
        except PageFailure as failure:
            return await self._failed(access, url, asked, failure, ticket)
        return await self._stored(access, url, asked, scraped, ticket)

    async def _stored(
        self, access: Access, url: str, asked: Mapping[str, object], scraped: Scraped, ticket: Ticket
    ) -> Response:
        page, now = scraped.stored, self._parts.clock.now()
        reply = encode({"success": True, "data": msgspec.Raw(page.body), "scrape_id": page.scrape_id})

        def work(db: Connection) -> None:
            scraped.keep(db, now)
            if asked.get("lockdown"):
                # Lockdown counts as zero data retention: the price and the fact remain, nothing else.
                accounts.charge(db, access, page.credits, now)
                accounts.record_activity(db, access, "scrape", page.scrape_id, None, now)
                return
            records.store_single(db, NewJob(page.scrape_id, "scrape", access, url, now, target=url), page)
            ticket.save(db, 200, reply)

        await self._parts.store.write(work)
        return raw_answer(reply)

    async def _failed(
        self, access: Access, url: str, asked: Mapping[str, object], failure: PageFailure, ticket: Ticket
    ) -> Response:
        refusal = Refusal(failure.status, failure.message, code=failure.code)
        credits, now = failed(failure).credits, self._parts.clock.now()
        lockdown = bool(asked.get("lockdown"))

        def work(db: Connection) -> None:
            accounts.record_activity(db, access, "scrape", str(uuid4()), None if lockdown else url, now)
            if credits:
                accounts.charge(db, access, credits, now)
            if not lockdown:
                ticket.save(db, refusal.status, encode(refusal.body()))

        await self._parts.store.write(work)
        raise refusal
