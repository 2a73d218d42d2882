"""Limits of a team: starts and reads per minute, concurrent pages, queued pages, credits."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import fake_web
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake_service.clock import Clock
from weblake_service.config import ServiceConfig, ServiceKey, TeamPlan
from weblake_service.rate_limit import RateLimit
from weblake_service.responses import ErrorResponse

A, B = "http://site.test/a", "http://site.test/b"
RED, BLUE = {"Authorization": "Bearer test-key-red"}, {"Authorization": "Bearer test-key-blue"}
KEYS = [
    ServiceKey("test-key-red", "one", "red"),
    ServiceKey("test-key-red-2", "two", "red"),
    ServiceKey("test-key-blue", "one", "blue"),
]


@given(st.lists(st.floats(0, 40), max_size=60), st.integers(1, 5))
def test_the_rate_limit_is_a_sliding_window_with_the_shortest_wait(gaps: list[float], most: int) -> None:
    now, taken = 0.0, []
    limit = RateLimit(ServiceConfig(requests_per_minute=most), Clock(lambda: now))
    for gap in gaps:
        now += gap
        recent = [at for at in taken if at > now - 60]
        if len(recent) < most:
            limit.take("red")
            taken.append(now)
            continue
        with pytest.raises(ErrorResponse) as caught:
            limit.take("red")
        wait = int(caught.value.headers["Retry-After"])
        assert caught.value.status == 429
        assert f"retry after {wait}s" in caught.value.error
        assert max(1, recent[0] + 60 - now) <= wait < max(1, recent[0] + 60 - now) + 1
    for start in taken:
        assert len([at for at in taken if start <= at < start + 60]) <= most


def test_rate_limits_are_per_team(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, requests_per_minute=1, teams={"blue": TeamPlan(requests_per_minute=2)})

    def scrape(**headers: str) -> int:
        return int(bench.http.post("/v2/scrape", json={"url": A}, headers=headers).status_code)

    assert [scrape(**RED), scrape(Authorization="Bearer test-key-red-2")] == [200, 429]
    assert [scrape(**BLUE) for _ in range(3)] == [200, 200, 429]
    bench.service.advance(61)
    assert scrape(Authorization="Bearer test-key-red-2") == 200


@pytest.mark.system
def test_malformed_requests_and_replays_do_not_count_as_starts(make_bench: Any) -> None:
    bench = make_bench(requests_per_minute=1)
    assert bench.http.post("/v2/scrape", json={"url": A, "timeout": 1}).status_code == 400
    again = {"json": {"urls": [A]}, "headers": {"x-idempotency-key": "00000000-0000-4000-8000-000000000001"}}
    replies = [bench.http.post("/v2/batch/scrape", **again) for _ in range(3)]
    assert len({reply.json()["id"] for reply in replies}) == 1
    refused = bench.http.post("/v2/batch/scrape", json={"urls": [A]})
    assert (refused.status_code, 55 <= int(refused.headers["retry-after"]) <= 60) == (429, True)


def test_reads_have_a_separate_larger_limit(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, reads_per_minute=3, requests_per_minute=1)
    job = bench.batch(A)
    replies = [bench.http.get(f"/v2/batch/scrape/{job}") for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert 1 <= int(replies[-1].headers["retry-after"]) <= 60
    assert bench.http.delete(f"/v2/batch/scrape/{job}").status_code == 429
    assert bench.http.get(f"/v2/batch/scrape/{job}", headers=BLUE).status_code == 404
    assert bench.http.get("/_weblake/requests").status_code == 200
    assert ServiceConfig(requests_per_minute=2).plan("x").reads_per_minute == 500


def test_pages_beyond_the_concurrency_of_a_team_wait_and_report_it(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, teams={"red": TeamPlan(concurrency=1), "blue": TeamPlan(concurrency=2)})
    bench.web.held.add("*")
    got: list[dict[str, Any]] = []

    def ask(url: str, headers: dict[str, str]) -> None:
        with httpx.Client(
            base_url=bench.service.url, headers=headers, trust_env=False, verify=False, timeout=120
        ) as client:
            got.append(client.post("/v2/scrape", json={"url": url}).json()["data"]["metadata"])

    threads = [threading.Thread(target=ask, args=(f"{A}/{n}", RED if n < 2 else BLUE)) for n in range(4)]
    for number, thread in enumerate(threads):
        thread.start()
        bench.until(lambda number=number: len(bench.service.requests()) == number + 1)
    bench.until(lambda: bench.web.flying == 3)
    check = [bench.http.get("/v2/concurrency-check", headers=who).json() for who in (RED, BLUE)]
    assert [(one["concurrency"], one["maxConcurrency"]) for one in check] == [(1, 1), (2, 2)]
    assert bench.http.get("/v2/team/queue-status", headers=BLUE).json()["maxConcurrency"] == 2
    bench.web.held.clear()
    for thread in threads:
        thread.join()
    limited = [one for one in got if one["concurrencyLimited"]]
    assert len(limited) == 1
    assert limited[0]["sourceURL"] in (f"{A}/0", f"{A}/1")
    assert limited[0]["concurrencyQueueDurationMs"] >= 0
    assert bench.web.most_flying == 3


def test_sitemaps_are_read_in_the_slots_of_a_team(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, teams={"red": TeamPlan(concurrency=2)})
    bench.web.held.add("sitemap")
    got: list[int] = []

    def map_site(url: str, headers: dict[str, str]) -> None:
        with httpx.Client(base_url=bench.service.url, headers=headers, trust_env=False, timeout=120) as client:
            got.append(client.post("/v2/map", json={"url": url, "sitemap": "only"}).status_code)

    jobs = [bench.crawl(f"http://crawled{n}.test/") for n in range(2)]
    bench.until(lambda: bench.web.reading == 2)
    threads = [threading.Thread(target=map_site, args=(f"http://mapped{n}.test/", RED)) for n in range(2)]
    threads.append(threading.Thread(target=map_site, args=("http://mapped.test/", BLUE)))
    for thread in threads:
        thread.start()
    bench.until(lambda: bench.web.reading == 3)
    check = [bench.http.get("/v2/concurrency-check", headers=who).json()["concurrency"] for who in (RED, BLUE)]
    assert check == [2, 1]
    bench.web.held.clear()
    for thread in threads:
        thread.join()
    assert got == [200, 200, 200]
    assert [bench.wait_until_ended(job, "crawl")["completed"] for job in jobs] == [1, 1]
    assert bench.web.most_reading == 3, "two of one team, and one of the other"


def test_a_job_uses_no_more_slots_than_its_team_has(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, teams={"red": TeamPlan(concurrency=2)})
    bench.web.held.add("*")
    job = bench.batch(*[f"{A}/{n}" for n in range(6)], maxConcurrency=50)
    bench.until(lambda: bench.web.flying == 2)
    queue = bench.http.get("/v2/team/queue-status").json()
    assert (queue["jobsInQueue"], queue["activeJobsInQueue"], queue["waitingJobsInQueue"]) == (6, 2, 4)
    bench.web.held.clear()
    assert bench.wait_until_ended(job)["completed"] == 6
    assert bench.web.most_flying == 2


def test_the_queue_is_full_for_one_team_only(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, teams={"red": TeamPlan(max_queued_pages=2)})
    bench.web.held.add("*")
    bench.batch(A, B)
    full = bench.http.post("/v2/batch/scrape", json={"urls": [A]})
    assert (full.status_code, full.headers["retry-after"]) == (429, "30")
    assert bench.http.post("/v2/batch/scrape", json={"urls": [A]}, headers=BLUE).status_code == 200
    bench.web.held.clear()


def test_credits_are_per_team_and_renewed_monthly(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS, teams={"red": TeamPlan(credits=1)})
    statuses = [bench.http.post("/v2/scrape", json={"url": A}, headers=who).status_code for who in (RED, RED, BLUE)]
    assert statuses == [200, 402, 200]
    assert bench.http.get("/v2/team/credit-usage").json()["data"]["remainingCredits"] == 0
    bench.service.advance(32 * 24 * 3600)
    assert bench.http.post("/v2/scrape", json={"url": A}).status_code == 200


@pytest.mark.parametrize("kind", ["batch/scrape", "crawl", "append"])
def test_a_start_leaves_the_credits_that_the_pages_of_running_jobs_may_cost(make_bench: Any, kind: str) -> None:
    bench = make_bench(plan_credits=20, zero_data_retention=True)
    bench.web.held.add("*")
    urls = [f"{A}{number}" for number in range(6)]
    # Two credits a page, which is known at the start.
    if kind == "crawl":
        bench.crawl(A, limit=6, zeroDataRetention=True)
    elif kind == "append":
        bench.batch(*urls[1:], zeroDataRetention=True, appendToId=bench.batch(urls[0]))
    else:
        bench.batch(*urls, zeroDataRetention=True)
    reply = bench.http.post("/v2/batch/scrape", json={"urls": urls, "zeroDataRetention": True})
    assert (reply.status_code, reply.json()["code"]) == (402, "INSUFFICIENT_CREDITS")
    assert "this needs up to 12 and 8 are left" in reply.json()["error"]
    last = bench.batch(*urls[:4], zeroDataRetention=True)
    assert bench.http.post("/v2/scrape", json={"url": B}).status_code == 402
    bench.web.held.clear()
    assert bench.wait_until_ended(last)["creditsUsed"] == 8


@pytest.mark.parametrize("kind", ["batch/scrape", "crawl"])
def test_pages_beyond_the_credits_of_a_team_fail(make_bench: Any, kind: str) -> None:
    web = fake_web.FakeWeb()
    plain = web.scrape

    async def dear(url: str, options: Any) -> Any:
        return replace(await plain(url, options), credits=3)

    web.scrape = dear
    bench = make_bench(plan_credits=5, concurrency=1, web=web)
    urls = ["http://site.test/", *(f"http://site.test/{n}" for n in range(4))]
    web.links[urls[0]] = urls
    job = bench.batch(*urls) if kind == "batch/scrape" else bench.crawl(urls[0], limit=5)
    status = bench.wait_until_ended(job, kind)
    errors = bench.http.get(f"/v2/{kind}/{job}/errors").json()["errors"]
    assert (status["status"], status["completed"], status["creditsUsed"]) == ("completed", 2, 6)
    assert [one["code"] for one in errors] == ["INSUFFICIENT_CREDITS"] * 3
    assert len(bench.web.asked) == 2
    assert bench.http.post("/v2/scrape", json={"url": A}).status_code == 402
