"""Start, status and cancel of extract and agent jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sqlite3 import Connection, Row
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from weblake_service.components import ServiceComponents, requester
from weblake_service.feature_checks import not_configured
from weblake_service.jobs import job_records, model_job_records
from weblake_service.jobs.job_records import NewJob
from weblake_service.llm.schemas import schema_problem
from weblake_service.responses import (
    ErrorResponse,
    bad_request,
    encode,
    json_response,
    read_job_id,
)
from weblake_service.routes.idempotency import IdempotencyTicket
from weblake_service.routes.request_options import record_and_launch
from weblake_service.store import accounts

T = TypeVar("T")


def check_model(parts: ServiceComponents, what: str) -> None:
    """Raise the refusal of an operation that needs a language model if none is configured."""
    if parts.llm.missing:
        raise not_configured(what, parts.llm.missing)


def check_schema(request_options: Mapping[str, object]) -> None:
    """Raise a refusal if the schema of a request cannot be used."""
    schema = request_options.get("schema")
    problem = schema_problem(schema) if isinstance(schema, Mapping) else ""
    if problem:
        bad_request(f"`schema` cannot be used: {problem}.")


async def start(
    parts: ServiceComponents, job: NewJob, ticket: IdempotencyTicket, needed: int, more: Mapping[str, object]
) -> Response:
    """Record a job under a new id and start it.

    Args:
        parts: The service.
        job: The job, with any id.
        ticket: Stores the response for the idempotency key.
        needed: Credits that the team must have.
        more: Additional fields of the response.

    Raises:
        ErrorResponse: 402; nothing was started.
    """
    plan = parts.config.plan(job.access.team).credits

    def record(db: Connection) -> tuple[str, bytes]:
        accounts.require_credits(db, job.access.team, needed, plan, job.at)
        new_id = parts.ids.start(db)
        encoded = encode({"success": True, "id": new_id, **more})
        new = NewJob(
            new_id, job.kind, job.access, job.url, job.at, job.options, job.plan,
            webhook=job.webhook, expected=job.expected, target=job.target,
        )  # fmt: skip
        job_records.create(db, new)
        ticket.save(db, 200, encoded)
        return new_id, encoded

    return await record_and_launch(parts, record)


async def read(parts: ServiceComponents, request: Request, name: str, what: str, kinds: tuple[str, ...]) -> Response:
    """Return the status of a job of one of these kinds, with its data if there is a result.

    Raises:
        ErrorResponse: 404; there is no such job. 503 if no language model is configured.
    """
    job, team, now = _job_id(parts, request, name, what), requester(request).team, parts.clock.now()

    def work(db: Connection) -> dict[str, object]:
        return model_job_records.status_body(db, _find(db, job, kinds, team, now), now)

    return json_response(await _read_or_explain(parts, what, work))


async def cancel(parts: ServiceComponents, request: Request, name: str, what: str, kind: str) -> Response:
    """Cancel a job immediately; its steps remain billed.

    Raises:
        ErrorResponse: 404; there is no such job. 409; it has already ended.
    """
    job, team, now = _job_id(parts, request, name, what), requester(request).team, parts.clock.now()
    await _read_or_explain(parts, what, lambda db: _find(db, job, (kind,), team, now))

    def work(db: Connection) -> None:
        row = _find(db, job, (kind,), team, now)
        if row["status"] in ("completed", "failed"):
            raise ErrorResponse(409, f"{what} is already {row['status']}.")
        if row["status"] == "scraping":
            model_job_records.cancel(db, job, now)

    await parts.jobs.cancel(job, work)
    parts.delivery.wake()
    return json_response({"success": True})


def _job_id(parts: ServiceComponents, request: Request, name: str, what: str) -> str:
    try:
        return read_job_id(request, name, unreadable=404)
    except ErrorResponse:
        check_model(parts, what)
        raise


async def _read_or_explain(parts: ServiceComponents, what: str, work: Callable[[Connection], T]) -> T:
    try:
        return await parts.store.read(work)
    except ErrorResponse:
        # Without a language model no job can exist; the 503 gives the reason.
        check_model(parts, what)
        raise


def _find(db: Connection, job: str, kinds: tuple[str, ...], team: str, at: float) -> Row:
    for kind in kinds[:-1]:
        try:
            return job_records.find(db, job, kind, team, at)
        except ErrorResponse:
            continue
    return job_records.find(db, job, kinds[-1], team, at)
