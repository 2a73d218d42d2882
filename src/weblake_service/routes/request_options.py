"""Validates request bodies into options."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from sqlite3 import Connection
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

from weblake.api import options, webhooks
from weblake.errors import InvalidOption
from weblake_service.components import ServiceComponents, requester
from weblake_service.config import Access, Plan, ServiceConfig
from weblake_service.jobs import job_records
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.scraper import LOCKDOWN_HIT_CREDITS, ZERO_DATA_RETENTION_CREDITS
from weblake_service.llm import model_options
from weblake_service.page_failure import PageFailure
from weblake_service.rate_limit import rate_limited
from weblake_service.responses import ErrorResponse, bad_request, encode, encoded_json_response, read_object
from weblake_service.routes.idempotency import KEEP_STARTS_S, IdempotencyTicket
from weblake_service.routes.target_urls import read_target_url
from weblake_service.store import accounts

#: Fields of a batch's options that do not concern its pages.
_PAGE_NAMES = frozenset(options.PageOptions.__annotations__) | {"zero_data_retention"}
#: Retry-After in seconds if the queue is full.
_QUEUE_RETRY_AFTER_S = 30
#: Maximum bytes of a webhook's configuration.
_MAX_WEBHOOK_BYTES = 64 << 10
#: Headers of a delivery that a webhook's configuration cannot set.
_RESERVED_HEADERS = frozenset(
    [
        webhooks.SIGNATURE_HEADER.lower(),
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
    ]
)  # fmt: skip
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[!-~]?|[!-~][ -~\t]*[!-~]")
_JSON_TYPE = re.compile(r"application/json\s*(;|$)", re.IGNORECASE)


def once(
    parts: ServiceComponents,
    act: Callable[[Request, Access, dict[str, object], IdempotencyTicket], Awaitable[Response]],
    keep: float = KEEP_STARTS_S,
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that executes a request with a JSON body once for each idempotency key.

    Args:
        parts: The service.
        act: Executes the request and returns the response.
        keep: Seconds for which the response is stored for retries; see `idempotency.py`.
    """

    async def endpoint(request: Request) -> Response:
        access = requester(request)
        body = await read_object(request, parts.config.max_body)
        return await parts.replays.once(request, access, body, lambda ticket: act(request, access, body, ticket), keep)

    return endpoint


async def save_response(parts: ServiceComponents, ticket: IdempotencyTicket, body: Mapping[str, object]) -> Response:
    """Return a response with this body, once it is stored for the idempotency key."""
    reply = encode(body)
    await parts.store.write(lambda db: ticket.save(db, 200, reply))
    return encoded_json_response(reply)


def read_options(cls: type, body: Mapping[str, object], ignored: list[str] | None = None) -> dict[str, object]:
    """Return the options of a request body by snake_case name; see `options.from_wire` for `ignored`.

    Raises:
        ErrorResponse: 400 with the error.
    """
    with option_errors():
        return options.from_wire(cls, body, ignored=ignored)


@contextmanager
def option_errors() -> Iterator[None]:
    """Convert option errors inside the block to a 400 response."""
    try:
        yield
    except InvalidOption as error:
        details = [{"message": error.message, "hint": error.hint} if error.hint else {"message": error.message}]
        raise ErrorResponse(400, f"{error.message} {error.hint}".strip(), code="BAD_REQUEST", details=details) from None


def read_target(url: object, config: ServiceConfig) -> str:
    """Return the target URL of a request, as it will be fetched.

    Raises:
        PageFailure: 400 if it is malformed, 403 if it is private.
    """
    return read_target_url(str(url), allow_private=config.allow_private)


def page_options(request_options: Mapping[str, object]) -> dict[str, object]:
    """Return the scrape options of a request."""
    return {name: value for name, value in request_options.items() if name in _PAGE_NAMES}


def page_price(request_options: Mapping[str, object]) -> int:
    """Return the maximum price of one page in credits."""
    of_model = model_options.price(request_options)
    if request_options.get("lockdown"):
        return LOCKDOWN_HIT_CREDITS + of_model
    return 1 + of_model + (ZERO_DATA_RETENTION_CREDITS if request_options.get("zero_data_retention") else 0)


