"""Database queue of webhooks: receiver, body and time of the next attempt.

Webhooks are queued in the transaction of their event. An acknowledged delivery, or one that failed four times, is
removed from the queue; the outcomes of the last thousand are kept for diagnosis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from sqlite3 import Connection, Row
from urllib.parse import urlsplit

import msgspec

from weblake_service import ids
from weblake_service.clock import iso
from weblake_service.fair_queue import largest_share
from weblake_service.responses import encode

#: Seconds between failed attempts; after the last one the delivery is dropped.
RETRY_PAUSES_S = (60.0, 300.0, 900.0)
#: The events that are sent if the configuration lists none: the contract's text knows no others.
DEFAULT_EVENTS = ("completed",)
#: Number of past deliveries that are kept.
_MAX_ARCHIVED = 1000
_RECEIVERS_QUERY = """
WITH RECURSIVE every(url) AS (
    SELECT min(url) FROM deliveries
    UNION ALL SELECT (SELECT min(url) FROM deliveries WHERE url > every.url) FROM every WHERE every.url IS NOT NULL
)
SELECT url FROM every
WHERE url IS NOT NULL AND EXISTS (SELECT 1 FROM deliveries WHERE deliveries.url = every.url AND due <= ?)
"""


def enqueue(
    db: Connection,
    job: Row,
    event: str,
    at: float,
    *,
    document: bytes | None = None,
    failure: tuple[str, str] | None = None,
    place: int = 0,
) -> None:
    """Queue one event of a job, if its webhook subscribes to this kind.

    Args:
        job: The job's row, with a webhook.
        event: started, page, completed or failed; for an agent also action and cancelled.
        document: The encoded document of a scraped page.
        failure: The URL and the error of a failed page.
        place: Distinguishes the event from others of its kind in the job: the page's position, or the number of pages
            attempted.
    """
    webhook = msgspec.json.decode(job["webhook"])
    if event not in webhook.get("events", DEFAULT_EVENTS):
        return
    delivery_id = ids.delivery_id(job["id"], event, place)
    error = failure[1] if failure else job["error"] if event == "failed" else None
    kind = f"{job['kind']}.{event}"
    body: dict[str, object] = {
        "success": error is None,
        "type": kind,
        "id": job["id"],
        "webhookId": delivery_id,
        "data": _payload(document, failure),
    }
    if webhook.get("metadata") is not None:
        body["metadata"] = webhook["metadata"]
    if error is not None:
        body["error"] = error
    headers = encode(webhook.get("headers") or {})
    db.execute(
        "INSERT INTO deliveries (id, job, team, type, url, headers, body, created, due)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (delivery_id, job["id"], job["team"], kind, webhook["url"], headers, encode(body), at, at),
    )


def ready(
    db: Connection,
    at: float,
    in_flight: Mapping[int, Row],
    *,
    max_per_receiver: int,
    max_concurrent: int,
    look: int = 32,
) -> list[Row]:
    """Return the deliveries to start now, without their bodies.

    A job's first event is sent before its pages and its last event after them, unless a delivery has to be retried.

    Args:
        in_flight: The current deliveries, by id.
        max_per_receiver: Maximum concurrent deliveries to one receiver.
        max_concurrent: Maximum concurrent deliveries in total.
        look: Maximum number of entries of a receiver's queue that are examined.
    """
    of_team = Counter(str(row["team"]) for row in in_flight.values())
    under_way: dict[str, list[Row]] = {}
    for row in in_flight.values():
        under_way.setdefault(row["url"], []).append(row)
    chosen: list[Row] = []
    urls = [one["url"] for one in db.execute(_RECEIVERS_QUERY, (at,))]
    # Receivers with the fewest current deliveries first, so that a few slow receivers never occupy every slot.
    for url in sorted(urls, key=lambda url: len(under_way.get(url, ()))):
        mine = under_way.get(url, [])
        room = min(max_per_receiver - len(mine), max_concurrent - len(in_flight) - len(chosen))
        if room <= 0:
            continue
        waiting = db.execute(
            "SELECT seq, id, job, team, type, url, tries FROM deliveries WHERE url = ? AND due <= ?"
            " ORDER BY due, seq LIMIT ?",
            (url, at, look),
        )
        for row in _deliverable([row for row in waiting if row["seq"] not in in_flight], mine)[:room]:
            if of_team[row["team"]] < largest_share(max_concurrent):
                of_team[row["team"]] += 1
                chosen.append(row)
    return chosen


def find(db: Connection, place: int) -> Row | None:
    """Return a queued delivery with its body and headers; None if it is no longer queued."""
    found: Row | None = db.execute("SELECT * FROM deliveries WHERE seq = ?", (place,)).fetchone()
    return found


def next_due(db: Connection, after: float) -> float | None:
    """Return when the next delivery after a time is due; None if there is none."""
    (first,) = db.execute("SELECT min(due) FROM deliveries WHERE due > ?", (after,)).fetchone()
    return None if first is None else float(first)


def acknowledge(db: Connection, place: int, at: float, answer: str) -> None:
    """Remove an acknowledged delivery from the queue."""
    _archive(db, place, "delivered", at, answer)


def schedule_retry(db: Connection, place: int, at: float, answer: str) -> bool:
    """Schedule the next attempt of a failed delivery, or drop it; return whether it is still queued."""
    row = find(db, place)
    if row is None:
        return False
    tries = row["tries"] + 1
    if tries > len(RETRY_PAUSES_S):
        _archive(db, place, "dropped", at, answer)
        return False
    due = at + RETRY_PAUSES_S[tries - 1]
    db.execute("UPDATE deliveries SET tries = ?, due = ?, answer = ? WHERE seq = ?", (tries, due, answer, place))
    return True


def recent(
    db: Connection, limit: int = 100, *, team: str | None = None, job: str | None = None
) -> list[dict[str, object]]:
    """Return the outcomes of the last deliveries, newest first, of a team, a job or all; without bodies and headers.

    An entry has `webhookId`, `jobId`, `team`, `type`, `url` (without its query), `state` (waiting, delivered or
    dropped), `tries`, `createdAt`, `answer` (the receiver's last status, or the error; None before the first attempt)
    and `nextTryAt` or `endedAt`.
    """
    columns = "id, job, team, type, url, created, tries, answer"
    rows = db.execute(
        f"SELECT * FROM (SELECT {columns}, 'waiting' AS state, due AS time, seq, 1 AS live FROM deliveries"  # noqa: S608
        " WHERE (:team IS NULL OR team = :team) AND (:job IS NULL OR job = :job)"
        " ORDER BY created DESC, seq DESC LIMIT :most)"
        f" UNION ALL SELECT * FROM (SELECT {columns}, state, ended AS time, seq, 0 AS live FROM past_deliveries"
        " WHERE (:team IS NULL OR team = :team) AND (:job IS NULL OR job = :job) ORDER BY seq DESC LIMIT :most)"
        " ORDER BY created DESC, live DESC, seq DESC LIMIT :most",
        {"most": limit, "team": team, "job": job},
    )
    return [_to_dict(row) for row in rows]


def _deliverable(waiting: Collection[Row], under_way: Collection[Row]) -> list[Row]:
    """Return the due deliveries of a receiver that need not wait for another one of their job."""
    begun = [*under_way]
    held: set[str] = set()
    chosen: list[Row] = []
    for row in waiting:
        before = [one["type"] for one in begun if one["job"] == row["job"]]
        last = row["type"].endswith((".completed", ".failed", ".cancelled"))
        if row["job"] in held or (last and before) or any(kind.endswith(".started") for kind in before):
            held.add(row["job"])
            continue
        chosen.append(row)
        begun.append(row)
    return chosen


def _archive(db: Connection, place: int, state: str, at: float, answer: str) -> None:
    left = db.execute(
        "INSERT INTO past_deliveries (id, job, team, type, url, created, tries, state, ended, answer)"
        " SELECT id, job, team, type, url, created, tries + 1, ?, ?, ? FROM deliveries WHERE seq = ?",
        (state, at, answer, place),
    )
    if left.rowcount != 1:
        return
    db.execute("DELETE FROM deliveries WHERE seq = ?", (place,))
    assert left.lastrowid is not None
    db.execute("DELETE FROM past_deliveries WHERE seq <= ?", (left.lastrowid - _MAX_ARCHIVED,))


def _to_dict(row: Row) -> dict[str, object]:
    parts = urlsplit(row["url"])
    return {
        "webhookId": row["id"],
        "jobId": row["job"],
        "team": row["team"],
        "type": row["type"],
        "url": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
        "state": row["state"],
        "tries": row["tries"],
        "createdAt": iso(row["created"]),
        "answer": row["answer"],
        "nextTryAt" if row["live"] else "endedAt": iso(row["time"]),
    }


def _payload(document: bytes | None, failure: tuple[str, str] | None) -> list[object]:
    if document is not None:
        return [msgspec.Raw(document)]
    return [{"metadata": {"sourceURL": failure[0]}}] if failure else []
