"""Faults of jobs, of their status responses and of their webhooks, and how the client handles each."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import weblake
from weblake.errors import DeadlineExceeded, JobEnded, JobGone, LoadIncomplete, MalformedReply
from weblake.loads.load_request import Terms
from weblake.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake.testing.webhooks import WeblakeWebhooks

PAGES = [f"http://site.test/{name}" for name in "abcdef"]


@pytest.fixture
def receiver() -> Iterator[WeblakeWebhooks]:
    with WeblakeWebhooks() as receiver:
        yield receiver


@pytest.fixture
def client(bench: Any) -> Iterator[weblake.Client]:
    with weblake.Client(bench.service.url, bench.service.key) as client:
        yield client


def landed(client: weblake.Client, root: Path, urls: list[str] = PAGES, **terms: Any) -> weblake.Receipt:
    receipt = weblake.land_batch(urls, to=root, client=client, terms=Terms(**terms), ignore_invalid_urls=True)
    rows = weblake.read(root, "documents").to_table().num_rows
    assert rows == receipt.stored
    return receipt


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


def test_a_lost_page_of_a_batch_is_reported_as_missing(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, path="/c$", lose_page=True)
    with pytest.raises(LoadIncomplete, match="missing"):
        landed(client, tmp_path)
    (entry,) = bench.http.get("/v2/team/activity").json()["data"]
    assert bench.status(entry["id"])["completed"] == 5
    assert bench.http.get(f"/v2/batch/scrape/{entry['id']}/errors").json()["errors"] == []


def test_a_lost_page_of_a_crawl_is_reported_as_missing(bench: Any) -> None:
    front = "http://site.test/"
    bench.web.links = {front: PAGES}
    effect(bench, path="/c$", lose_page=True)
    ended = bench.wait_until_ended(bench.crawl(front), "crawl")
    assert (ended["completed"], ended["total"]) == (6, 6)


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


def test_a_stalled_job_resumes_when_its_rule_is_removed(bench: Any, client: Any) -> None:
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


def test_a_wait_for_a_stalled_job_ends_at_its_deadline(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, stall_job=True)
    with pytest.raises(DeadlineExceeded):
        landed(client, tmp_path, timeout_s=1.0)
    bench.service.faults()
    assert landed(client, tmp_path).complete, "the same call resumes"
    assert bench.service.counts()["batch_scrape_started"] == 1


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


def test_the_chunk_size_can_be_reduced(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, times=None, chunk_documents=2)
    assert landed(client, tmp_path).stored == 6
    assert sum("skip=" in entry["path"] for entry in bench.service.requests()) >= 2


def test_a_job_that_is_not_found_at_first_is_requested_again(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, times=2, not_found=True)
    assert landed(client, tmp_path).complete
    bench.service.faults({"times": None, "effect": {"not_found": True}})
    with pytest.raises(JobGone):
        client.get_batch_scrape(bench.batch(*PAGES))


def test_status_faults_apply_to_status_reads_only(bench: Any) -> None:
    job = bench.crawl(PAGES[0])
    effect(bench, times=None, not_found=True)
    paths = [f"crawl/{job}", f"crawl/{job}/errors", "crawl/active", "team/activity"]
    assert [bench.http.get(f"/v2/{path}").status_code for path in paths] == [404, 200, 200, 200]


def test_an_empty_chunk_with_its_own_cursor_is_polled_again(bench: Any, client: Any, tmp_path: Path) -> None:
    job = bench.batch(*PAGES)
    bench.wait_until_ended(job)
    effect(bench, empty_chunk=True)
    read = bench.status(job, query="?skip=2")
    assert (read["data"], read["status"]) == ([], "scraping")
    assert read["next"] == f"{bench.service.url}/v2/batch/scrape/{job}?skip=2"
    effect(bench, times=3, empty_chunk=True)
    assert weblake.land("batch", job, to=tmp_path, client=client).stored == 6


def test_documents_lost_from_a_chunk_are_reported_as_missing(bench: Any, client: Any, tmp_path: Path) -> None:
    bench.service.faults(
        {"match": {"path": "skip=2"}, "times": None, "effect": {"chunk_documents": 2, "lost_chunk": True}},
        {"times": None, "effect": {"chunk_documents": 2}},
    )
    with pytest.raises(LoadIncomplete):
        landed(client, tmp_path)


def test_a_document_that_comes_twice_is_stored_once(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, times=None, chunk_documents=2, duplicate_document=True)
    receipt = landed(client, tmp_path)
    assert (receipt.stored, receipt.duplicates) == (6, 0)
    urls = weblake.read(tmp_path, "documents").to_table()["source_url"].to_pylist()
    assert sorted(urls) == PAGES
    job = bench.batch(*PAGES)
    bench.wait_until_ended(job)
    assert len(bench.status(job, query="?skip=4")["data"]) == 2, "one page more than requested would remain"


def test_a_next_link_to_another_host_is_not_followed(bench: Any, client: Any, tmp_path: Path) -> None:
    asked: list[LoopbackRequest] = []
    with LoopbackServer(lambda one: asked.append(one) or LoopbackResponse(200)) as stranger:
        effect(bench, times=None, chunk_documents=2, foreign_next=stranger.url)
        assert landed(client, tmp_path).stored == 6
    assert asked == []
    effect(bench, times=None, chunk_documents=2, foreign_next=True)
    job = bench.batch(*PAGES)
    bench.wait_until_ended(job)
    assert bench.status(job)["next"].startswith("https://elsewhere.invalid/v2/batch/scrape/")


def test_endless_pagination_fails_the_load(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, times=None, endless_next=True)
    with pytest.raises(MalformedReply, match="do not end"):
        landed(client, tmp_path)


def test_an_unknown_status_is_polled_again_and_failed_is_refused(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, times=2, status_word="pondering")
    assert landed(client, tmp_path).complete
    effect(bench, times=None, status_word="failed")
    with pytest.raises(JobEnded):
        landed(client, tmp_path / "other")


def test_late_credits_do_not_fail_a_load(bench: Any, client: Any, tmp_path: Path) -> None:
    effect(bench, times=1, late_credits=True)
    assert landed(client, tmp_path).complete


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
