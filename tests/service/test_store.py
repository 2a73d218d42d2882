"""The database: transactions, group commits, snapshots, the lock, and consistent records."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weblake.errors import StorageRefused
from weblake_service.clock import Clock, iso, iso_seconds, month_bounds
from weblake_service.config import Access
from weblake_service.jobs import job_records, page_cache, page_queue, webhook_queue
from weblake_service.jobs.page_outcomes import Failed, Stored
from weblake_service.jobs.page_queue import QueuedPage
from weblake_service.store import accounts
from weblake_service.store.database import DatabaseLocked, Store
from weblake_service.web.fetch import FetchedResponse

JOB = "00000000-0000-4000-8000-000000000001"
#: The limits of concurrent webhooks.
LIMITS = {"max_per_receiver": 10, "max_concurrent": 10}
ACCESS = Access("team", "key")


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = Store(":memory:" if request.param == "memory" else tmp_path / "service.db")
    yield opened
    opened.close()


def put(name: str, value: int) -> Callable[[sqlite3.Connection], None]:
    return lambda db: accounts.count(db, name, value)


def test_a_failed_write_is_rolled_back_without_its_group(store: Store) -> None:
    def fail(db: sqlite3.Connection) -> None:
        accounts.count(db, "bad")
        raise KeyError("no")

    async def go() -> list[object]:
        writes = [store.write(put("a", 1)), store.write(fail), store.write(put("b", 2))]
        return await asyncio.gather(*writes, return_exceptions=True)

    outcomes = asyncio.run(go())
    assert [type(outcome) for outcome in outcomes] == [type(None), KeyError, type(None)]
    assert store.write_now(accounts.counts) == {"a": 1, "b": 2}


def test_a_full_disk_fails_every_write_of_its_group_and_later_writes_succeed(tmp_path: Path) -> None:
    store = Store(tmp_path / "service.db")
    try:
        store.write_now(lambda db: db.execute("PRAGMA max_page_count=60").fetchall())

        def fill(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO page_history (key, scraped, body) VALUES (?, 0, ?)", (b"x", b"y" * 2_000_000))

        async def go() -> list[object]:
            return await asyncio.gather(store.write(put("a", 1)), store.write(fill), return_exceptions=True)

        _, full = asyncio.run(go())
        assert isinstance(full, sqlite3.Error)
        store.write_now(put("b", 1))
        counted = store.write_now(accounts.counts)
        assert counted["b"] == 1
    finally:
        store.close()


def test_read_connections_cannot_write(tmp_path: Path) -> None:
    store = Store(tmp_path / "service.db")
    try:
        with pytest.raises(sqlite3.OperationalError):
            asyncio.run(store.read(put("a", 1)))
    finally:
        store.close()


def test_a_closed_store_refuses_writes(store: Store) -> None:
    store.close()
    with pytest.raises(StorageRefused):
        store.write_now(put("a", 1))
    store.close()


def test_commits_are_flushed_and_survive_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import os,sys\nfrom weblake_service.store.database import Store\nfrom weblake_service.store import accounts\n"
        "s=Store(sys.argv[1])\n"
        "print(s.write_now(lambda db: db.execute('PRAGMA synchronous').fetchone()[0]),"
        " s.write_now(lambda db: db.execute('PRAGMA journal_mode').fetchone()[0]))\n"
        "s.write_now(lambda db: accounts.count(db,'a'))\nsys.stdout.flush()\nos.kill(os.getpid(),9)"
    )
    db = tmp_path / "service.db"
    done = subprocess.run([sys.executable, "-c", code, str(db)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (-9, ["2", "wal"])
    store = Store(db)
    assert store.write_now(accounts.counts) == {"a": 1}
    store.close()


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    db = tmp_path / "service.db"
    store = Store(db)
    code = "import sys\nfrom weblake_service.store.database import Store\nStore(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(db)], capture_output=True, text=True, check=False)
    assert "DatabaseLocked" in done.stderr
    with pytest.raises(DatabaseLocked, match="already serves"):
        Store(db)
    store.close()
    Store(db).close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    code = (
        "import os,sys\nfrom weblake_service.store.database import Store\nstore = Store(sys.argv[1])\n"
        "if os.fork() == 0:\n    print('forked', flush=True)\n    sys.stdin.readline()\n    os._exit(0)\n"
        "os._exit(0)"
    )
    db = tmp_path / "service.db"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(db)], text=True, **pipes) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forked\n"
        assert parent.wait(120) == 0
        Store(db).close()


def test_the_database_file_is_private(tmp_path: Path) -> None:
    store = Store(tmp_path / "data" / "service.db")
    store.write_now(put("a", 1))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    assert {modes[name] for name in modes if name != "service.db.lock"} == {0o600}
    assert len(modes) == 4
    store.close()


def test_other_files_are_refused_and_unchanged(tmp_path: Path) -> None:
    garbage, newer = tmp_path / "garbage.db", tmp_path / "newer.db"
    garbage.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageRefused, match="cannot be opened"):
        Store(garbage)
    assert garbage.read_bytes().startswith(b"not a database")
    with sqlite3.connect(newer) as other:
        other.execute("PRAGMA user_version=99")
    other.close()
    for _ in range(2):
        with pytest.raises(StorageRefused, match="another version"):
            Store(newer)


def new_job(store: Store, kind: str = "batch_scrape", pages: int = 2) -> list[QueuedPage]:
    job = job_records.NewJob(
        JOB, kind, ACCESS, "http://a.test/", 100.0, expected=pages, webhook={"url": "http://r.test/"}
    )

    def work(db: sqlite3.Connection) -> list[QueuedPage]:
        job_records.create(db, job)
        page_queue.add(db, JOB, [(f"http://a.test/{n}", 0) for n in range(pages)], 100.0)
        return page_queue.waiting(db, JOB)

    return store.write_now(work)


def stored(name: str = "s") -> Stored:
    return Stored(name, b'{"metadata":{}}', 1)


@pytest.mark.parametrize("kind", ["batch_scrape", "crawl"])
def test_a_page_is_completed_once(store: Store, kind: str) -> None:
    first, second = new_job(store, kind)
    for _ in range(3):
        store.write_now(lambda db: job_records.finish_page(db, JOB, first, stored(), 101.0))
    store.write_now(lambda db: job_records.finish_page(db, JOB, first, Failed("X", "late"), 101.0))
    job = store.write_now(lambda db: job_records.get(db, JOB))
    assert (job["documents"], job["failed"], job["credits"], job["known"]) == (1, 0, 1, 1)
    assert store.write_now(accounts.counts)["pages_billed"] == 1
    left = store.write_now(lambda db: page_queue.waiting(db, JOB))
    assert [page.place for page in left] == [second.place]


def test_a_job_ends_with_its_last_page_and_is_announced_once(store: Store) -> None:
    first, second = new_job(store)
    assert store.write_now(lambda db: job_records.end(db, JOB, "completed", 102.0)) is False
    for page in (first, second):
        store.write_now(lambda db, page=page: job_records.finish_page(db, JOB, page, stored(f"s{page.place}"), 101.0))
    for _ in range(2):
        assert store.write_now(lambda db: job_records.end(db, JOB, "completed", 102.0)) is True
    assert len(store.write_now(lambda db: webhook_queue.ready(db, 200.0, {}, **LIMITS))) == 1


def test_a_cancelled_job_takes_no_more_pages(store: Store) -> None:
    first, _ = new_job(store)
    store.write_now(lambda db: job_records.end(db, JOB, "cancelled", 102.0, drained=False))
    assert store.write_now(lambda db: job_records.finish_page(db, JOB, first, stored(), 103.0)) is None
    assert store.write_now(accounts.counts).get("pages_billed") is None
    assert store.write_now(lambda db: job_records.waiting(db, "team")) == 0
    assert store.write_now(lambda db: webhook_queue.ready(db, 200.0, {}, **LIMITS)) == []


def test_expired_jobs_are_deleted_completely(store: Store) -> None:
    first, second = new_job(store)
    store.write_now(lambda db: job_records.finish_page(db, JOB, first, stored(), 101.0))
    store.write_now(lambda db: job_records.finish_page(db, JOB, second, Failed("X", "no"), 101.0))
    store.write_now(lambda db: job_records.end(db, JOB, "completed", 102.0))
    for at, left in ((102.0 + job_records.JOB_LIFETIME_S - 1, 1), (102.0 + job_records.JOB_LIFETIME_S, 0)):
        store.write_now(lambda db, at=at: job_records.drop_expired(db, at))
        for table in ("jobs", "documents", "page_errors"):
            rows = store.write_now(lambda db, table=table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            assert rows == left, table


def test_the_cache_keeps_the_newest(store: Store) -> None:
    for number in range(10):
        url = f"http://a.test/{number}"
        entry = page_cache.pack(url, {}, FetchedResponse(url, 200, body=b"x"))
        store.write_now(lambda db, entry=entry, number=number: page_cache.store(db, entry, 100.0 + number))
    store.write_now(lambda db: page_cache.evict(db, 3))
    left = store.write_now(lambda db: [row["stored"] for row in db.execute("SELECT stored FROM page_cache ORDER BY 1")])
    assert left == [107.0, 108.0, 109.0]


def test_times_and_months_are_computed_in_utc() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(1.9994) == "1970-01-01T00:00:01.999Z"
    assert iso_seconds(1.9994) == "1970-01-01T00:00:01.000Z"
    start, end = month_bounds("2026-12")
    assert (iso(start), iso(end)) == ("2026-12-01T00:00:00.000Z", "2026-12-31T23:59:59.999Z")


def test_the_clock_never_runs_backwards() -> None:
    clock, rung = Clock(lambda: 50.0), []
    clock.listen(lambda: rung.append(1))
    clock.advance(10)
    assert (clock.now(), clock.offset, rung) == (60.0, 10.0, [1])
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError):
            clock.advance(bad)
