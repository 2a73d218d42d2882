"""Database queue of the pages of running jobs.

Every function takes a connection and runs inside its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sqlite3 import Connection, Row

import msgspec

from weblake_service.jobs.page_outcomes import BlockedByRobots, Dropped, Outcome, Stored
from weblake_service.responses import encode

#: States of a finished page in the queue: whether it counts towards a crawl's limit.
_COUNTED, _UNCOUNTED = 1, 2


@dataclass(frozen=True, slots=True)
class QueuedPage:
    """A queued page of a running job."""

    #: Its position in the job, from 1.
    place: int
    url: str
    depth: int = 0
    #: When it was queued, and how many pages were waiting before it at that time.
    queued: float = 0.0
    pages_ahead: int = 0
    done: bool = False
    #: Whether it counts towards a crawl's limit once it is finished.
    counts: bool = True
    final_url: str | None = None
    #: See `page_sources.PageResult`.
    mark: int = 0
    #: Its own scrape options, by snake_case name, if they differ from the job's.
    options: Mapping[str, object] | None = None


def add(
    db: Connection,
    job_id: str,
    pages: Iterable[tuple[str, int]],
    at: float,
    options: Mapping[str, object] | None = None,
) -> int:
    """Queue URLs, each with its depth, and return the last position before theirs.

    Args:
        options: Their own scrape options, if they differ from the job's.
    """
    own = encode(options) if options is not None else None
    (placed, known) = db.execute("SELECT placed, known FROM jobs WHERE id = ?", (job_id,)).fetchone()
    rows = [
        (job_id, placed + number, url, depth, at, known + number - 1, own)
        for number, (url, depth) in enumerate(pages, start=1)
    ]
    db.executemany(
        "INSERT INTO pages (job, place, url, depth, queued, ahead, options) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
    )
    db.execute("UPDATE jobs SET known = known + ?, placed = placed + ? WHERE id = ?", (len(rows), len(rows), job_id))
    return int(placed)


def waiting(
    db: Connection, job_id: str, after: int = 0, limit: int = -1, *, with_done: bool = False
) -> list[QueuedPage]:
    """Return the queued pages of a job after a position, in order; at most `limit`, if given."""
    rows = db.execute(
        "SELECT * FROM pages WHERE job = ? AND place > ? AND (done = 0 OR ?) ORDER BY place LIMIT ?",
        (job_id, after, with_done, limit),
    )
    return [_queued_page(one) for one in rows]


def remove(db: Connection, job: Row, page: QueuedPage, outcome: Outcome, mark: int) -> bool:
    """Remove a page from the queue, once; a crawl keeps the page's outcome so that it can be resumed."""
    if job["kind"] == "crawl":
        done = _UNCOUNTED if isinstance(outcome, BlockedByRobots) else _COUNTED
        final = outcome.final_url if isinstance(outcome, Stored | Dropped) else None
        left = db.execute(
            "UPDATE pages SET done = ?, final = ?, mark = ? WHERE job = ? AND place = ? AND done = 0",
            (done, final, mark, job["id"], page.place),
        )
    else:
        left = db.execute("DELETE FROM pages WHERE job = ? AND place = ?", (job["id"], page.place))
    if left.rowcount != 1:
        return False
    # A dropped page can no longer become a document or a failure.
    less = 1 if isinstance(outcome, Dropped) else 0
    db.execute("UPDATE jobs SET known = known - 1, expected = expected - ? WHERE id = ?", (less, job["id"]))
    return True


def _queued_page(one: Row) -> QueuedPage:
    own = one["options"]
    return QueuedPage(
        one["place"],
        one["url"],
        one["depth"],
        one["queued"],
        one["ahead"],
        done=one["done"] != 0,
        counts=one["done"] != _UNCOUNTED,
        final_url=one["final"],
        mark=one["mark"],
        options=msgspec.json.decode(own) if own is not None else None,
    )
