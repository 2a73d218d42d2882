"""Webhooks from the event to a receiver on a real socket, and the receiver's side: signature and parsing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from weblake.api import webhooks
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake_service.config import ServiceKey, TeamPlan
from weblake_service.jobs import webhook_delivery
from weblake_service.page_failure import PageFailure

A, B = "http://site.test/a", "http://site.test/b"
SECRET = "test-secret"


@dataclass
class Receiver:
    """Records every delivery and responds with the next of `statuses`, then 204, unless the event's type is held."""

    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    under_way: int = 0

    def types(self) -> list[str]:
        return [event["type"].partition(".")[2] for event in self.events()]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told, lock = Receiver(), threading.Lock()

    def answer(asked: LoopbackRequest) -> LoopbackResponse:
        with lock:
            status = told.statuses.pop(0) if told.statuses else 204
            told.got.append((asked.headers, asked.body))
            told.under_way += 1
        kind, deadline = json.loads(asked.body)["type"].partition(".")[2], time.monotonic() + 120
        while {kind, asked.target} & told.held and time.monotonic() < deadline:
            time.sleep(0.005)
        with lock:
            told.under_way -= 1
        return LoopbackResponse(status)

    with LoopbackServer(answer) as server:
        told.url = f"{server.url}/hook?x=1"
        yield told
        told.held.clear()


def test_a_completed_job_is_announced_signed(make_bench: Any, receiver: Receiver) -> None:
    bench = make_bench(webhook_secret=SECRET)
    hook = {
        "url": receiver.url,
        "headers": {"X-Mine": "1", "content-type": "application/json"},
        "metadata": {"run": "7"},
    }
    job = bench.batch(A, B, webhook=hook)
    bench.until(lambda: receiver.got)
    ((headers, body),) = receiver.got
    event = webhooks.receive(body, headers["x-service-signature"], SECRET)
    assert (event.type, event.id, event.success, event.data) == ("batch_scrape.completed", job, True, [])
    assert (event.metadata, headers["x-mine"], headers["content-type"]) == ({"run": "7"}, "1", "application/json")
    assert set(json.loads(body)) == {"success", "type", "id", "webhookId", "data", "metadata"}
    assert event.webhook_id
    assert bench.status(job)["status"] == "completed"


def test_without_a_secret_there_is_no_signature(bench: Any, receiver: Receiver) -> None:
    job = bench.crawl(A, webhook=receiver.url)
    bench.until(lambda: receiver.got)
    ((headers, body),) = receiver.got
    assert "x-service-signature" not in headers
    assert json.loads(body)["type"] == "crawl.completed"
    assert json.loads(body)["id"] == job
    assert "metadata" not in json.loads(body)


def test_started_and_page_events_are_sent_on_request(bench: Any, receiver: Receiver) -> None:
    bench.web.failures[B] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    events = ["started", "page", "completed", "failed"]
    bench.batch(A, B, webhook={"url": receiver.url, "events": events})
    bench.until(lambda: len(receiver.got) == 4)
    by_type: dict[str, list[dict[str, Any]]] = {}
    for event in receiver.events():
        by_type.setdefault(event["type"], []).append(event)
    assert {name: len(got) for name, got in by_type.items()} == {
        "batch_scrape.started": 1,
        "batch_scrape.page": 2,
        "batch_scrape.completed": 1,
    }
    good, bad = sorted(by_type["batch_scrape.page"], key=lambda event: not event["success"])
    assert good["data"][0]["metadata"]["sourceURL"] == A
    assert (bad["success"], bad["error"], bad["data"]) == (False, "It is down.", [{"metadata": {"sourceURL": B}}])


def test_a_delivery_is_retried_after_1_5_and_15_minutes(bench: Any, receiver: Receiver) -> None:
    receiver.statuses = [500, 302, 404, 500, 204]
    due = _now(bench)
    bench.wait_until_ended(bench.batch(A, webhook=receiver.url))
    for tries, seconds in ((1, 60), (2, 300), (3, 900)):
        bench.until(lambda tries=tries: len(receiver.got) == tries)
        bench.until(lambda tries=tries: _tries(bench) == tries)
        before, due = due, _due(bench)
        assert before <= due - seconds <= _now(bench), "the pause counts from the failure"
        bench.service.advance(seconds - 50)
        assert bench.http.get("/_weblake/health").status_code == 200
        assert len(receiver.got) == tries
        bench.service.advance(51)
    bench.until(lambda: len(receiver.got) == 4)
    bench.until(lambda: _tries(bench) is None)
    bench.service.advance(10_000)
    assert len({event["webhookId"] for event in receiver.events()}) == 1
    assert len({body for _, body in receiver.got}) == 1
    bench.wait_until_ended(bench.batch(B, webhook=receiver.url))
    bench.until(lambda: len(receiver.got) == 5)


