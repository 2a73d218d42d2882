"""Database records of jobs that a language model runs: steps, result, status.

Each step and its price are one transaction, and so are the result, its price and the end: after a kill, the job
continues behind the last billed step. Every function takes a connection and runs inside its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection, Row
from typing import Any

import msgspec

from weblake_service.clock import iso_seconds
from weblake_service.config import Access
from weblake_service.jobs import job_records, webhook_queue
from weblake_service.jobs.job_records import JOB_LIFETIME_S
from weblake_service.responses import encode
from weblake_service.store import accounts

#: The kinds of jobs that use a language model.
KINDS = ("extract", "agent")
#: The place of the result; steps have places from 1.
_RESULT_PLACE = 0
_STATUS_NAMES = {"scraping": "processing"}


def steps(db: Connection, job_id: str) -> dict[int, dict[str, Any]]:
    """Return the recorded steps of a running job by place."""
    rows = db.execute("SELECT place, body FROM model_work WHERE job = ? AND place > 0 ORDER BY place", (job_id,))
    return {row["place"]: msgspec.json.decode(row["body"]) for row in rows}


def add_step(db: Connection, job_id: str, place: int, step: Mapping[str, object], credits: int, at: float) -> bool:
    """Record and bill a step; return False, without any change, if the job has ended or the step is recorded."""
    job = job_records.find_running(db, job_id)
    if job is None:
        return False
    added = db.execute("INSERT OR IGNORE INTO model_work VALUES (?, ?, ?)", (job_id, place, encode(step)))
    if added.rowcount != 1:
        return False
    _bill(db, job, credits, at)
    if job["webhook"] is not None:
        webhook_queue.enqueue(db, job, "action", at, place=place)
    return True


def finish(db: Connection, job_id: str, result: Mapping[str, object], credits: int, at: float) -> None:
    """End a job with its result (`data` and the additional status fields) and delete its steps."""
    job = job_records.find_running(db, job_id)
    if job is None:
        return
    db.execute("DELETE FROM model_work WHERE job = ?", (job_id,))
    db.execute("INSERT INTO model_work VALUES (?, ?, ?)", (job_id, _RESULT_PLACE, encode(result)))
    _bill(db, job, credits, at)
    job_records.end(db, job_id, "completed", at, drained=False)


def fail(db: Connection, job_id: str, error: str, at: float) -> None:
    """End a job without a result; its steps remain billed."""
    db.execute("DELETE FROM model_work WHERE job = ?", (job_id,))
    job_records.end(db, job_id, "failed", at, error=error, drained=False)


def cancel(db: Connection, job_id: str, at: float) -> None:
    """End a job on request."""
    db.execute("DELETE FROM model_work WHERE job = ?", (job_id,))
    job_records.end(db, job_id, "cancelled", at, drained=False)
    job = job_records.get(db, job_id)
    if job["webhook"] is not None:
        webhook_queue.enqueue(db, job, "cancelled", at)


def status_body(db: Connection, job: Row, at: float) -> dict[str, object]:
    """Return the response to a status read, from a row of the same transaction.

    `data` is an empty list until there is a result. An agent's status has `model`, an extract's `tokensUsed`.
    """
    found = db.execute("SELECT body FROM model_work WHERE job = ? AND place = 0", (job["id"],)).fetchone()
    result: dict[str, object] = msgspec.json.decode(found["body"]) if found is not None else {"data": []}
    status = _STATUS_NAMES.get(job["status"], job["status"])
    body: dict[str, object] = {
        "success": status not in ("failed", "cancelled"),
        "status": status,
        **result,
        "creditsUsed": job["credits"],
        "expiresAt": iso_seconds((at if job["ended"] is None else job["ended"]) + JOB_LIFETIME_S),
    }
    if job["kind"] == "extract":
        body["tokensUsed"] = job["credits"] * accounts.TOKENS_PER_CREDIT
    else:
        body["model"] = job_records.decode_object(job["plan"]).get("model", "")
    return body | ({"error": job["error"]} if job["error"] is not None else {})


def _bill(db: Connection, job: Row, credits: int, at: float) -> None:
    # Billed credits are no longer reserved.
    db.execute(
        "UPDATE jobs SET credits = credits + ?, expected = max(0, expected - ?) WHERE id = ?",
        (credits, credits, job["id"]),
    )
    if credits:
        accounts.charge(db, Access(job["team"], job["key_name"]), credits, at)
