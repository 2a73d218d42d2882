"""Injected faults of jobs, of their status responses and of their webhooks, as a client sees them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from weblake.testing.webhooks import WeblakeWebhooks

PAGES = [f"http://site.test/{name}" for name in "abcdef"]


@pytest.fixture
def receiver() -> Iterator[WeblakeWebhooks]:
    with WeblakeWebhooks() as receiver:
        yield receiver


def effect(bench: Any, times: int | None = 1, path: str = "", nth: int = 1, **effect: object) -> None:
    bench.service.faults({"match": {"path": path, "nth": nth}, "times": times, "effect": effect})


# --- pages


def test_a_page_fails_with_the_code_of_the_rule(bench: Any) -> None:
    effect(bench, path="/c$", fail_page="SCRAPE_TIMEOUT")
    job = bench.batch(*PAGES)
    assert bench.wait_until_ended(job)["completed"] == 5
    (error,) = bench.http.get(f"/v2/batch/scrape/{job}/errors").json()["errors"]
    assert (error["url"], error["code"]) == (PAGES[2], "SCRAPE_TIMEOUT")
    assert bench.service.counts()["pages_billed"] == 5
    assert PAGES[2] not in bench.web.asked, "no request reached the site"


def test_a_single_scrape_fails_by_a_rule(bench: Any) -> None:
    effect(bench, path="/c$", fail_page=True)
    replies = [bench.http.post("/v2/scrape", json={"url": url}) for url in (PAGES[0], PAGES[2], PAGES[2])]
    assert [reply.status_code for reply in replies] == [200, 500, 200]
    assert replies[1].json()["code"] == "SCRAPE_SITE_ERROR"


def test_a_lost_page_is_neither_a_document_nor_an_error(bench: Any) -> None:
    front = "http://site.test/"
    bench.web.links = {front: PAGES}
    effect(bench, times=2, path="/c$", lose_page=True)
    crawl, batch = bench.crawl(front), bench.batch(*PAGES)
    for job, kind, pages in ((crawl, "crawl", 6), (batch, "batch/scrape", 5)):
        assert bench.wait_until_ended(job, kind)["completed"] == pages
        assert bench.http.get(f"/v2/{kind}/{job}/errors").json()["errors"] == []


def test_the_seed_and_not_the_order_determines_which_pages_fail(bench: Any) -> None:
    urls = [f"http://site.test/{number}" for number in range(40)]

    def failing(order: list[str], seed: int) -> set[str]:
        rule = {"times": None, "probability": 0.5, "seed": seed, "effect": {"fail_page": True}}
        bench.service.faults(rule)
        job = bench.batch(*order)
        bench.wait_until_ended(job)
        return {one["url"] for one in bench.http.get(f"/v2/batch/scrape/{job}/errors").json()["errors"]}

    first = failing(urls, 1)
    assert failing(list(reversed(urls)), 1) == first
    assert failing(urls, 2) != first
    assert 8 < len(first) < 32


def test_a_stalled_job_resumes_when_its_rule_is_removed(bench: Any) -> None:
    urls = [f"http://site.test/stalled/{number}" for number in range(30)]
    effect(bench, path="/stalled/", nth=12, stall_job=True)
    stalled = bench.batch(*urls)
    (rule,) = bench.http.get("/_weblake/faults").json()["rules"]
    bench.until(lambda: bench.status(stalled)["completed"] >= 11)
    other = bench.batch(*PAGES)
    assert bench.wait_until_ended(other)["completed"] == 6
    assert bench.status(stalled)["status"] == "scraping"
    assert bench.status(stalled)["completed"] < 30
    assert bench.http.delete(f"/_weblake/faults/{rule['id']}").json() == {"rules": []}
    assert bench.wait_until_ended(stalled)["completed"] == 30


def test_a_stalled_job_can_be_cancelled_or_reset(bench: Any) -> None:
    effect(bench, times=None, stall_job=True)
    job = bench.batch(*PAGES)
    assert bench.http.delete(f"/v2/batch/scrape/{job}").json() == {"status": "cancelled"}
    assert bench.status(job)["completed"] == 0
    bench.batch(*PAGES)
    bench.http.post("/_weblake/reset")
    assert bench.http.get("/_weblake/faults").json() == {"rules": []}
    assert bench.wait_until_ended(bench.batch(*PAGES))["completed"] == 6


def test_a_delayed_request_is_not_handled_after_a_reset(bench: Any) -> None:
    def delayed() -> bool:
        return bool(bench.http.get("/_weblake/faults").json()["rules"][0]["hit"] == 1)

    effect(bench, latency_ms=60_000)
    with pytest.raises(httpx.ReadTimeout):
        bench.http.post("/v2/batch/scrape", json={"urls": PAGES}, timeout=0.1)
    bench.until(delayed)
    with ThreadPoolExecutor() as pool:
        effect(bench, latency_ms=60_000)
        slow = pool.submit(bench.http.post, "/v2/batch/scrape", json={"urls": PAGES})
        bench.until(delayed)
        bench.http.post("/_weblake/reset")
        with pytest.raises(httpx.TransportError):
            slow.result()
    assert bench.service.counts() == {}


# --- status responses


@pytest.mark.parametrize(
    ("fault", "query", "seen"),
    [
        ({"chunk_documents": 2}, "", {"documents": 2, "next": "{service}?skip=2&limit=2"}),
        ({"empty_chunk": True}, "?skip=2", {"documents": 0, "status": "scraping", "next": "{service}?skip=2"}),
        ({"chunk_documents": 2, "lost_chunk": True}, "", {"documents": 0, "next": "{service}?skip=2&limit=2"}),
        ({"chunk_documents": 2, "duplicate_document": True}, "?skip=4", {"documents": 2}),
        ({"chunk_documents": 2, "foreign_next": True}, "", {"next": "https://elsewhere.invalid{path}?skip=2&limit=2"}),
        ({"endless_next": True}, "?skip=6", {"documents": 0, "next": "{service}?skip=106"}),
        ({"status_word": "pondering"}, "", {"status": "pondering"}),
        ({"late_credits": True}, "", {"creditsUsed": 0}),
    ],
)
def test_a_fault_changes_the_status_response(bench: Any, fault: Any, query: str, seen: dict[str, Any]) -> None:
    job = bench.batch(*PAGES)
    bench.wait_until_ended(job)
    effect(bench, **fault)
    read = bench.status(job, query=query)
    path = f"/v2/batch/scrape/{job}"
    found = {"documents": len(read["data"]), **read}
    wanted = {k: v.format(service=bench.service.url + path, path=path) if k == "next" else v for k, v in seen.items()}
    assert {name: found[name] for name in wanted} == wanted
    assert bench.status(job)["completed"] == 6, "the rule applies once"


def test_status_faults_apply_to_status_reads_only(bench: Any) -> None:
    job = bench.crawl(PAGES[0])
    effect(bench, times=None, not_found=True)
    paths = [f"crawl/{job}", f"crawl/{job}/errors", "crawl/active", "team/activity"]
    assert [bench.http.get(f"/v2/{path}").status_code for path in paths] == [404, 200, 200, 200]


# --- webhooks


def test_a_webhook_is_delivered_twice_with_the_same_id(make_bench: Any, receiver: WeblakeWebhooks) -> None:
    bench = make_bench(webhook_secret=receiver.secret)
    effect(bench, duplicate_webhook=True)
    bench.batch(PAGES[0], webhook=receiver.url)
    receiver.wait("completed", count=2)
    first, second = receiver.deliveries
    assert first.verified
    assert (first.webhook_id, first.body) == (second.webhook_id, second.body)


def test_a_webhook_is_signed_with_another_secret(make_bench: Any, receiver: WeblakeWebhooks) -> None:
    bench = make_bench(webhook_secret=receiver.secret)
    effect(bench, bad_signature=True)
    bench.batch(PAGES[0], webhook=receiver.url)
    assert not receiver.wait("completed").verified
    bench.batch(PAGES[0], webhook=receiver.url)
    assert receiver.wait("completed", count=2).verified


def test_only_the_named_webhook_is_lost(make_bench: Any, receiver: WeblakeWebhooks) -> None:
    bench = make_bench(webhook_secret=receiver.secret)
    bench.service.faults({"match": {"event": "page", "path": "/hook$"}, "effect": {"lose_webhook": True}})
    job = bench.batch(*PAGES[:2], webhook={"url": receiver.url, "events": ["started", "page", "completed"]})
    receiver.wait("completed", job=job)
    assert sorted(one.type for one in receiver.deliveries) == [
        "batch_scrape.completed",
        "batch_scrape.page",
        "batch_scrape.started",
    ]
