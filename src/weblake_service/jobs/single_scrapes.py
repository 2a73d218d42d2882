"""Database records of single scrapes, and reading any scraped page by its id.

Every function takes a connection and runs inside its caller's transaction.
"""

from __future__ import annotations

from sqlite3 import Connection

from weblake_service import ids
from weblake_service.config import Access
from weblake_service.jobs import job_records
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_outcomes import Failed
from weblake_service.responses import ErrorResponse, not_found
from weblake_service.store import accounts


def store_failed(db: Connection, job: NewJob, failure: Failed) -> None:
    """Record a single scrape that failed, so that its id in the activity list tells why."""
    job_records.create(db, job)
    db.execute(
        "INSERT INTO page_errors (id, job, at, url, code, error) VALUES (?, ?, ?, ?, ?, ?)",
        (ids.error_id(job.id, 1), job.id, job.at, job.url, failure.code, failure.error),
    )
    db.execute(
        "UPDATE jobs SET status = 'failed', error = ?, ended = ?, failed = 1, credits = ? WHERE id = ?",
        (failure.error, job.at, failure.credits, job.id),
    )
    if failure.credits:
        accounts.charge(db, job.access, failure.credits, job.at)


def store_private(
    db: Connection, access: Access, scrape_id: str, credits: int, at: float, kind: str = "scrape"
) -> None:
    """Record a scrape with zero data retention: the price and the fact, without the URL."""
    accounts.record_activity(db, access, kind, scrape_id, None, at)
    if credits:
        accounts.charge(db, access, credits, at)


def read(db: Connection, scrape_id: str, team: str, at: float) -> bytes:
    """Return the encoded document of a page that was scraped within the last day, in a single call or a job.

    Raises:
        ErrorResponse: 404 for an unknown or failed scrape, another team's, or one with zero data retention.
    """
    alive = at - job_records.JOB_LIFETIME_S
    found = db.execute(
        "SELECT body FROM documents JOIN jobs ON jobs.id = job"
        " WHERE scrape_id = ? AND team = ? AND (ended IS NULL OR ended > ?)",
        (scrape_id, team, alive),
    ).fetchone()
    if found is not None:
        body: bytes = found["body"]
        return body
    failure = db.execute(
        "SELECT code, page_errors.error AS why FROM page_errors JOIN jobs ON jobs.id = job"
        " WHERE jobs.id = ? AND kind IN ('scrape', 'parse') AND team = ? AND ended > ?",
        (scrape_id, team, alive),
    ).fetchone()
    if failure is not None:
        raise ErrorResponse(404, f"The scrape failed, so there is no page: {failure['why']}", code=failure["code"])
    not_found()
