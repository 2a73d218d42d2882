"""Database queries for the pages of the console, for one team.

Every function takes a connection and is read-only.
"""

from __future__ import annotations

from sqlite3 import Connection, Row

import msgspec

from weblake_service.jobs import job_records
from weblake_service.store import accounts

#: Maximum rows of one list.
MAX_ROWS = 50
#: Maximum characters of a text in a preview.
_MAX_PREVIEW_CHARS = 20_000


#: `waiting` are the pages known so far that are not done; a crawl finds more.
_COLUMNS = """
SELECT *, documents + failed + blocked AS done, documents + failed + blocked + waiting AS known FROM (
    SELECT id, team, kind, url, status, error, created, ended, documents, failed, credits, known AS waiting,
    (SELECT count(*) FROM robots_blocked WHERE robots_blocked.job = jobs.id) AS blocked, rowid AS number FROM jobs
) WHERE team = :team AND (ended IS NULL OR ended > :alive)
"""


def list_jobs(db: Connection, team: str, at: float, before: int | None = None) -> tuple[list[Row], int | None]:
    """Return the latest jobs and the position of the next page, or None at the end; running jobs come first on page
    one.
    """
    given = {"team": team, "alive": at - job_records.JOB_LIFETIME_S, "before": before, "most": MAX_ROWS + 1}
    bound = " AND (:before IS NULL OR number < :before)"
    rows = db.execute(f"{_COLUMNS}{bound} ORDER BY number DESC LIMIT :most", given).fetchall()
    following = rows[MAX_ROWS - 1]["number"] if len(rows) > MAX_ROWS else None
    return rows[:MAX_ROWS], following


def running(db: Connection, team: str, at: float) -> list[Row]:
    """Return the jobs that have pages to scrape, newest first."""
    given = {"team": team, "alive": at - job_records.JOB_LIFETIME_S}
    return db.execute(f"{_COLUMNS} AND status = 'scraping' ORDER BY number DESC LIMIT 100", given).fetchall()


def find_job(db: Connection, team: str, job_id: str, at: float) -> Row | None:
    """Return one job; None if this team has no job with this id."""
    given = {"team": team, "alive": at - job_records.JOB_LIFETIME_S, "id": job_id}
    found: Row | None = db.execute(f"{_COLUMNS} AND id = :id", given).fetchone()
    return found


def outcomes(db: Connection, job: Row) -> dict[str, int]:
    """Return the number of a job's pages by outcome: stored, blocked by robots.txt, and failed by code."""
    found = {"stored": job["documents"], "blocked by robots.txt": job["blocked"]}
    rows = db.execute(
        "SELECT code, count(*) AS n FROM page_errors WHERE job = ? GROUP BY code ORDER BY n DESC", (job["id"],)
    )
    return {name: count for name, count in (*found.items(), *((row["code"], row["n"]) for row in rows)) if count}


def documents(db: Connection, job: Row, first: int) -> list[Row]:
    """Return some documents of a job from one position on: position, url, bytes, warning."""
    found: list[Row] = db.execute(
        "SELECT position, url, bytes, json_extract(CAST(body AS TEXT), '$.warning') AS warning FROM documents"
        " WHERE job = ? AND position >= ? ORDER BY position LIMIT ?",
        (job["id"], first, MAX_ROWS),
    ).fetchall()
    return found


def failures(db: Connection, job: Row) -> list[Row]:
    """Return the first failed pages of a job: url, code, error."""
    return db.execute(
        "SELECT url, code, error FROM page_errors WHERE job = ? ORDER BY rowid LIMIT ?", (job["id"], MAX_ROWS)
    ).fetchall()


def preview(db: Connection, job: Row, position: int) -> dict[str, object] | None:
    """Return one document of a job, truncated for display; None if there is none at this position.

    It has `texts` by format (the text, and whether it is whole), `lists` (the number of entries, and the first of
    them), `url`, `metadata`, and `screenshot`, a data URL or None.
    """
    row = db.execute("SELECT url, body FROM documents WHERE job = ? AND position = ?", (job["id"], position)).fetchone()
    if row is None:
        return None
    document: dict[str, object] = msgspec.json.decode(row["body"])
    metadata = document.pop("metadata", None)
    picture = document.pop("screenshot", None)
    texts: dict[str, tuple[str, bool]] = {}
    lists: dict[str, tuple[int, list[str]]] = {}
    for name, value in document.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            lists[name] = len(value), [str(item) for item in value[:MAX_ROWS]]
        elif value is not None:
            text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
            texts[name] = text[:_MAX_PREVIEW_CHARS], len(text) <= _MAX_PREVIEW_CHARS
    return {
        "url": row["url"],
        "metadata": metadata if isinstance(metadata, dict) else {},
        "texts": texts,
        "lists": lists,
        "screenshot": picture if isinstance(picture, str) else None,
    }


def activity(db: Connection, team: str, at: float) -> list[Row]:
    """Return the number of calls in the last 24 hours by endpoint: endpoint, n."""
    return db.execute(
        "SELECT endpoint, count(*) AS n FROM activity WHERE team = ? AND created > ? GROUP BY endpoint ORDER BY n DESC",
        (team, at - accounts.ACTIVITY_WINDOW_S),
    ).fetchall()


def months(db: Connection, team: str) -> list[Row]:
    """Return the credits by month and key, newest first: month, key_name, credits."""
    return db.execute(
        "SELECT month, key_name, credits FROM usage WHERE team = ? ORDER BY month DESC, key_name LIMIT ?",
        (team, MAX_ROWS),
    ).fetchall()
