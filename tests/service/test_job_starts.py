"""Starts of jobs: fast checks of URLs, ids from a seed, and unreadable jobs."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any

import fake_web
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake_service.jobs import job_records
from weblake_service.page_failure import PageFailure
from weblake_service.routes.target_urls import read_target_url, split_urls
from weblake_service.store.database import Store
from weblake_service.web.addresses import with_scheme

HOME = "http://site.test/"
HOSTS = ["site.test", "localhost", "a.local", "x.internal", "10.0.0.1", "127.0.0.1", "127.1", "xn--bcher-kva.de"]
HOSTS += [
    "a-b.de",
    "A.de",
    "a_b.de",
    "-a.de",
    "a-.de",
    "a..de",
    "a.de.",
    "nodot",
    "a.localhost",
    "printer.home.arpa",
    "[::1]",
]


@given(
    st.sampled_from(["http://", "https://", "HTTP://", "ftp://", ""]),
    st.sampled_from(HOSTS) | st.from_regex(r"[a-z0-9.-]{1,40}", fullmatch=True),
    st.sampled_from(["", ":80", ":0", ":99999", ":x"]),
    st.sampled_from(["", "/", "?q", "#f", "/ä"]) | st.from_regex(r"[/?#][!-~]{0,30}", fullmatch=True),
    st.booleans(),
)
def test_the_fast_path_for_plain_urls_gives_the_same_result(
    a: str, b: str, c: str, d: str, allow_private: bool
) -> None:
    url = a + b + c + d
    try:
        read_target_url(url, allow_private=allow_private)
        wanted = [with_scheme(url)]
    except PageFailure:
        wanted = []
    assert split_urls([url], allow_private=allow_private)[0] == wanted


def corrupt(store: Store, column: str, value: bytes) -> None:
    def work(db: sqlite3.Connection) -> None:
        db.execute(f"UPDATE jobs SET {column} = ? WHERE kind = 'crawl'", (value,))

    store.write_now(work)


@pytest.mark.parametrize(
    ("column", "value"), [("options", b"{"), ("plan", b"[]"), ("plan", b'{"include_paths": ["("]}'), ("url", b"ftp:x")]
)
def test_an_unreadable_job_fails_only_itself(make_bench: Any, tmp_path: Path, column: str, value: bytes) -> None:
    bench = make_bench(tmp_path / "service.db")
    bench.web.held.add("*")
    batch, crawl = bench.batch(HOME), bench.crawl(HOME)
    bench.until(lambda: bench.web.flying == 2)
    bench.service.stop()
    store = Store(tmp_path / "service.db")
    corrupt(store, column, value if column != "url" else "ftp:x")  # type: ignore[arg-type]
    store.close()
    later = make_bench(tmp_path / "service.db")
    assert later.wait_until_ended(batch)["completed"] == 1
    status = later.wait_until_ended(crawl, "crawl")
    assert (status["status"], status["success"]) == ("failed", False)
    assert "can no longer be read" in status["error"]


def test_a_job_waits_for_a_database_that_another_program_has_locked(make_bench: Any, tmp_path: Path) -> None:
    bench = make_bench(tmp_path / "service.db")
    bench.service._call(lambda parts: parts.store.write(lambda db: db.execute("PRAGMA busy_timeout=50").fetchone()))
    bench.web.held.add("*")
    job = bench.batch(*(f"{HOME}{number}" for number in range(5)))
    bench.until(lambda: bench.web.flying == 5)
    other = sqlite3.connect(tmp_path / "service.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    bench.web.held.clear()
    # The pages cannot be recorded, and the job starts again with all of them.
    bench.until(lambda: len(bench.web.asked) >= 6 or bench.web.flying == 0)
    other.execute("ROLLBACK")
    other.close()
    status = bench.wait_until_ended(job)
    assert (status["status"], status["completed"], status["creditsUsed"]) == ("completed", 5, 5)


@pytest.mark.parametrize("before_the_restart", [True, False])
def test_a_cancelled_job_stays_cancelled_after_a_restart(
    make_bench: Any, tmp_path: Path, before_the_restart: bool
) -> None:
    bench = make_bench(tmp_path / "service.db")
    bench.web.held.add("*")
    job = bench.batch(*(f"{HOME}{number}" for number in range(30)))
    bench.until(lambda: bench.web.flying >= 9)
    if before_the_restart:
        bench.http.delete(f"/v2/batch/scrape/{job}")
    bench.service.stop()
    later = make_bench(tmp_path / "service.db", web=bench.web)
    if not before_the_restart:
        assert later.http.delete(f"/v2/batch/scrape/{job}").json() == {"status": "cancelled"}
    later.service.stop()
    bench.web.held.clear()
    last = make_bench(tmp_path / "service.db")
    assert last.status(job)["status"] == "cancelled"
    assert last.web.asked == []
    assert last.service.counts().get("pages_billed", 0) == 0


def test_pages_in_progress_are_not_billed_after_a_cancel(bench: Any) -> None:
    bench.web.held.add("*")
    job = bench.crawl(HOME)
    bench.until(lambda: bench.web.flying == 1)
    assert bench.http.delete(f"/v2/crawl/{job}").json() == {"status": "cancelled"}
    status = bench.status(job, "crawl")
    assert (status["status"], status["total"], status["creditsUsed"]) == ("cancelled", 0, 0)
    bench.web.held.clear()
    assert bench.http.get("/v2/crawl/active").json()["crawls"] == []
    assert bench.service.counts().get("pages_billed", 0) == 0
    queue = asyncio.run(_queued(bench, job))
    assert queue == 0


class SlowSitemap(fake_web.FakeWeb):
    async def sitemap(self, url: str, limit: int) -> list[str]:
        while "sitemap" in self.held:  # noqa: ASYNC110 - the test releases it
            await asyncio.sleep(0.001)
        return [f"{url}{number}" for number in range(5)]


def test_a_crawl_that_is_cancelled_while_its_sitemap_is_read_leaves_no_queued_page(
    make_bench: Any, tmp_path: Path
) -> None:
    bench = make_bench(tmp_path / "service.db", web=SlowSitemap())
    bench.web.held.add("sitemap")
    job = bench.crawl(HOME)

    async def cancel_just_before_the_pages_are_queued(parts: Any) -> None:
        begun, free = threading.Event(), threading.Event()

        def hold_the_writer(db: sqlite3.Connection) -> None:
            begun.set()
            assert free.wait(20)

        holding = asyncio.create_task(parts.store.write(hold_the_writer))
        await asyncio.to_thread(begun.wait, 20)
        end = partial(job_records.end, job_id=job, status="cancelled", at=parts.clock.now(), drained=False)
        cancelling = asyncio.create_task(parts.jobs.cancel(job, end))
        await asyncio.sleep(0)
        bench.web.held.clear()
        while parts.store._queue.qsize() < 2:  # noqa: ASYNC110 - the queue belongs to a thread
            await asyncio.sleep(0.001)
        free.set()
        await asyncio.gather(holding, cancelling)

    bench.service._call(cancel_just_before_the_pages_are_queued)
    assert bench.status(job, "crawl")["status"] == "cancelled"
    assert asyncio.run(_queued(bench, job)) == 0
    assert bench.web.asked == []


async def _queued(bench: Any, job: str) -> int:
    def work(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT count(*) FROM pages WHERE job = ?", (job,)).fetchone()[0])

    return int(bench.service._call(lambda parts: parts.store.read(work)))
