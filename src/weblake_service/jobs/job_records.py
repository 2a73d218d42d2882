"""Database records of jobs: create, update page by page, end, read, expire.

Every function takes a connection and runs inside its caller's transaction. A page's result, its price, its removal from
the queue and its webhook are one transaction, so that a killed service neither repeats nor loses a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sqlite3 import Connection, Row

import msgspec

from weblake_service import ids
from weblake_service.clock import iso
from weblake_service.config import Access
from weblake_service.jobs import page_history, page_queue, webhook_queue
from weblake_service.jobs.page_outcomes import BlockedByRobots, Failed, Outcome, Stored
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.responses import ErrorResponse, encode, not_found
from weblake_service.store import accounts

#: Seconds from a job's end until its data is deleted.
JOB_LIFETIME_S = 24 * 3600.0
#: The final statuses.
ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job about to be recorded; `options`, `plan` and `webhook` are by snake_case name."""

    id: str
    kind: str
    access: Access
    url: str
    at: float
    options: Mapping[str, object] = field(default_factory=dict)
    plan: Mapping[str, object] = field(default_factory=dict)
    shown: Mapping[str, object] = field(default_factory=dict)
    webhook: Mapping[str, object] | None = None
    #: The maximum number of billable pages.
    expected: int = 0
    #: The maximum price of a page in credits, as far as it is known at the start.
    page_price: int = 1
    #: The target in the activity list; None hides the URL.
    target: str | None = None


def create(db: Connection, job: NewJob) -> None:
    """Record a running job and its start in the activity list."""
    db.execute(
        "INSERT INTO jobs"
        " (id, kind, team, key_name, url, status, created, expected, page_price, options, plan, shown, webhook)"
        " VALUES (?, ?, ?, ?, ?, 'scraping', ?, ?, ?, ?, ?, ?, ?)",
        (
            job.id, job.kind, job.access.team, job.access.key_name, job.url, job.at, job.expected, job.page_price,
            encode(job.options), encode(job.plan), encode(job.shown), encode(job.webhook) if job.webhook else None,
        ),
    )  # fmt: skip
    accounts.record_activity(db, job.access, job.kind, job.id, job.target, job.at)
    if job.webhook is not None:
        webhook_queue.enqueue(db, get(db, job.id), "started", job.at)


def get(db: Connection, job_id: str) -> Row:
    """Return the row of an existing job."""
    found: Row | None = db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
    assert found is not None
    return found


def find_running(db: Connection, job_id: str) -> Row | None:
    """Return the row of a running job; None if it has ended or does not exist."""
    found: Row | None = db.execute("SELECT * FROM jobs WHERE id = ? AND status = 'scraping'", (job_id,)).fetchone()
    return found


def find(db: Connection, job_id: str, kind: str, team: str, at: float, *, tell: bool = False) -> Row:
    """Return the job's row.

    Args:
        tell: Whether to answer 403 for another team's job, if the contract defines a 403.

    Raises:
        ErrorResponse: 404 for an unknown or expired job, or another team's; with `tell` 403 for another team's.
    """
    found: Row | None = db.execute(
        "SELECT * FROM jobs WHERE id = ? AND kind = ? AND (ended IS NULL OR ended > ?)",
        (job_id, kind, at - JOB_LIFETIME_S),
    ).fetchone()
    if found is not None and found["team"] == team:
        return found
    if found is not None and tell:
        raise ErrorResponse(403, "Forbidden: the job belongs to another team.", code="FORBIDDEN")
    not_found()


def running(db: Connection) -> list[str]:
    """Return the ids of the running jobs that scrape pages, oldest first."""
    return [one["id"] for one in db.execute("SELECT id FROM jobs WHERE status = 'scraping' ORDER BY created, rowid")]


