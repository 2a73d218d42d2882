"""Jobs continue after their process was killed, stopped, or ended with its program."""

from __future__ import annotations

import signal
import sqlite3
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from killable_service import service_process
from polling import until

from weblake_service.config import ServiceConfig

HEADERS = {"Authorization": "Bearer test-key", "x-idempotency-key": "0e7c7d9e-2f3f-4cf0-8a52-6a3b8f2f9f11"}
URLS = [f"http://site.test/{n}" for n in range(60)]


def everything(client: httpx.Client, address: str) -> list[str]:
    found: list[str] = []
    while address:
        chunk = client.get(address).json()
        found += [document["metadata"]["sourceURL"] for document in chunk["data"]]
        address = chunk["next"]
    return found


def whole(client: httpx.Client, address: str) -> dict[str, Any]:
    return until(lambda: (status := client.get(address).json())["status"] != "scraping" and status)


def at_least(client: httpx.Client, address: str, pages: int) -> list[dict[str, Any]]:
    return until(lambda: len(got := client.get(address).json()["data"]) >= pages and got)


@pytest.mark.system
def test_a_killed_service_resumes_its_jobs(tmp_path: Path) -> None:
    db, log = tmp_path / "service.db", tmp_path / "asked"
    home = "http://site.test/"
    bodies = {
        "batch/scrape": {"urls": URLS, "maxAge": 0},
        "crawl": {"url": home, "limit": 60, "scrapeOptions": {"maxAge": 0}},
    }
    pages = {"batch/scrape": URLS, "crawl": [home, *URLS[:59]]}
    ids: dict[str, set[str]] = {kind: set() for kind in bodies}
    read: dict[str, list[dict[str, Any]]] = {}

    def start(client: httpx.Client, kind: str) -> str:
        headers = {"x-idempotency-key": str(uuid.uuid5(uuid.NAMESPACE_URL, kind))}
        ids[kind].add(client.post(f"/v2/{kind}", json=bodies[kind], headers=headers).json()["id"])
        (job,) = ids[kind]
        return f"/v2/{kind}/{job}"

    for goal in (20, 40):
        with service_process(db, log, headers=HEADERS) as (child, client):
            addresses = {kind: start(client, kind) for kind in bodies}
            read = {kind: at_least(client, address, goal) for kind, address in addresses.items()}
            child.send_signal(signal.SIGKILL)
            child.wait(20)
    with service_process(db, log, headers=HEADERS) as (_, client):
        statuses = {kind: whole(client, start(client, kind)) for kind in bodies}
        counts = client.get("/_weblake/counts").json()["counts"]
        final = {kind: everything(client, address) for kind, address in addresses.items()}
    for kind, status in statuses.items():
        assert (status["status"], status["total"], status["completed"]) == ("completed", 60, 60)
        assert status["creditsUsed"] == 60
        assert sorted(final[kind]) == sorted(pages[kind])
        # Documents read before the last kill keep their positions.
        before = [document["metadata"]["sourceURL"] for document in read[kind]]
        assert before == final[kind][: len(before)]
        assert counts[f"{kind.replace('/', '_')}_started"] == 1
    assert counts["pages_billed"] == 120
    asked = Counter(log.read_text().split())
    assert set(asked) == {home, *URLS}
    # Each of the two jobs has at most so many pages unrecorded at each of the two kills.
    assert sum(asked.values()) <= 120 + 2 * len(bodies) * ServiceConfig().concurrency


@pytest.mark.system
def test_a_program_that_exits_without_stopping_loses_no_page(tmp_path: Path) -> None:
    db, log = tmp_path / "service.db", tmp_path / "asked"
    with service_process(db, log, headers=HEADERS) as (child, client):
        job = client.post("/v2/batch/scrape", json={"urls": URLS}).json()["id"]
        until(lambda: client.get(f"/v2/batch/scrape/{job}").json()["completed"] >= 10)
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.wait(120) == 0
    with service_process(db, log, headers=HEADERS) as (_, client):
        address = f"/v2/batch/scrape/{job}"
        status = whole(client, address)
        assert (status["completed"], status["total"]) == (60, 60)
        assert client.get(f"{address}/errors").json()["errors"] == []