def read_webhook(request_options: Mapping[str, object], config: ServiceConfig) -> dict[str, object] | None:
    """Return the webhook of a request as an object.

    Raises:
        ErrorResponse: 400 for a URL that is malformed, private or without TLS where that is not allowed, and for
            headers that cannot be sent.
    """
    given = request_options.get("webhook")
    if given is None:
        return None
    webhook: dict[str, object] = {"url": given} if isinstance(given, str) else dict(given)  # type: ignore[call-overload]
    try:
        url = webhook["url"] = read_target_url(str(webhook["url"]), allow_private=config.allow_private)
    except PageFailure as problem:
        bad_request(f"webhook.url cannot be used: {problem.message}")
    if not config.allow_private and not url.startswith("https://"):
        bad_request("webhook.url must begin with https:// (a service that allows private receivers takes http:// too).")
    headers = webhook.get("headers")
    if isinstance(headers, Mapping):
        _check_headers(headers)
    if len(encode(webhook)) > _MAX_WEBHOOK_BYTES:
        bad_request(f"webhook is larger than {_MAX_WEBHOOK_BYTES} bytes, and all of it goes with every delivery.")
    return webhook


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            bad_request(f"webhook.headers holds {name[:100]!r}, which is not the name of a header.")
        if not _HEADER_VALUE.fullmatch(value):
            bad_request(f"webhook.headers[{name!r}] holds characters that no header can carry: use printable ASCII.")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("proxy-"):
            bad_request(f"webhook.headers cannot set {name}: the service sets it itself. Leave it out.")
        if name.lower() == "content-type" and not _JSON_TYPE.match(value):
            bad_request("webhook.headers cannot set another Content-Type: a delivery is application/json.")


def check_queue(waiting: int, more: int, plan: Plan, now: float) -> None:
    """Check that a team's queue has space for more pages.

    Raises:
        ErrorResponse: 429 with the seconds to wait.
    """
    if waiting + more > plan.max_queued_pages:
        raise rate_limited(
            f"The queue is full: {waiting} of {plan.max_queued_pages} pages wait, and {more} more are asked for",
            _QUEUE_RETRY_AFTER_S,
            now,
        )


async def start_job(
    parts: ServiceComponents,
    job: NewJob,
    ticket: IdempotencyTicket,
    needed: int,
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    address: str = "",
) -> Response:
    """Record a job under a new id, start it, and return the response.

    Args:
        parts: The service.
        job: The job, with any id.
        ticket: Stores the response for the idempotency key.
        needed: Credits that the team must have.
        more: Additional fields of the response.
        address: The URL of the job without its id, for `url` in the response; then its pages are queued.

    Raises:
        ErrorResponse: 402 or 429; nothing was started.
    """
    plan = parts.config.plan(job.access.team)

    def record(db: Connection) -> tuple[str, bytes]:
        accounts.require_credits(db, job.access.team, needed, plan.credits, job.at)
        if address:
            check_queue(job_records.waiting(db, job.access.team), 1, plan, job.at)
        new_id = parts.ids.start(db)
        url = {"url": f"{address}/{new_id}"} if address else {}
        encoded = encode({"success": True, "id": new_id, **url, **more})
        job_records.create(db, replace(job, id=new_id))
        ticket.save(db, 200, encoded)
        return new_id, encoded

    return await record_and_launch(parts, record)


async def record_and_launch(parts: ServiceComponents, record: Callable[[Connection], tuple[str, bytes]]) -> Response:
    """Record a job in one transaction, start it, and return the response.

    Args:
        parts: The service.
        record: Writes the job and its idempotency record; returns the job's id and the encoded response.
    """
    job_id, encoded = await parts.store.write(record)
    parts.delivery.wake()
    await parts.jobs.launch(job_id)
    return encoded_json_response(encoded)


#: The query parameters of each GET route that has some, by path.
_QUERIES = {
    "/v2/batch/scrape/{id}": options.ChunkQuery,
    "/v2/browser": options.BrowserFilter,
    "/v2/crawl/{id}": options.ChunkQuery,
    "/v2/team/activity": options.ActivityOptions,
    "/v2/team/credit-usage/historical": options.UsageOptions,
    "/v2/team/token-usage/historical": options.UsageOptions,
}


def check_query(request: Request, path: str) -> None:
    """Check the parameter names of a query string against the contract; paths outside of the API are not checked.

    Args:
        request: The request.
        path: The path of its route, such as `/v2/crawl/{id}`.

    Raises:
        ErrorResponse: 400 with the unknown name and the closest known one, or with a name that is given twice.
    """
    if not path.startswith("/v2/") or not request.query_params:
        return
    cls = _QUERIES.get(path) if request.method in ("GET", "HEAD") else None
    if cls is None:
        name = next(iter(request.query_params))
        bad_request(f"{name[:60]!r} is not an option here: this address takes no query.")
    with option_errors():
        options.check_query_names(cls, request.query_params)
    for name in request.query_params:
        if len(request.query_params.getlist(name)) > 1:
            bad_request(f"{name} is given more than once: give one value.")
