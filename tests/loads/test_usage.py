"""Tests that concurrent runs merge activity without losing rows, interleaved at any step."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow.parquet as pq
import pytest
from catalogue import proves
from crash_steps import crash
from interrupted_storage import InterruptedStorage

from weblake.api.models import ActivityEntry, UsagePeriod
from weblake.dataset import layout
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.jobs.usage_reports import Report
from weblake.loads import usage
from weblake.loads.usage import PENDING
from weblake.receipt import LandedFile
from weblake.storage import Storage, open_storage

DAY, OTHER = "2026-11-20", "2026-11-18"


@pytest.fixture
def storage(any_root: str) -> Storage:
    return open_storage(any_root)


def land_activity(entries: Iterable[ActivityEntry], storage: Storage) -> list[LandedFile]:
    return usage.land_activity(entries, Dataset.at(storage))


def land_report(found: Report, storage: Storage, only: Collection[str] | None = None) -> list[LandedFile]:
    return usage.land_report(found, Dataset.at(storage), only)


def entries(*ids: str, day: str = DAY, endpoint: str = "scrape") -> list[ActivityEntry]:
    return [
        ActivityEntry(id=one, endpoint=endpoint, created_at=f"{day}T10:00:00.000Z", target=f"https://a.example/{one}")
        for one in ids
    ]


def ids(storage: Storage, day: str = DAY) -> list[str]:
    with storage.open_input(layout.activity_path(day)) as file:
        return [str(row["id"]) for row in pq.read_table(file).to_pylist()]


def memory() -> Storage:
    return open_storage(f"memory://{uuid.uuid4().hex}/lake")


def calls_of_one_run(base: Iterable[str]) -> int:
    storage = memory()
    land_activity(entries(*base), storage)
    counted = InterruptedStorage(storage, 0, lambda: None)
    land_activity(entries("mine"), counted)
    return counted.calls


def test_a_day_is_merged_by_id_and_its_records_stay_for_a_day(storage: Storage) -> None:
    first = land_activity(entries("a", "b"), storage)
    again = land_activity([*entries("b", "c"), *entries("x", day=OTHER)], storage)
    assert ids(storage) == ["a", "b", "c"]
    assert ids(storage, OTHER) == ["x"]
    assert [(file.path, file.rows) for file in first] == [(layout.activity_path(DAY), 2)]
    assert [(file.path, file.rows) for file in again] == [
        (layout.activity_path(OTHER), 1),
        (layout.activity_path(DAY), 3),
    ]
    assert [file.bytes for file in again] == [storage.find_size(file.path) for file in again]
    with storage.open_input(layout.activity_path(DAY)) as file:
        row = pq.read_table(file).to_pylist()[2]
    assert row == {
        "id": "c",
        "endpoint": "scrape",
        "api_version": None,
        "created_at": datetime(2026, 11, 20, 10, tzinfo=timezone.utc),
        "target": "https://a.example/c",
    }
    assert len(storage.list(PENDING)) == 3
    assert {name for name in storage.list("") if not name.startswith(PENDING)} == {file.path for file in again}


def test_a_run_records_only_what_the_day_lacks(storage: Storage) -> None:
    """The service lists a day of calls in each run: the records of a day must not hold all of them in each."""
    for names in ("ab", "abc", "abc", "abcd"):
        land_activity(entries(*names), storage)
    records = [json.loads(storage.read(name) or b"") for name in storage.list(PENDING)]
    recorded = [sorted(row["id"] for row in record.values()) for record in records]
    assert sorted(recorded) == [["a", "b"], ["c"], ["d"]]
    assert ids(storage) == ["a", "b", "c", "d"]


@pytest.mark.system
@proves(
    "1.6",
    at="src/weblake/loads/usage.py",
    line="        if merged and merged.issuperset(pending):",
    becomes="        if merged:",
)
def test_two_runs_interleaved_at_any_step_lose_nothing() -> None:
    calls = calls_of_one_run(["old"])
    assert calls > 6
    for nth in range(1, calls + 1):
        storage = memory()
        land_activity(entries("old"), storage)
        met = InterruptedStorage(storage, nth, lambda storage=storage: land_activity(entries("theirs"), storage))
        land_activity(entries("mine"), met)
        assert ids(storage) == ["mine", "old", "theirs"], f"at call {nth} of {calls}"


def test_a_run_that_dies_at_any_step_loses_nothing() -> None:
    calls = calls_of_one_run(["old"])
    for nth in range(1, calls + 1):
        storage = memory()
        land_activity(entries("old"), storage)
        before = len(storage.list(PENDING))
        with pytest.raises(KeyboardInterrupt):
            land_activity(entries("mine"), InterruptedStorage(storage, nth, crash))
        recorded = len(storage.list(PENDING)) > before
        land_activity(entries("next"), storage)
        assert ids(storage) == sorted(["next", "old"] + ["mine"] * recorded), f"at call {nth} of {calls}"


def test_many_concurrent_runs_lose_nothing(storage: Storage) -> None:
    names = [f"{number:02}" for number in range(6)]
    failed: list[BaseException] = []

    def run(name: str) -> None:
        try:
            land_activity(entries(name, endpoint=f"kind {name}"), storage)
        except Exception as error:  # noqa: BLE001  # told by the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert ids(storage) == names


@proves(
    "1.6",
    at="src/weblake/loads/usage.py",
    line="return [] if data is None else parquet.read_rows(BytesIO(data), name, schemas.ACTIVITY)",
    becomes="return [] if data is None else parquet.read_rows(storage.open_input(name), name, schemas.ACTIVITY)",
    case="s3",
)
def test_a_day_that_another_run_replaces_while_it_is_read_is_no_error(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open file of S3 is of one version, and fails when that is replaced before it is read."""
    land_activity(entries("old"), storage)
    read_rows, replaced = usage.parquet.read_rows, list[str]()

    def replaced_before(*args: Any) -> Any:
        if not replaced:
            replaced.append("once")
            land_activity(entries("other"), storage)
        return read_rows(*args)

    monkeypatch.setattr(usage.parquet, "read_rows", replaced_before)
    land_activity(entries("mine"), storage)
    assert ids(storage) == ["mine", "old", "other"]