def test_a_resumed_crawl_keeps_redirects_limits_and_blocked_pages(make_bench: Any, tmp_path: Path) -> None:
    db, home, moved = tmp_path / "service.db", "http://site.test/", "http://moved.test/en/"
    bench = make_bench(db)
    urls, target = [f"{moved}{n}" for n in range(30)], f"{moved}target"
    bench.web.finals = {home: moved, urls[0]: target}
    bench.web.links = {home: urls, urls[1]: [target]}
    bench.web.blocked = {urls[2], urls[3]}
    bench.web.held = {home, urls[1], *urls[6:]}
    job = bench.crawl(home, limit=12)
    bench.until(lambda: bench.web.flying == 1)
    bench.web.held.remove(home)
    # First 0 redirects to the target; only then 1 links to it. 2 and 3 are blocked, 4 and 5 are done, the rest waits.
    bench.until(lambda: bench.status(job, "crawl")["completed"] == 4)
    bench.web.held.remove(urls[1])
    bench.until(lambda: bench.status(job, "crawl")["completed"] == 5)
    bench.until(lambda: bench.web.flying == 7)
    bench.service.stop()
    later = make_bench(db, web=bench.web)
    bench.web.held.clear()
    status = later.wait_until_ended(job, "crawl")
    found = [document["metadata"]["sourceURL"] for document in status["data"]]
    assert sorted(found) == sorted([home, *urls[:2], *urls[4:13]])
    assert (status["total"], later.service.counts()["pages_billed"]) == (12, 12)
    assert later.http.get(f"/v2/crawl/{job}/errors").json()["robotsBlocked"] == urls[2:4]


def test_the_clock_offset_survives_a_restart(make_bench: Any, tmp_path: Path) -> None:
    bench = make_bench(tmp_path / "service.db")
    job = bench.batch(URLS[0])
    bench.wait_until_ended(job)
    bench.service.advance(23 * 3600)
    bench.service.stop()
    later = make_bench(tmp_path / "service.db")
    assert later.status(job)["completed"] == 1
    later.service.advance(2 * 3600)
    assert later.http.get(f"/v2/batch/scrape/{job}").status_code == 404


@pytest.mark.system
def test_a_full_disk_stops_a_job_until_there_is_space(make_bench: Any, tmp_path: Path) -> None:
    bench = make_bench(tmp_path / "service.db")
    bench.web.bodies = dict.fromkeys(URLS, "x" * 60_000)

    def limit(pages: int) -> None:
        def work(db: sqlite3.Connection) -> int:
            size = pages or db.execute("PRAGMA page_count").fetchone()[0] + 10
            return int(db.execute(f"PRAGMA max_page_count={size}").fetchone()[0])

        bench.service._call(lambda parts: parts.store.write(work))

    # Three pages are written before the disk is full: the others may all be in one write, which fails entirely.
    bench.web.held.update(URLS[3:])
    job = bench.batch(*URLS)
    bench.until(lambda: bench.status(job)["completed"] == 3)
    limit(0)
    bench.web.held.clear()
    refused = bench.until(lambda: (reply := bench.http.get("/health")).status_code == 503 and reply)
    assert "database or disk is full" in refused.json()["error"]
    urls = [f"http://site.test/{'x' * 2000}{n}" for n in range(500)]
    start = bench.http.post("/v2/batch/scrape", json={"urls": urls})
    assert (start.status_code, "full" in start.json()["error"], "Retry-After" in start.headers) == (503, True, True)
    assert bench.status(job)["status"] == "scraping"
    assert bench.http.get("/health").status_code == 503
    limit(1_000_000)
    status = bench.wait_until_ended(job)
    assert (status["status"], status["completed"], status["creditsUsed"]) == ("completed", 60, 60)
    assert bench.http.get("/health").json() == {"status": "ok"}
