"""Idempotency keys: one execution and one response, also after a lost connection or a restart."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import httpx
import pytest

from weblake_service.page_failure import PageFailure

A, B = "http://site.test/a", "http://site.test/b"
STARTS = [("/v2/batch/scrape", {"urls": [A]}), ("/v2/crawl", {"url": A}), ("/v2/scrape", {"url": A})]


def key(text: str) -> dict[str, str]:
    return {"x-idempotency-key": str(uuid.uuid5(uuid.NAMESPACE_OID, text))}


@pytest.mark.parametrize(("path", "body"), STARTS)
def test_the_same_key_and_body_get_the_same_response(bench: Any, path: str, body: dict[str, object]) -> None:
    first = bench.http.post(path, json=body, headers=key("k"))
    again = bench.http.post(path, json=dict(reversed(body.items())), headers=key("k"))
    assert (first.status_code, again.content) == (200, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    counts = bench.service.counts()
    assert sum(value for name, value in counts.items() if name.endswith("_started")) == 1
    assert len(bench.http.get("/v2/team/activity").json()["data"]) == 1


@pytest.mark.parametrize(("path", "body"), STARTS)
def test_the_same_key_with_another_request_is_refused(bench: Any, path: str, body: dict[str, object]) -> None:
    bench.http.post(path, json=body, headers=key("k"))
    other = bench.http.post(path, json={**body, "maxConcurrency": 2, "onlyMainContent": False}, headers=key("k"))
    assert (other.status_code, "already used" in other.json()["error"]) == (409, True)
    elsewhere = bench.http.post("/v2/crawl", json={"url": B}, headers=key("k"))
    assert elsewhere.status_code == 409


def test_two_concurrent_repeats_start_one_job(make_bench: Any) -> None:
    bench = make_bench(plan_credits=1000)
    answers: list[httpx.Response] = []
    together = threading.Barrier(8)

    def start() -> None:
        with httpx.Client(
            base_url=bench.service.url, headers=bench.http.headers, trust_env=False, verify=False, timeout=120
        ) as client:
            together.wait()
            answers.append(client.post("/v2/batch/scrape", json={"urls": [A, B]}, headers=key("same")))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert bench.service.counts()["batch_scrape_started"] == 1


def test_a_repeat_waits_for_a_running_scrape(bench: Any) -> None:
    bench.web.held.add(A)
    answers: list[httpx.Response] = []

    def scrape() -> None:
        with httpx.Client(
            base_url=bench.service.url, headers=bench.http.headers, trust_env=False, verify=False, timeout=120
        ) as client:
            answers.append(client.post("/v2/scrape", json={"url": A}, headers=key("same")))

    threads = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in threads:
        thread.start()
    bench.until(lambda: len(bench.service.requests()) == 2)
    bench.web.held.clear()
    for thread in threads:
        thread.join()
    assert answers[0].content == answers[1].content
    assert bench.web.asked == [A]
    assert bench.service.counts()["pages_billed"] == 1


def test_a_repeat_returns_a_lost_response(bench: Any) -> None:
    bench.service.faults({"match": {"path": "/v2/batch/scrape$"}, "effect": {"drop_after": True}})
    with pytest.raises(httpx.TransportError):
        bench.http.post("/v2/batch/scrape", json={"urls": [A]}, headers=key("k"))
    again = bench.http.post("/v2/batch/scrape", json={"urls": [A]}, headers=key("k"))
    assert again.headers["idempotent-replayed"] == "true"
    (entry,) = bench.http.get("/v2/team/activity").json()["data"]
    assert entry["id"] == again.json()["id"]
    assert bench.service.counts()["batch_scrape_started"] == 1


def test_a_refused_request_may_be_corrected_under_the_same_key(make_bench: Any) -> None:
    bench = make_bench(plan_credits=1)
    for body, status in (
        ({"urls": []}, 400),
        ({"urls": [A, B]}, 402),
        ({"urls": [A], "formats": ["summary"]}, 503),
        ({"urls": [A]}, 200),
        ({"urls": []}, 409),
    ):
        assert bench.http.post("/v2/batch/scrape", json=body, headers=key("k")).status_code == status


def test_a_failed_scrape_is_replayed(bench: Any) -> None:
    bench.web.failures[A] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    first = bench.http.post("/v2/scrape", json={"url": A}, headers=key("k"))
    bench.web.failures.clear()
    again = bench.http.post("/v2/scrape", json={"url": A}, headers=key("k"))
    assert (again.status_code, again.content) == (500, first.content)
    assert bench.http.post("/v2/scrape", json={"url": A}, headers=key("l")).status_code == 200


@pytest.mark.parametrize("text", ["", "k", "x" * 10_000, "{0e7c7d9e-2f3f-4cf0-8a52-6a3b8f2f9f11}"])
def test_a_key_is_a_uuid(bench: Any, text: str) -> None:
    reply = bench.http.post("/v2/crawl", json={"url": A}, headers={"x-idempotency-key": text})
    assert (reply.status_code, reply.json()["code"]) == (409, "IDEMPOTENCY_KEY_NO_UUID")
    assert bench.service.counts() == {}


def test_keys_expire(bench: Any) -> None:
    first = bench.http.post("/v2/crawl", json={"url": A}, headers=key("k")).json()["id"]
    bench.service.advance(29 * 24 * 3600)
    assert bench.http.post("/v2/crawl", json={"url": A}, headers=key("k")).json()["id"] == first
    bench.service.advance(2 * 24 * 3600)
    assert bench.http.post("/v2/crawl", json={"url": A}, headers=key("k")).json()["id"] != first


def crawl_with(free: str) -> bytes:
    """Return a crawl with this JSON text at a place where any JSON is allowed: the metadata of its webhook."""
    return f'{{"url": "{A}", "limit": 1, "webhook": {{"url": "http://site.test/", "metadata": {free}}}}}'.encode()


def test_numbers_of_any_size_have_a_fingerprint(bench: Any) -> None:
    number = 123456789012345678901234567890
    ids = set()
    for _ in range(2):
        reply = bench.http.post("/v2/crawl", content=crawl_with(f'{{"n": {number}}}'), headers=key("k"))
        assert reply.status_code == 200, reply.text
        ids.add(reply.json()["id"])
    assert len(ids) == 1
    other = bench.http.post("/v2/crawl", content=crawl_with(f'{{"n": {number + 1}}}'), headers=key("k"))
    assert other.status_code == 409, "as floating-point numbers the two are equal"
