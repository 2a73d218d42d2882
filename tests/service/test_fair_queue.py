"""The order of pages: slots shared among jobs, sites and calls, and the reported waiting times."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake_service.config import Access
from weblake_service.fair_queue import NO_JOB, FairQueue, largest_share
from weblake_service.jobs import job_records, page_queue
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_sources import BatchSource
from weblake_service.store.database import Store

JOB = "00000000-0000-4000-8000-000000000001"


async def order(room: int, requests: list[tuple[str, str]]) -> list[str]:
    """Return the order in which requests (group, site) get a slot, of which one is released at a time."""
    queue, got, open_ = FairQueue(lambda team: room), [], asyncio.Event()

    async def wish(group: str, site: str) -> None:
        async with queue.acquire("team", site, group):
            got.append(group)
            await open_.wait()

    tasks = [asyncio.create_task(wish(*one)) for one in requests]
    await asyncio.sleep(0)
    open_.set()
    await asyncio.gather(*tasks)
    assert queue.in_use("team") == 0
    return got


def test_jobs_are_scheduled_round_robin_and_single_calls_first() -> None:
    requests = [("big", "a")] * 5 + [("small", "b"), ("small", "b"), (NO_JOB, "c")]
    assert asyncio.run(order(1, requests)) == ["big", NO_JOB, "big", "small", "big", "small", "big", "big"]


def test_one_site_gets_at_most_seven_eighths_of_the_slots() -> None:
    async def main() -> None:
        queue = FairQueue(lambda team: 8)
        slow = [asyncio.create_task(hold(queue, "slow.test")) for _ in range(20)]
        await asyncio.sleep(0)
        assert queue.in_use("team") == largest_share(8) == 7
        async with asyncio.timeout(60), queue.acquire("team", "fast.test", "other") as waited:
            assert not waited
            assert queue.in_use("team") == 8
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert queue.in_use("team") == 0

    async def hold(queue: FairQueue, site: str) -> None:
        async with queue.acquire("team", site, "job"):
            await asyncio.Event().wait()

    asyncio.run(main())


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.sampled_from(["", "x", "y"]), st.sampled_from("ab"), st.booleans()), max_size=30),
)
def test_slots_are_never_overdrawn_or_lost_on_cancellation(room: int, requests: list[tuple[str, str, bool]]) -> None:
    async def main() -> None:
        queue, inside, most, served = FairQueue(lambda team: room), 0, 0, 0

        async def wish(group: str, site: str) -> None:
            nonlocal inside, most, served
            async with queue.acquire("team", site, group):
                inside += 1
                most = max(most, inside)
                try:
                    await asyncio.sleep(0)
                    served += 1
                finally:
                    inside -= 1

        tasks = [asyncio.create_task(wish(group, site)) for group, site, _ in requests]
        await asyncio.sleep(0)
        for task, (_, _, gives_up) in zip(tasks, requests, strict=True):
            if gives_up:
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert most <= room
        assert queue.in_use("team") == 0
        assert served >= sum(not gives_up for _, _, gives_up in requests)

    asyncio.run(main())


def test_a_slow_site_does_not_hold_up_another_job_or_a_single_call(make_bench: Any) -> None:
    bench = make_bench(concurrency=8)
    slow, fast = [f"http://slow.test/{n}" for n in range(40)], [f"http://fast.test/{n}" for n in range(20)]
    bench.web.held.update(slow)
    held = bench.batch(*slow)
    bench.until(lambda: bench.web.flying == 7)
    assert bench.wait_until_ended(bench.batch(*fast))["completed"] == 20
    assert bench.http.post("/v2/scrape", json={"url": "http://fast.test/alone"}).status_code == 200
    assert bench.status(held)["completed"] == 0
    bench.web.held.clear()
    assert bench.wait_until_ended(held)["completed"] == 40


def test_pages_report_whether_and_how_long_they_waited(make_bench: Any) -> None:
    bench = make_bench(concurrency=4)
    bench.web.held.add("http://site.test/0")
    job = bench.batch(*(f"http://site.test/{n}" for n in range(6)), maxConcurrency=2, maxAge=0)
    bench.until(lambda: bench.status(job)["completed"] == 5)
    bench.web.held.clear()
    told = {one["metadata"]["sourceURL"][-1]: one["metadata"] for one in bench.wait_until_ended(job)["data"]}
    assert [told[name]["concurrencyLimited"] for name in "012345"] == [False] * 2 + [True] * 4
    assert "concurrencyQueueDurationMs" not in told["0"]
    assert all(isinstance(told[name]["concurrencyQueueDurationMs"], int) for name in "2345")


def test_a_batch_is_read_from_the_database_in_parts() -> None:
    async def main() -> None:
        store = Store()
        urls = [(f"http://site.test/{n}", 0) for n in range(1000)]

        def begin(db: Any) -> None:
            job_records.create(db, NewJob(JOB, "batch_scrape", Access("t", "k"), urls[0][0], 1.0))
            page_queue.add(db, JOB, urls, 1.0)

        await store.write(begin)
        source, taken = BatchSource(store, JOB, 10), []
        while await source.refill():
            assert len(source._waiting) <= 40
            while (page := source.take()) is not None:
                taken.append((page.place, page.url))
        assert taken == [(n + 1, url) for n, (url, _) in enumerate(urls)]
        assert not await source.refill()
        await store.write(partial(page_queue.add, job_id=JOB, pages=[("http://site.test/more", 0)], at=2.0))
        assert not await source.refill()
        source.on_appended()
        assert await source.refill()
        more = source.take()
        assert more is not None
        assert (more.place, more.pages_ahead) == (1001, 1000)
        store.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", [None, 3])
def test_pages_appended_to_a_running_job_come_last(make_bench: Any, seed: int | None) -> None:
    bench = make_bench(seed=seed)
    bench.web.held.add("http://site.test/1")
    job = bench.batch(*(f"http://site.test/{n}" for n in range(3)))
    for number in range(3, 60, 19):
        assert bench.batch(*(f"http://site.test/{n}" for n in range(number, number + 19)), appendToId=job) == job
    bench.web.held.clear()
    status = bench.wait_until_ended(job)
    found = [document["metadata"]["sourceURL"] for document in status["data"]]
    assert (status["total"], status["completed"]) == (60, 60)
    assert sorted(found) == sorted(f"http://site.test/{n}" for n in range(60))
    if seed is not None:
        assert found == [f"http://site.test/{n}" for n in range(60)]
