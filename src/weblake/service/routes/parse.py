"""POST /v2/parse and GET /v2/parse/formats.

A parse is read back with GET /v2/scrape/{id}. The contract's activity list has no word for it, so it is listed as a
scrape whose target is the file's name.

Imports: accounts, answers, failures, features, files, intake, parts, records, replays, scraping, singles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake import options
from weblake.service.answers import Refusal, answer, encode, raw_answer
from weblake.service.config import Access
from weblake.service.failures import PageFailure
from weblake.service.features import check_page_options, format_names
from weblake.service.files.kinds import EXTENSIONS, kind_of_name, listed
from weblake.service.files.upload import UploadForm, read_form
from weblake.service.jobs import records, singles
from weblake.service.jobs.outcomes import Stored
from weblake.service.jobs.page_cache import is_private
from weblake.service.jobs.records import NewJob
from weblake.service.jobs.scraping import ZERO_DATA_RETENTION, failed
from weblake.service.parts import Parts, asker
from weblake.service.routes.intake import page_price, read_options
from weblake.service.routes.replays import KEEP_SCRAPES, Ticket
from weblake.service.store import accounts
from weblake.service.web.door import ParsedFile

#: Formats that only a page on the web has.
_NO_FILE_HAS = frozenset(["screenshot", "branding", "audio", "video", "changeTracking", "attributes"])
#: Milliseconds that a file may take.
_TIMEOUT = 30_000


class ParseRoutes:
    """Uploaded files."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/v2/parse", self.start, methods=["POST"]),
            Route("/v2/parse/formats", self.formats, methods=["GET"]),
        ]

    async def formats(self, request: Request) -> Response:
        """The kinds of files that can be uploaded."""
        response = answer({"success": True, "data": {"formats": listed()}})
        response.headers["Cache-Control"] = "private, max-age=3600"
        return response

    async def start(self, request: Request) -> Response:
        """Converts one file and returns it."""
        access = asker(request)
        form = await read_form(request)
        try:
            # The same request is one with the same file: its digest stands for it.
            body: dict[str, object] = {"file": [form.name, form.digest], "options": form.options}

            async def act(ticket: Ticket) -> Response:
                return await self._parse(access, form, ticket)

            return await self._parts.replays.once(request, access, body, act, KEEP_SCRAPES)
        finally:
            form.close()

    async def _parse(self, access: Access, form: UploadForm, ticket: Ticket) -> Response:
        parts = self._parts
        asked = self._asked(access, form)
        parts.rate.take(access.team)
        plan, price, now = parts.config.plan(access.team), page_price(asked), parts.clock.now()
        # How many pages a PDF has is known only when it has been read, and then it is paid for.
        await parts.store.read(lambda db: accounts.demand(db, access.team, price, plan.credits, now))
        call = _Call(access, form.name, await self._parts.ids.drawn(self._parts.store), is_private(asked), ticket)
        timeout = asked.get("timeout")
        timeout_s = (timeout if isinstance(timeout, int) and timeout > 0 else _TIMEOUT) / 1000
        try:
            page = await parts.web.parse(form.read, asked, timeout_s)
        except PageFailure as failure:
            return await self._failed(call, failure)
        return await self._stored(call, page)

    def _asked(self, access: Access, form: UploadForm) -> dict[str, object]:
        """The options of a request that can be carried out; raises Refusal."""
        if kind_of_name(form.name) is None:
            raise Refusal(
                400,
                f"{form.name[:100]!r} is not a kind of file that is parsed. Files that are end in "
                f"{', '.join(EXTENSIONS)}.",
                code="UNSUPPORTED_FILE_TYPE",
                details=[{"message": "Unsupported file extension", "supported": list(EXTENSIONS)}],
            )
        asked = read_options(options.ParseOptions, form.options)
        _check_formats(asked)
        check_page_options(asked, self._parts.config.plan(access.team))
        return asked

    async def _stored(self, call: _Call, page: ParsedFile) -> Response:
        credits = page.credits + (ZERO_DATA_RETENTION if call.private else 0)
        metadata = page.document.get("metadata")
        told: dict[str, object] = dict(metadata) if isinstance(metadata, Mapping) else {}
        # Neither a proxy nor the cache has anything to do with a file.
        for name in ("proxyUsed", "cacheState"):
            told.pop(name, None)
        told |= {"scrapeId": call.id, "creditsUsed": credits, "concurrencyLimited": False}
        document = {**page.document, "metadata": told}
        stored, now = Stored(call.id, encode(document), credits, call.name), self._parts.clock.now()
        reply = encode({"success": True, "data": document, "scrape_id": call.id})

        def work(db: Connection) -> None:
            if call.private:
                singles.note_private(db, call.access, call.id, credits, now, "parse")
                return
            records.store_single(db, call.job(now), stored)
            call.ticket.save(db, 200, reply)

        await self._parts.store.write(work)
        return raw_answer(reply)

    async def _failed(self, call: _Call, failure: PageFailure) -> Response:
        # The file came with the request, so what is wrong with it is wrong with the request.
        status = 400 if failure.code == "SCRAPE_UNSUPPORTED_FILE_ERROR" else failure.status
        details = [{"message": failure.message}] if status == 400 else None
        refusal = Refusal(status, failure.message, code=failure.code, details=details)
        now = self._parts.clock.now()

        def work(db: Connection) -> None:
            if call.private:
                singles.note_private(db, call.access, call.id, 0, now, "parse")
                return
            singles.store_failed(db, call.job(now), failed(failure))
            call.ticket.save(db, refusal.status, encode(refusal.body()))

        await self._parts.store.write(work)
        raise refusal


@dataclass(frozen=True, slots=True)
class _Call:
    """One request that is being answered."""

    access: Access
    name: str
    id: str
    #: Whether nothing of it may be kept.
    private: bool
    ticket: Ticket

    def job(self, at: float) -> NewJob:
        """The job as which it is recorded."""
        return NewJob(self.id, "parse", self.access, self.name, at, target=self.name)


def _check_formats(asked: Mapping[str, object]) -> None:
    for name in format_names(asked):
        if name in _NO_FILE_HAS:
            message = f"The format `{name}` is not made of files; leave it out, or scrape the page."
            raise Refusal(400, message, code="PARSE_UNSUPPORTED_OPTIONS", details=[{"message": message}])