def finish_page(
    db: Connection,
    job_id: str,
    page: QueuedPage,
    outcome: Outcome,
    at: float,
    found: Sequence[tuple[str, int]] = (),
    mark: int = 0,
) -> list[QueuedPage] | None:
    """Record the outcome of a page with all its consequences; `found` are the URLs that it links to.

    Returns:
        The queued entries of `found`; None if the page is already finished or the job has ended.
    """
    job = find_running(db, job_id)
    if job is None or not page_queue.remove(db, job, page, outcome, mark):
        return None
    if isinstance(outcome, Stored):
        _store_document(db, job, outcome, at)
        if job["webhook"] is not None:
            webhook_queue.enqueue(db, job, "page", at, document=outcome.body, place=page.place)
    elif isinstance(outcome, Failed):
        _note_failure(db, job, page, outcome, at)
        if job["webhook"] is not None:
            webhook_queue.enqueue(db, job, "page", at, failure=(page.url, outcome.error), place=page.place)
    elif isinstance(outcome, BlockedByRobots):
        db.execute("INSERT INTO robots_blocked VALUES (?, ?)", (job_id, page.url))
        add_warning(db, job_id, outcome.why)
    if not found:
        return []
    before = page_queue.add(db, job_id, found, at)
    return page_queue.waiting(db, job_id, before)


def add_warning(db: Connection, job_id: str, text: str) -> None:
    """Add a text to the warnings of a job, once, and only while they are short: each host may have one."""
    db.execute(
        "UPDATE jobs SET warning = ltrim(coalesce(warning, '') || ' ' || ?) WHERE id = ?"
        " AND instr(coalesce(warning, ''), ?) = 0 AND length(coalesce(warning, '')) < 1000",
        (text, job_id, text),
    )


def store_single(db: Connection, job: NewJob, *pages: Stored) -> None:
    """Record a single scrape, or the pages of a search, as a job that is already completed."""
    create(db, job)
    for page in pages:
        _store_document(db, get(db, job.id), page, job.at)
    db.execute("UPDATE jobs SET status = 'completed', ended = ? WHERE id = ?", (job.at, job.id))


def store_failed(db: Connection, job: NewJob, failure: Failed) -> None:
    """Record a single scrape that failed, so that its id in the activity list tells why."""
    create(db, job)
    _note_failure(db, get(db, job.id), QueuedPage(1, job.url), failure, job.at)
    db.execute("UPDATE jobs SET status = 'failed', error = ?, ended = ? WHERE id = ?", (failure.error, job.at, job.id))


def store_private(
    db: Connection, access: Access, scrape_id: str, credits: int, at: float, kind: str = "scrape"
) -> None:
    """Record a scrape with zero data retention: the price and the fact, without the URL."""
    accounts.record_activity(db, access, kind, scrape_id, None, at)
    if credits:
        accounts.charge(db, access, credits, at)


def read_scrape(db: Connection, scrape_id: str, team: str, at: float) -> bytes:
    """Return the encoded document of a page that was scraped within the last day, in a single call or a job.

    Raises:
        ErrorResponse: 404 for an unknown or failed scrape, another team's, or one with zero data retention.
    """
    alive = at - JOB_LIFETIME_S
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


def end(db: Connection, job_id: str, status: str, at: float, error: str | None = None, *, drained: bool = True) -> bool:
    """End a running job, delete its queue and queue its webhook.

    Args:
        drained: Whether to end the job only if its queue is empty: a page may have been appended since the last read.

    Returns:
        Whether the job has ended: False if it must continue.
    """
    job = get(db, job_id)
    if job["status"] != "scraping":
        return True
    if drained and db.execute("SELECT 1 FROM pages WHERE job = ? AND done = 0 LIMIT 1", (job_id,)).fetchone():
        return False
    db.execute("DELETE FROM pages WHERE job = ?", (job_id,))
    db.execute("UPDATE jobs SET status = ?, error = ?, ended = ?, known = 0 WHERE id = ?", (status, error, at, job_id))
    if status == "completed":
        page_history.note_crawl(db, job)
    if job["webhook"] is not None and status in ("completed", "failed"):
        webhook_queue.enqueue(db, get(db, job_id), status, at, place=job["documents"] + job["failed"])
    return True


