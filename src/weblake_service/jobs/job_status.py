"""Builds the status of a job with one chunk of its documents, without decoding them."""

from __future__ import annotations

from sqlite3 import Connection, Row
from typing import cast

import msgspec

from weblake_service.clock import iso, iso_seconds
from weblake_service.jobs import job_records
from weblake_service.responses import encode

#: Maximum bytes of documents in one chunk; a larger document is a chunk of its own.
CHUNK_BYTES = 10_485_760
#: Default number of documents in one chunk.
CHUNK_DOCUMENTS = 100


def status_body(db: Connection, job: Row, url: str, *, skip: int, limit: int | None, at: float) -> bytes:
    """Return the response to a status read: the counters first, then documents from `skip` on.

    Args:
        job: The job's row, read in the same transaction.
        url: The job's URL, to which `next` adds its query.
        skip: The number of documents that the caller already has.
        limit: Maximum number of documents in the chunk; 100 if None.
    """
    ended = job["status"] in job_records.ENDED
    documents = _chunk(db, job, skip, limit)
    reached = skip + len(documents)
    more = reached < job["documents"] or not ended
    attempted = job["documents"] + job["failed"]
    head: dict[str, object] = {
        "success": job["status"] != "failed",
        "status": job["status"],
        "total": attempted if ended else attempted + _remaining(job, attempted),
        "completed": job["documents"],
        "creditsUsed": job["credits"],
        "expiresAt": iso_seconds((job["ended"] if ended else at) + job_records.JOB_LIFETIME_S),
        "next": f"{url}?skip={reached}" + (f"&limit={limit}" if limit is not None else "") if more else None,
        "createdAt": iso(job["created"]),
    }
    if ended:
        head["completedAt"] = iso(job["ended"])
        head["duration"] = round(job["ended"] - job["created"], 3)
    if job["error"] is not None:
        head["error"] = job["error"]
    if job["kind"] == "crawl" and (warning := _warning(db, job)):
        head["warning"] = warning
    return encode(head | {"data": documents})


def _chunk(db: Connection, job: Row, skip: int, limit: int | None) -> list[msgspec.Raw]:
    max_documents = CHUNK_DOCUMENTS if limit is None else limit
    if skip >= job["documents"] or not max_documents:
        return []
    size, end = 0, skip
    # The `bytes` column precedes the body in the row, so that a document that is not returned is not read from disk.
    sizes = db.execute(
        "SELECT bytes FROM documents WHERE job = ? AND position >= ? ORDER BY position LIMIT ?",
        (job["id"], skip, max_documents),
    )
    for (length,) in sizes:
        if end > skip and size + length > CHUNK_BYTES:
            break
        size += length
        end += 1
    rows = db.execute(
        "SELECT body FROM documents WHERE job = ? AND position >= ? AND position < ? ORDER BY position",
        (job["id"], skip, end),
    )
    return [msgspec.Raw(body) for (body,) in rows]


def _remaining(job: Row, attempted: int) -> int:
    """Return the number of pages that wait or are in flight, up to a crawl's limit."""
    known = cast(int, job["known"])
    return min(known, max(0, job["expected"] - attempted)) if job["kind"] == "crawl" else known


def _warning(db: Connection, job: Row) -> str:
    """Return the warnings of a crawl: pages blocked by robots.txt, and a result with very few pages."""
    said = [job["warning"]] if job["warning"] else []
    (blocked,) = db.execute("SELECT count(*) FROM robots_blocked WHERE job = ?", (job["id"],)).fetchone()
    if blocked:
        pages = "one page" if blocked == 1 else f"{blocked} pages"
        said.append(f"robots.txt keeps {pages} from being fetched: see /errors. ignoreRobotsTxt fetches them.")
    attempted = job["documents"] + job["failed"]
    if job["status"] == "completed" and not blocked and attempted <= 1 < job["expected"]:
        said.append(
            "Nothing but the start was found. A start URL that is higher up, crawlEntireDomain, allowSubdomains or"
            " other paths may find more."
        )
    return " ".join(said)
