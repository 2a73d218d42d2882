"""With a seed, two services give the same responses to the same calls, however long each page takes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fake_web
import pytest

from weblake_service.page_failure import PageFailure

HOME = "http://site.test/"
TIMES = {"createdAt", "completedAt", "duration", "expiresAt", "timestamp", "concurrencyQueueDurationMs", "created_at"}
TIMES |= {"cachedAt"}


class JitteryWeb(fake_web.FakeWeb):
    """A site of 40 pages with random durations."""

    def __init__(self, chance: int) -> None:
        super().__init__()
        self.chance = random.Random(chance)
        pages = [f"{HOME}{number}" for number in range(40)]
        self.links = {HOME: pages[:9], **{url: pages[n * 3 % 40 : n * 3 % 40 + 5] for n, url in enumerate(pages)}}
        self.finals = {pages[4]: pages[12], pages[20]: pages[21]}
        self.failures = {url: PageFailure("SCRAPE_SITE_ERROR", "down") for url in (pages[5], pages[17])}
        self.blocked = {pages[7], pages[8]}

    async def scrape(self, url: str, options: Mapping[str, object]) -> Any:
        await asyncio.sleep(self.chance.uniform(0, 0.01))
        return await super().scrape(url, options)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(entry) for name, entry in value.items() if name not in TIMES}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value


def job_responses(bench: Any, address: str) -> str:
    """Return everything that the API says about a job, as text, without times and the service's URL."""
    chunks = []
    following = f"{bench.service.url}{address}?limit=7"
    while following:
        chunks.append(bench.http.get(following).json())
        following = chunks[-1]["next"]
    chunks.append(bench.http.get(f"{address}/errors").json())
    return json.dumps(without_times(chunks)).replace(bench.service.url, "")


def calls(bench: Any) -> list[str]:
    """Make the same calls one after the other, and return the responses."""
    crawl = bench.crawl(HOME, limit=30)
    bench.wait_until_ended(crawl, "crawl")
    batch = bench.batch(*(f"{HOME}{number % 25}" for number in range(40)))
    bench.wait_until_ended(batch)
    single = bench.http.post("/v2/scrape", json={"url": f"{HOME}1"}).json()
    activity = bench.http.get("/v2/team/activity").json()
    return [
        job_responses(bench, f"/v2/crawl/{crawl}"),
        job_responses(bench, f"/v2/batch/scrape/{batch}"),
        single["scrape_id"],
        json.dumps(without_times(activity["data"])),
    ]


@pytest.mark.system
def test_two_services_with_one_seed_give_the_same_responses(make_bench: Any) -> None:
    one, two, other = (calls(make_bench(web=JitteryWeb(n), seed=seed)) for n, seed in ((1, 4), (2, 4), (3, 5)))
    assert one == two
    assert one[2] != other[2]


@pytest.mark.system
@pytest.mark.parametrize("kind", ["crawl", "batch/scrape"])
def test_a_restart_does_not_change_seeded_responses(make_bench: Any, tmp_path: Path, kind: str) -> None:
    replies = []
    for restarts in (0, 2):
        web = JitteryWeb(restarts)
        db = tmp_path / f"{restarts}.db"
        bench = make_bench(db, web=web, seed=4)
        job = bench.crawl(HOME, limit=30) if kind == "crawl" else bench.batch(*(f"{HOME}{n}" for n in range(40)))
        for number in range(restarts):
            bench.until(lambda bench=bench, n=number, job=job: bench.status(job, kind)["completed"] > 5 * n)
            bench.service.stop()
            bench = make_bench(db, web=web, seed=4)
        bench.wait_until_ended(job, kind)
        replies.append(job_responses(bench, f"/v2/{kind}/{job}"))
    assert replies[0] == replies[1]


def test_without_a_seed_pages_are_returned_as_they_complete(bench: Any) -> None:
    bench.web.held.add(f"{HOME}0")
    job = bench.batch(f"{HOME}0", f"{HOME}1")
    bench.until(lambda: bench.status(job)["completed"] == 1)
    bench.web.held.clear()
    found = [document["metadata"]["sourceURL"] for document in bench.wait_until_ended(job)["data"]]
    assert found == [f"{HOME}1", f"{HOME}0"]
