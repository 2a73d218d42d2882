"""The queue of webhooks in the database: the next delivery, and the list of past deliveries."""

from __future__ import annotations

import json
import sqlite3
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake_service.jobs import webhook_queue
from weblake_service.store import schema

A = "https://a.test/"
EVENTS = '["started","page","completed","failed"]'


@pytest.fixture
def db() -> sqlite3.Connection:
    return new_database()


def new_database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    db.executescript(schema.SCHEMA)
    return db


def queue(
    db: sqlite3.Connection, job: int, event: str, at: float, place: int = 0, url: str = A, team: str = "red"
) -> None:
    row: Any = {
        "id": str(UUID(int=job)),
        "team": team,
        "kind": "crawl",
        "error": None,
        "webhook": f'{{"url":"{url}","events":{EVENTS},"headers":{{"X-Token":"test-token"}}}}'.encode(),
    }
    webhook_queue.enqueue(db, row, event, at, place=place)


def startable(db: sqlite3.Connection, at: float, flying: Any = None, **bounds: int) -> list[sqlite3.Row]:
    return webhook_queue.ready(db, at, flying or {}, **({"max_per_receiver": 4, "max_concurrent": 64} | bounds))


def test_the_last_deliveries_are_listed_with_their_outcome(db: sqlite3.Connection) -> None:
    queue(db, 1, "started", 100.0, url="https://user:pass@a.test/hook?token=test-token")
    queue(db, 2, "completed", 200.0)
    queue(db, 3, "completed", 300.0)
    for row in startable(db, 300.0):
        if row["job"] == str(UUID(int=1)):
            assert webhook_queue.schedule_retry(db, row["seq"], 300.0, "500")
        else:
            webhook_queue.acknowledge(db, row["seq"], 301.0, "204")
    newest, other, waiting = webhook_queue.recent(db)
    assert (newest["jobId"], newest["state"], newest["answer"]) == (str(UUID(int=3)), "delivered", "204")
    assert (other["jobId"], other["endedAt"]) == (str(UUID(int=2)), "1970-01-01T00:05:01.000Z")
    assert waiting == {
        "webhookId": waiting["webhookId"],
        "jobId": str(UUID(int=1)),
        "team": "red",
        "type": "crawl.started",
        "url": "https://a.test/hook",
        "state": "waiting",
        "tries": 1,
        "createdAt": "1970-01-01T00:01:40.000Z",
        "answer": "500",
        "nextTryAt": "1970-01-01T00:06:00.000Z",
    }
    assert "test-token" not in str(webhook_queue.recent(db))


def test_a_delivery_is_dropped_after_its_fourth_failure(db: sqlite3.Connection) -> None:
    queue(db, 1, "completed", 0.0)
    now, waits = 0.0, []
    while rows := startable(db, now):
        alive = webhook_queue.schedule_retry(db, rows[0]["seq"], now, "500")
        due = webhook_queue.next_due(db, now)
        assert alive == (due is not None)
        if due is None:
            break
        assert startable(db, due - 0.001) == []
        waits.append(due - now)
        now = due
    assert waits == [60.0, 300.0, 900.0]
    (past,) = webhook_queue.recent(db)
    assert (past["state"], past["tries"]) == ("dropped", 4)
    assert not webhook_queue.schedule_retry(db, 1, now, "500")
    webhook_queue.acknowledge(db, 1, now, "204")
    assert len(webhook_queue.recent(db)) == 1


def test_only_the_last_thousand_deliveries_are_kept(db: sqlite3.Connection) -> None:
    for number in range(1030):
        queue(db, number, "completed", 100.0)
        (row,) = startable(db, 100.0)
        webhook_queue.acknowledge(db, row["seq"], 101.0, "200")
    assert db.execute("SELECT count(*) FROM past_deliveries").fetchone()[0] == 1000
    assert len(webhook_queue.recent(db)) == 100


def test_a_receiver_with_a_long_queue_does_not_block_others(db: sqlite3.Connection) -> None:
    for number in range(300):
        queue(db, 1, "page", 1.0, number, "https://a.test/")
    queue(db, 2, "completed", 2.0, url="https://b.test/")
    flying = {row["seq"]: row for row in startable(db, 3.0, max_concurrent=4)}
    assert sorted(row["url"] for row in flying.values()) == ["https://a.test/"] * 4
    assert [row["url"] for row in startable(db, 3.0, flying, max_concurrent=5)] == ["https://b.test/"]


def test_a_team_with_many_slow_receivers_does_not_block_others(db: sqlite3.Connection) -> None:
    for number in range(100):
        queue(db, number, "completed", 1.0, url=f"https://a.test/{number}")
    queue(db, 100, "completed", 2.0, url="https://b.test/", team="blue")
    flying = {row["seq"]: row for row in startable(db, 1.0)}
    assert len(flying) == 56
    assert [row["team"] for row in startable(db, 2.0, flying)] == ["blue"]


@settings(max_examples=examples(80, 4))
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=6), st.randoms())
def test_events_of_each_job_arrive_in_order(jobs: list[tuple[int, int]], random: Any) -> None:
    db = new_database()
    expected = 0
    for number, (receiver, pages) in enumerate(jobs):
        for event in ["started", *["page"] * pages, "completed"]:
            queue(db, number, event, float(number), expected, f"https://{receiver}.test/")
            expected += 1
    flying: dict[int, sqlite3.Row] = {}
    begun: dict[str, list[str]] = {}
    while True:
        for row in startable(db, 100.0, flying, max_per_receiver=2, max_concurrent=5):
            flying[row["seq"]] = row
            event = row["type"].partition(".")[2]
            earlier = [one["type"] for one in flying.values() if one["job"] == row["job"] and one is not row]
            assert not (event == "completed" and earlier)
            assert "crawl.started" not in earlier
            begun.setdefault(row["job"], []).append(event)
        assert len(flying) <= 5
        if not flying:
            break
        ended = random.choice(sorted(flying))
        webhook_queue.acknowledge(db, ended, 100.0, "204")
        del flying[ended]
    assert sum(len(events) for events in begun.values()) == expected
    for events in begun.values():
        assert (events[0], events[-1], set(events[1:-1])) == ("started", "completed", {"page"})


def test_a_failed_job_reports_its_error(db: sqlite3.Connection) -> None:
    row: Any = {
        "id": str(UUID(int=1)), "team": "red", "kind": "batch_scrape", "error": "The disk is full.",
        "webhook": b'{"url":"https://a.test/","events":["failed"],"metadata":{"run":"7"}}',
    }  # fmt: skip
    webhook_queue.enqueue(db, row, "failed", 100.0)
    webhook_queue.enqueue(db, row, "completed", 100.0)
    (queued,) = startable(db, 100.0)
    body = json.loads(webhook_queue.find(db, queued["seq"])["body"])  # type: ignore[index]
    assert body == {
        "success": False,
        "type": "batch_scrape.failed",
        "id": str(UUID(int=1)),
        "webhookId": queued["id"],
        "data": [],
        "metadata": {"run": "7"},
        "error": "The disk is full.",
    }