def reopen(db: Connection, job_id: str) -> None:
    """Set a completed job to running again, because URLs were appended to it."""
    db.execute("UPDATE jobs SET status = 'scraping', ended = NULL WHERE id = ? AND status = 'completed'", (job_id,))


def errors(db: Connection, job_id: str) -> dict[str, object]:
    """Return the failed and the robots-blocked pages of a job, as the API lists them."""
    failed = db.execute("SELECT * FROM page_errors WHERE job = ? ORDER BY rowid", (job_id,))
    blocked = db.execute("SELECT url FROM robots_blocked WHERE job = ? ORDER BY rowid", (job_id,))
    return {
        "errors": [
            {
                "id": one["id"],
                "timestamp": iso(one["at"]),
                "url": one["url"],
                "code": one["code"],
                "error": one["error"],
            }
            for one in failed
        ],
        "robotsBlocked": [one["url"] for one in blocked],
    }


def waiting(db: Connection, team: str) -> int:
    """Return the number of unfinished pages of the team's running jobs."""
    (known,) = db.execute("SELECT sum(known) FROM jobs WHERE status = 'scraping' AND team = ?", (team,)).fetchone()
    return known or 0


def last_success(db: Connection, team: str) -> float | None:
    """Return when a job of the team was last completed; None if none was."""
    (ended,) = db.execute("SELECT max(ended) FROM jobs WHERE status = 'completed' AND team = ?", (team,)).fetchone()
    return None if ended is None else float(ended)


def drop_expired(db: Connection, at: float) -> None:
    """Delete unreachable records: jobs a day after their end, old activity, expired idempotency keys."""
    gone = [one["id"] for one in db.execute("SELECT id FROM jobs WHERE ended <= ?", (at - JOB_LIFETIME_S,))]
    for table, column in (
        ("documents", "job"),
        ("page_errors", "job"),
        ("robots_blocked", "job"),
        ("model_work", "job"),
        ("jobs", "id"),
    ):
        db.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(one,) for one in gone])  # noqa: S608
    db.execute("DELETE FROM activity WHERE created <= ?", (at - accounts.ACTIVITY_WINDOW_S,))
    db.execute("DELETE FROM replays WHERE forget <= ?", (at,))


def decode_object(blob: bytes | str) -> dict[str, object]:
    """Return the JSON object in a column."""
    value: dict[str, object] = msgspec.json.decode(blob)
    return value


def _note_failure(db: Connection, job: Row, page: QueuedPage, failure: Failed, at: float) -> None:
    db.execute(
        "INSERT INTO page_errors VALUES (?, ?, ?, ?, ?, ?)",
        (ids.error_id(job["id"], page.place), job["id"], at, page.url, failure.code, failure.error),
    )
    db.execute("UPDATE jobs SET failed = failed + 1, credits = credits + ? WHERE id = ?", (failure.credits, job["id"]))
    if failure.credits:
        accounts.charge(db, Access(job["team"], job["key_name"]), failure.credits, at)


def _store_document(db: Connection, job: Row, page: Stored, at: float) -> None:
    db.execute(
        "INSERT INTO documents (job, position, scrape_id, url, bytes, body) VALUES (?, ?, ?, ?, ?, ?)",
        (job["id"], job["documents"], page.scrape_id, page.final_url, len(page.body), page.body),
    )
    db.execute(
        "UPDATE jobs SET documents = documents + 1, credits = credits + ? WHERE id = ?", (page.credits, job["id"])
    )
    accounts.charge(db, Access(job["team"], job["key_name"]), page.credits, at)
    if page.version is not None:
        page_history.store(db, page.version, at, job)
    accounts.count(db, "pages_billed")
