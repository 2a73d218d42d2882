"""The ledger as a watcher reads it: everything once, only what is new, and no job of ours taken for another's."""

from __future__ import annotations

import secrets
import time
from datetime import datetime, timedelta, timezone

import pytest

from weblake.dataset.layout import LEDGER
from weblake.dataset.records import Intent, Job, Start
from weblake.jobs.ended_jobs import ListedJob
from weblake.loads.ledger_watch import LedgerNews
from weblake.loads.publishing import Dataset
from weblake.receipt import Receipt
from weblake.storage import Storage, open_storage

URL = "https://example.com/a"


def uuid() -> str:
    text = secrets.token_hex(16)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"


def begun(dataset: Dataset, *, at: datetime | None = None, kind: str = "batch_scrape") -> str:
    load_id = secrets.token_hex(8)
    when = (at or datetime.now(timezone.utc)).isoformat()
    dataset.ledger.record_intent(
        Intent(load_id=load_id, kind=kind, endpoint=kind, created_at=when, request_sha256="", first_target=URL)
    )
    return load_id


def started(dataset: Dataset, load_id: str) -> Start:
    start = Start(load_id=load_id, n=1, key="test-key", at=datetime.now(timezone.utc).isoformat())
    dataset.ledger.record_start(start)
    return start


def test_what_has_landed_and_whose_jobs_there_are(storage: Storage) -> None:
    dataset = Dataset.at(storage)
    news = LedgerNews(dataset)
    assert news.refresh()
    assert (dict(news.landed_loads()), news.holds("batch_scrape", uuid())) == ({}, False)
    running, landed = begun(dataset), begun(dataset)
    jobs = {load_id: uuid() for load_id in (running, landed)}
    for load_id, job_id in jobs.items():
        started(dataset, load_id)
        now = datetime.now(timezone.utc).isoformat()
        dataset.ledger.own("batch_scrape", job_id, load_id)
        dataset.ledger.record_job(Job(load_id=load_id, job_id=job_id, kind="batch_scrape", at=now))
    at = "2026-11-21T06:00:00+00:00"
    receipt = Receipt(load_id=landed, kind="batch_scrape", job_id=jobs[landed])
    dataset.ledger.record_done(landed, receipt.to_dict(), at=at)
    assert news.refresh()
    when = round(datetime.fromisoformat(at).timestamp() * 1000)
    assert (dict(news.landed_loads()), news.count) == ({landed: when}, 1)
    assert dict(news.landed_loads(after=when - 1)) == {landed: when}
    assert dict(news.landed_loads(after=when)) == {}
    assert [news.holds("batch_scrape", job_id.upper()) for job_id in (*jobs.values(), uuid())] == [True, True, False]


def test_only_new_records_are_read(local_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset.at(open_storage(local_root))
    news, read = LedgerNews(dataset), list[str]()
    whole = type(dataset.storage).read

    def counted(storage: Storage, name: str) -> bytes | None:
        read.extend([name] if name.startswith(LEDGER) else ())
        return whole(storage, name)

    monkeypatch.setattr(type(dataset.storage), "read", counted)
    for expected in (1, 0, 1, 0):
        if expected:
            load_id = secrets.token_hex(8)
            dataset.ledger.record_done(load_id, Receipt(load_id=load_id, kind="crawl", job_id=uuid()).to_dict())
            read.clear()
        assert news.refresh()
        assert len(read) == expected
        read.clear()
    assert news.count == 2


def test_a_long_ledger_is_read_in_pieces(local_root: str) -> None:
    dataset = Dataset.at(open_storage(local_root))
    for _ in range(3):
        load_id = secrets.token_hex(8)
        dataset.ledger.record_done(load_id, Receipt(load_id=load_id, kind="crawl", job_id=uuid()).to_dict())
    news = LedgerNews(dataset)
    assert news.refresh(until=time.monotonic() - 1) is False
    assert news.count < 3
    assert news.refresh(until=time.monotonic() + 60) is True
    assert news.count == 3


def test_a_job_may_be_ours_while_a_start_is_unanswered(storage: Storage) -> None:
    dataset = Dataset.at(storage)
    news, created = LedgerNews(dataset), round(time.time() * 1000)
    load_id = begun(dataset)
    job = ListedJob(uuid(), created, URL)
    assert news.refresh()
    assert not news.may_be_ours("batch_scrape", job)  # nothing has been sent
    start = started(dataset, load_id)
    assert news.refresh()
    assert news.may_be_ours("batch_scrape", job)
    assert news.may_be_ours("batch_scrape", ListedJob(uuid(), created, None))
    assert not news.may_be_ours("crawl", job)
    assert not news.may_be_ours("batch_scrape", ListedJob(uuid(), created, f"{URL}/other"))
    assert not news.may_be_ours("batch_scrape", ListedJob(uuid(), created - 3_600_000, URL))
    dataset.ledger.void_start(start, "a test says so")
    assert news.refresh()
    assert not news.may_be_ours("batch_scrape", job)


def test_a_start_that_cannot_be_looked_up_any_more_holds_nothing_back(local_root: str) -> None:
    dataset = Dataset.at(open_storage(local_root))
    started(dataset, begun(dataset, at=datetime.now(timezone.utc) - timedelta(hours=26)))
    news = LedgerNews(dataset)
    assert news.refresh()
    assert not news.may_be_ours("batch_scrape", ListedJob(uuid(), round(time.time() * 1000), URL))


def test_a_damaged_record_is_told_once_and_leaves_all_other_loads_alone(local_root: str) -> None:
    dataset = Dataset.at(open_storage(local_root))
    whole, damaged = secrets.token_hex(8), secrets.token_hex(8)
    for load_id in (whole, damaged):
        dataset.ledger.record_done(load_id, Receipt(load_id=load_id, kind="crawl", job_id=uuid()).to_dict())
    name = f"{LEDGER}/{damaged}.done.json"
    record = dataset.storage.read(name)
    assert record is not None
    dataset.storage.delete(name)
    dataset.storage.create(name, b"{")
    news, told = LedgerNews(dataset), list[str]()
    for _ in range(2):
        assert news.refresh(warn=told.append)
        assert [load_id for load_id, _ in news.landed_loads()] == [whole]
    assert len(told) == 1
    assert name in told[0]
    dataset.storage.delete(name)
    dataset.storage.create(name, record)
    assert news.refresh(warn=told.append)
    assert news.count == 2


@pytest.mark.parametrize("damaged", ["", ".start-1"])
def test_a_start_with_a_damaged_record_still_holds_its_job_back(local_root: str, damaged: str) -> None:
    """Whatever can be read of it says which jobs may be its own; both records at once are needed to lose that."""
    dataset = Dataset.at(open_storage(local_root))
    load_id = begun(dataset)
    started(dataset, load_id)
    name = f"{LEDGER}/{load_id}{damaged}.json"
    dataset.storage.delete(name)
    dataset.storage.create(name, b"{")
    news, told = LedgerNews(dataset), list[str]()
    assert news.refresh(warn=told.append)
    assert name in told[0]
    created = round(time.time() * 1000)
    assert news.may_be_ours("batch_scrape", ListedJob(uuid(), created, URL))
    assert not news.may_be_ours("batch_scrape", ListedJob(uuid(), created - 3_600_000, URL))