def test_old_records_are_merged_and_dropped_also_those_of_a_run_that_died(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        land_activity(entries("lost?", day=OTHER), InterruptedStorage(storage, 4, crash))  # its record is there by then
    assert storage.list("activity") == []
    land_activity(entries("a"), storage)
    storage.create(f"{PENDING}/not ours", b"left alone")
    assert storage.list("activity") == [layout.activity_path(DAY)]

    monkeypatch.setattr(usage, "RECORD_LIFETIME", timedelta(seconds=-2))
    files = land_activity([], storage)
    assert [file.path for file in files] == [layout.activity_path(OTHER)]
    assert ids(storage) == ["a"]
    assert ids(storage, OTHER) == ["lost?"]
    assert storage.list(PENDING) == [f"{PENDING}/not ours"]
    assert land_activity([], storage) == []
    land_activity(entries("b"), storage)  # what has no record any more stands in the file only
    assert ids(storage) == ["a", "b"]


def test_a_damaged_record_is_reported_by_name(storage: Storage) -> None:
    name = f"{PENDING}/{DAY}.20261120T100000-{'a' * 16}.json"
    storage.create(name, b"{")
    with pytest.raises(StorageRefused, match="is damaged") as caught:
        land_activity(entries("a"), storage)
    assert name in caught.value.message
    storage.delete(name)
    land_activity(entries("b"), storage)
    assert ids(storage) == ["a", "b"]


def test_a_day_that_others_change_all_the_time_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(InterruptedStorage):
        def list(self, prefix: str) -> list[str]:
            self.calls += 1
            self._inner.create(f"{PENDING}/{DAY}.20261120T100000-{self.calls:016x}.json", b"{}")
            return self._inner.list(prefix)

    monkeypatch.setattr(usage, "ROUNDS", 5)
    with pytest.raises(StorageRefused, match="keep changing"):
        land_activity(entries("a"), Busy(memory(), 0, lambda: None))


def test_a_usage_month_is_replaced_whole(storage: Storage) -> None:
    def report(*periods: UsagePeriod) -> Report:
        return Report("credits_by_key", periods, datetime(2026, 11, 21, tzinfo=timezone.utc))

    def period(key: str, credits: float) -> UsagePeriod:
        return UsagePeriod(start_date="2026-11-01T00:00:00Z", end_date=None, api_key=key, total_credits=credits)

    land_report(report(period("one", 1), period("two", 2)), storage)
    files = land_report(report(period("one", 5), period("one", 7)), storage)
    assert [(file.path, file.rows) for file in files] == [(layout.usage_path("credits_by_key", "2026-11"), 1)]
    with storage.open_input(files[0].path) as file:
        rows = pq.read_table(file).to_pylist()
    assert [(row["api_key"], row["total_credits"]) for row in rows] == [("one", 7.0)]


@pytest.mark.parametrize(("minutes", "credits_used"), [(-1, 20.0), (-60 * 24, 20.0), (60, 10.0)])
@proves(
    "1.6",
    at="src/weblake/loads/usage.py",
    line="        later = _later_report(storage, name, found.reported_at)",
    becomes="        later = None",
)
def test_an_earlier_report_does_not_replace_a_later_one(storage: Storage, minutes: int, credits_used: float) -> None:
    """Two runs may land in another order than they asked. A time ahead of now is of a wrong clock."""

    def report(at: datetime, credits: float) -> Report:
        return Report("credits", (UsagePeriod(start_date="2026-10-01T00:00:00Z", total_credits=credits),), at)

    later = datetime.now(timezone.utc) + timedelta(minutes=minutes)
    (landed,) = land_report(report(later, 20), storage)
    (file,) = land_report(report(later - timedelta(seconds=1), 10), storage)
    with storage.open_input(file.path) as source:
        assert [row["total_credits"] for row in pq.read_table(source).to_pylist()] == [credits_used]
    assert (file.path, file.rows, file.bytes) == (landed.path, 1, storage.find_size(landed.path))
    (file,) = land_report(report(later, 30), storage)
    with storage.open_input(file.path) as source:
        assert [row["total_credits"] for row in pq.read_table(source).to_pylist()] == [30.0]


def test_a_damaged_file_of_a_month_is_replaced(storage: Storage) -> None:
    name = layout.usage_path("credits", "2026-10")
    storage.create(name, b"PAR1 damaged")
    period = UsagePeriod(start_date="2026-10-01T00:00:00Z", total_credits=1)
    assert [file.rows for file in land_report(Report("credits", (period,), datetime.now(timezone.utc)), storage)] == [1]


def test_only_the_requested_months_are_written() -> None:
    storage = memory()
    months = [
        UsagePeriod(start_date=f"2026-{month:02}-01T00:00:00.000Z", end_date=None, api_key=None, total_credits=month)
        for month in (9, 10, 11)
    ]
    found = Report("credits", tuple(months), datetime.now(timezone.utc))
    assert [file.path for file in land_report(found, storage, ["2026-10", "2026-12"])] == [
        "usage_periods/report=credits/period=2026-10/usage.parquet"
    ]
    assert len(land_report(found, storage)) == 3