def _tries(bench: Any) -> int | None:
    """Return how often the only queued delivery was tried; None if none is queued."""
    work = lambda db: db.execute("SELECT tries FROM deliveries").fetchone()  # noqa: E731
    row = bench.service._call(lambda parts: parts.store.read(work))
    return None if row is None else int(row["tries"])


def _due(bench: Any) -> float:
    """Return when the only queued delivery is tried again, by the service's clock, in seconds since 1970."""
    work = lambda db: db.execute("SELECT due FROM deliveries").fetchone()  # noqa: E731
    return float(bench.service._call(lambda parts: parts.store.read(work))["due"])


def _now(bench: Any) -> float:
    """Return the time of the service's clock, in seconds since 1970."""
    return datetime.fromisoformat(bench.http.get("/_weblake/clock").json()["now"]).timestamp()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service wait for a receiver until the test releases it: a delivery that timed out is retried later."""
    monkeypatch.setattr(webhook_delivery, "TIMEOUT_S", 240.0)


def test_completed_does_not_wait_for_retries(bench: Any, receiver: Receiver) -> None:
    receiver.statuses = [500, 500]
    bench.wait_until_ended(bench.batch(A, webhook={"url": receiver.url, "events": ["started", "page", "completed"]}))
    bench.until(lambda: len(receiver.got) == 3)
    assert receiver.types() == ["started", "page", "completed"]
    bench.service.advance(61)
    bench.until(lambda: len(receiver.got) == 5)
    assert sorted(receiver.types()[3:]) == ["page", "started"]


@pytest.mark.usefixtures("patient")
def test_slow_receivers_delay_neither_jobs_nor_other_receivers(bench: Any, receiver: Receiver) -> None:
    slow = [f"/slow/{n}" for n in range(12)]
    receiver.held |= set(slow)
    base = receiver.url.rpartition("/")[0]
    jobs = [bench.batch(A, webhook=f"{base}{path}") for path in slow for _ in range(2)]
    bench.until(lambda: receiver.under_way == 24)
    assert {bench.wait_until_ended(job)["completed"] for job in jobs} == {1}
    receiver.held.remove(slow[0])
    quick = bench.batch(A, webhook=receiver.url)
    bench.until(lambda: quick in [event["id"] for event in receiver.events()])
    receiver.held.clear()
    bench.until(lambda: len({event["id"] for event in receiver.events()}) == 25)


def test_each_team_signs_with_its_own_secret(make_bench: Any, receiver: Receiver) -> None:
    keys = [ServiceKey("test-key-red", "one", "red"), ServiceKey("test-key-blue", "one", "blue")]
    bench = make_bench(keys=keys, webhook_secret=SECRET, teams={"blue": TeamPlan(webhook_secret="test-secret-2")})
    for key, secret in (("test-key-red", SECRET), ("test-key-blue", "test-secret-2")):
        receiver.got.clear()
        asked = {"urls": [A], "webhook": receiver.url}
        bench.http.post("/v2/batch/scrape", json=asked, headers={"Authorization": f"Bearer {key}"})
        bench.until(lambda: receiver.got)
        ((headers, body),) = receiver.got
        webhooks.verify(body, headers["x-service-signature"], secret)


@pytest.mark.usefixtures("patient")
def test_a_reset_aborts_running_deliveries(bench: Any, receiver: Receiver) -> None:
    receiver.held.add("completed")
    bench.batch(A, webhook=receiver.url)
    bench.until(lambda: receiver.under_way == 1)
    bench.service.reset()
    receiver.held.clear()
    later = bench.batch(A, webhook=receiver.url)
    bench.until(lambda: len(receiver.got) == 2)
    assert receiver.events()[1]["id"] == later
