"""POST /v2/parse and GET /v2/parse/formats.

A parse is read back with GET /v2/scrape/{id}. The contract's activity list has no kind for it, so it is listed as a
scrape whose target is the file's name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weblake.api import options
from weblake_service.components import RouteGroup, requester
from weblake_service.config import Access
from weblake_service.feature_checks import check_page_options
from weblake_service.files.file_types import EXTENSIONS, list_types, type_of_name
from weblake_service.files.upload import UploadForm, read_form
from weblake_service.jobs.page_cache import is_private
from weblake_service.jobs.page_outcomes import Stored
from weblake_service.jobs.scraper import ZERO_DATA_RETENTION_CREDITS, failure_record
from weblake_service.llm import model_options, model_output
from weblake_service.page.document import Page
from weblake_service.page.requested_formats import format_names, left_out_warnings
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse, encode, json_response
from weblake_service.routes.idempotency import KEEP_SCRAPES_S, IdempotencyTicket
from weblake_service.routes.request_options import page_price, read_options
from weblake_service.routes.single_call import SinglePageCall
from weblake_service.store import accounts

#: Formats that are available only for web pages.
_PAGE_ONLY_FORMATS = frozenset(["screenshot", "branding", "audio", "video", "changeTracking", "attributes"])
#: Default timeout of a file in milliseconds.
_DEFAULT_TIMEOUT_MS = 30_000


class ParseRoutes(RouteGroup):
    """The parse endpoints."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v2/parse", self.start, methods=["POST"]),
            Route("/v2/parse/formats", self.formats, methods=["GET"]),
        ]

    async def formats(self, request: Request) -> Response:
        """Return the file types that can be uploaded."""
        response = json_response({"success": True, "data": {"formats": list_types()}})
        response.headers["Cache-Control"] = "private, max-age=3600"
        return response

    async def start(self, request: Request) -> Response:
        """Convert an uploaded file and return its document."""
        access = requester(request)
        form = await read_form(request)
        try:
            # The file's digest is part of the idempotency fingerprint.
            body: dict[str, object] = {"file": [form.name, form.digest], "options": form.options}
            act = partial(self._parse, access, form)
            return await self._parts.replays.once(request, access, body, act, KEEP_SCRAPES_S)
        finally:
            form.close()

    async def _parse(self, access: Access, form: UploadForm, ticket: IdempotencyTicket) -> Response:
        parts = self._parts
        request_options = self._read_options(access, form)
        parts.rate.take(access.team)
        plan, price, now = parts.config.plan(access.team), page_price(request_options), parts.clock.now()
        # The number of PDF pages is known only after the conversion, which is then billed.
        await parts.store.read(lambda db: accounts.require_credits(db, access.team, price, plan.credits, now))
        call = SinglePageCall(
            access, "parse", form.name, await parts.ids.draw(parts.store), is_private(request_options), ticket
        )
        timeout = request_options.get("timeout")
        timeout_s = (timeout if isinstance(timeout, int) and timeout > 0 else _DEFAULT_TIMEOUT_MS) / 1000
        until = time.monotonic() + timeout_s
        try:
            page = await parts.web.parse(form.read, model_options.without_model_options(request_options), timeout_s)
            left = max(0.0, until - time.monotonic())
            made = await model_output.generate(
                parts.llm.model, parts.llm.missing, request_options, page.document, timeout_s=left
            )
            made.warnings += left_out_warnings(request_options, made.failures)
        except PageFailure as failure:
            return await call.record_failure(parts, _error_of_failure(failure), failure_record(failure))
        return await call.record_success(parts, _document(call, page, made, request_options))

    def _read_options(self, access: Access, form: UploadForm) -> dict[str, object]:
        """Return the validated options of a request; raises ErrorResponse."""
        if type_of_name(form.name) is None:
            raise ErrorResponse(
                400,
                f"{form.name[:100]!r} is not a kind of file that is parsed. Those that are end in "
                f"{', '.join(EXTENSIONS)}.",
                code="UNSUPPORTED_FILE_TYPE",
                details=[{"message": "Unsupported file extension", "supported": list(EXTENSIONS)}],
            )
        request_options = read_options(options.ParseOptions, form.options)
        _check_formats(request_options)
        check_page_options(request_options, self._parts.config.plan(access.team), llm=self._parts.llm.missing)
        return request_options


def _document(
    call: SinglePageCall, page: Page, made: model_output.ModelOutput, request_options: Mapping[str, object]
) -> Stored:
    credits = page.credits + made.credits + (ZERO_DATA_RETENTION_CREDITS if call.private else 0)
    metadata = page.document.get("metadata")
    shown_metadata: dict[str, object] = dict(metadata) if isinstance(metadata, Mapping) else {}
    # Proxy and cache options do not apply to a file.
    for name in ("proxyUsed", "cacheState"):
        shown_metadata.pop(name, None)
    shown_metadata |= {"scrapeId": call.id, "creditsUsed": credits, "concurrencyLimited": False}
    document = model_output.add_to_document(page.document, made, request_options) | {"metadata": shown_metadata}
    warnings = [str(one) for one in (page.document.get("warning"), *made.warnings) if one]
    if warnings:
        document["warning"] = " ".join(warnings)
    return Stored(call.id, encode(document), credits, call.target)


def _error_of_failure(failure: PageFailure) -> ErrorResponse:
    # The file is part of the request, so its errors are errors of the request.
    status = 400 if failure.code == "SCRAPE_UNSUPPORTED_FILE_ERROR" else failure.status
    details = [{"message": failure.message}] if status == 400 else None
    return ErrorResponse(status, failure.message, code=failure.code, details=details)


def _check_formats(request_options: Mapping[str, object]) -> None:
    for name in format_names(request_options):
        if name in _PAGE_ONLY_FORMATS:
            message = f"The format `{name}` is not made of files; leave it out, or scrape the page."
            raise ErrorResponse(400, message, code="PARSE_UNSUPPORTED_OPTIONS", details=[{"message": message}])
