"""Webhooks as rows: what is to be delivered, to whom, and when next. Imports: answers.

They are queued in the transaction of the event they tell of and leave the table when a receiver has acknowledged them.
"""

from __future__ import annotations

from sqlite3 import Connection, Row
from uuid import uuid4

import msgspec

from weblake.service.answers import encode

#: Seconds between one failed try and the next; after the last the delivery is dropped.
RETRIES = (60.0, 300.0, 900.0)
#: What is sent where the configuration names no events: the contract's text knows no other kind.
DEFAULT_EVENTS = ("completed",)


def enqueue(
    db: Connection,
    job: Row,
    event: str,
    at: float,
    *,
    document: bytes | None = None,
    failure: tuple[str, str] | None = None,
) -> None:
    """Queues one event of a job, where its webhook asks for this kind.

    Args:
        job: The job's row, with a webhook.
        event: started, page, completed or failed.
        document: The page's encoded document, of a page that was scraped.
        failure: The URL and the error, of a page that was not.
    """
    webhook = msgspec.json.decode(job["webhook"])
    if event not in (webhook.get("events") or DEFAULT_EVENTS):
        return
    delivery_id = str(uuid4())
    error = failure[1] if failure else job["error"] if event == "failed" else None
    body: dict[str, object] = {
        "success": error is None,
        "type": f"{job['kind']}.{event}",
        "id": job["id"],
        "webhookId": delivery_id,
        "data": _data(document, failure),
    }
    if webhook.get("metadata") is not None:
        body["metadata"] = webhook["metadata"]
    if error is not None:
        body["error"] = error
    db.execute(
        "INSERT INTO deliveries (id, job, url, headers, body, due) VALUES (?, ?, ?, ?, ?, ?)",
        (delivery_id, job["id"], webhook["url"], encode(webhook.get("headers") or {}), encode(body), at),
    )


def due(db: Connection, at: float, most: int) -> list[Row]:
    """The deliveries whose time has come, the oldest first."""
    return db.execute("SELECT * FROM deliveries WHERE due <= ? ORDER BY due, rowid LIMIT ?", (at, most)).fetchall()


def next_due(db: Connection) -> float | None:
    """When the next delivery is to be tried; None where there is none."""
    (first,) = db.execute("SELECT min(due) FROM deliveries").fetchone()
    return None if first is None else float(first)


def acknowledge(db: Connection, delivery_id: str) -> None:
    """Forgets a delivery that arrived."""
    db.execute("DELETE FROM deliveries WHERE id = ?", (delivery_id,))


def put_off(db: Connection, delivery_id: str, tries: int, at: float) -> bool:
    """Plans the next try after the given number of failed ones, or drops the delivery; returns whether it lives on."""
    if tries > len(RETRIES):
        acknowledge(db, delivery_id)
        return False
    db.execute("UPDATE deliveries SET tries = ?, due = ? WHERE id = ?", (tries, at + RETRIES[tries - 1], delivery_id))
    return True


def _data(document: bytes | None, failure: tuple[str, str] | None) -> list[object]:
    if document is not None:
        return [msgspec.Raw(document)]
    return [{"metadata": {"sourceURL": failure[0]}}] if failure else []
