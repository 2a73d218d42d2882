"""Webhooks from the event to a receiver on a real socket, and the receiver's side: signature and parsing."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake import webhooks
from weblake.errors import FixRequest, InvalidOption
from weblake.service.failures import PageFailure

A, B = "http://site.test/a", "http://site.test/b"
SECRET = "test-secret"


@dataclass
class Receiver:
    """Notes every delivery and answers with the next of `statuses`, then 204."""

    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = told.statuses.pop(0) if told.statuses else 204
            told.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_completed_job_is_announced_signed(make_bench: Any, receiver: Receiver) -> None:
    bench = make_bench(webhook_secret=SECRET)
    hook = {"url": receiver.url, "headers": {"X-Mine": "1", "x-service-signature": "fake"}, "metadata": {"run": "7"}}
    job = bench.batch(A, B, webhook=hook)
    bench.until(lambda: receiver.got)
    ((headers, body),) = receiver.got
    event = webhooks.receive(body, headers["x-service-signature"], SECRET)
    assert (event.type, event.id, event.success, event.data) == ("batch_scrape.completed", job, True, [])
    assert (event.metadata, headers["x-mine"], headers["content-type"]) == ({"run": "7"}, "1", "application/json")
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


def test_started_and_page_events_come_when_they_are_asked_for(bench: Any, receiver: Receiver) -> None:
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


def test_a_cancelled_job_is_not_announced(bench: Any, receiver: Receiver) -> None:
    bench.web.held.add(A)
    job = bench.batch(A, webhook=receiver.url)
    bench.http.delete(f"/v2/batch/scrape/{job}")
    bench.ended(bench.batch(B, webhook=receiver.url))
    bench.until(lambda: receiver.got)
    assert [event["id"] == job for event in receiver.events()] == [False]


def test_a_delivery_is_tried_again_after_1_5_and_15_minutes(bench: Any, receiver: Receiver) -> None:
    receiver.statuses = [500, 302, 404, 500, 204]
    bench.ended(bench.batch(A, webhook=receiver.url))
    for tries, seconds in ((1, 60), (2, 300), (3, 900)):
        bench.until(lambda tries=tries: len(receiver.got) == tries)
        bench.until(lambda tries=tries: _tries(bench) == tries)
        bench.service.advance(seconds - 5)
        assert bench.http.get("/_weblake/health").status_code == 200
        assert len(receiver.got) == tries
        bench.service.advance(6)
    bench.until(lambda: len(receiver.got) == 4)
    bench.until(lambda: _tries(bench) is None)
    bench.service.advance(10_000)
    assert len({event["webhookId"] for event in receiver.events()}) == 1
    assert len({body for _, body in receiver.got}) == 1
    bench.ended(bench.batch(B, webhook=receiver.url))
    bench.until(lambda: len(receiver.got) == 5)


def _tries(bench: Any) -> int | None:
    """How often the only queued delivery was tried; None where none is queued."""
    work = lambda db: db.execute("SELECT tries FROM deliveries").fetchone()  # noqa: E731
    row = bench.service._call(lambda parts: parts.store.read(work))
    return None if row is None else int(row["tries"])


def test_deliveries_outlive_the_process(make_bench: Any, receiver: Receiver, tmp_path: Any) -> None:
    receiver.statuses = [503]
    bench = make_bench(tmp_path / "service.db")
    job = bench.batch(A, webhook=receiver.url)
    bench.until(lambda: receiver.got)
    bench.until(lambda: _tries(bench) == 1)
    bench.service.stop()
    later = make_bench(tmp_path / "service.db")
    later.service.advance(61)
    later.until(lambda: len(receiver.got) == 2)
    first, second = receiver.events()
    assert first == second
    assert second["id"] == job


def test_a_receiver_that_is_not_there_does_not_matter_to_the_job(bench: Any) -> None:
    job = bench.batch(A, webhook="http://127.0.0.1:9/hook")
    assert bench.ended(job)["completed"] == 1
    bench.until(lambda: _tries(bench) == 1)


def test_the_signature_is_the_documented_one() -> None:
    body = b'{"a": 1}'
    expected = hmac.new(b"test-secret", body, hashlib.sha256).hexdigest()
    assert webhooks.sign("test-secret", body) == f"sha256={expected}"
    webhooks.verify(body, f"sha256={expected}", b"test-secret")


@given(st.binary(max_size=200), st.text(max_size=80) | st.none())
def test_nothing_but_the_signature_is_taken(body: bytes, signature: str | None) -> None:
    right = webhooks.sign(SECRET, body)
    if signature != right:
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(body, signature, SECRET)
    for wrong in (right.upper(), right[7:], f" {right}", f"{right}\n", right.replace("sha256", "sha1"), right[:-1]):
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(body, wrong, SECRET)
    with pytest.raises(webhooks.SignatureMismatch):
        webhooks.verify(body + b" ", right, SECRET)
    webhooks.verify(body, right, SECRET)


def test_an_empty_secret_verifies_nothing() -> None:
    for secret in ("", b""):
        with pytest.raises(InvalidOption):
            webhooks.verify(b"", hmac.new(b"", b"", hashlib.sha256).hexdigest(), secret)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"type": 1, "id": "x"}', b'{"type": "x"}', b"\xff", b"[" * 5000])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(FixRequest, match="no event"):
        webhooks.parse(body)


def test_unknown_fields_and_odd_ones_break_nothing() -> None:
    event = webhooks.parse(b'{"type":"crawl.page","id":"j","new":[1],"data":"x","metadata":3,"webhookId":5,"error":1}')
    assert (event.type, event.data, event.metadata, event.webhook_id, event.error) == ("crawl.page", [], {}, None, None)
