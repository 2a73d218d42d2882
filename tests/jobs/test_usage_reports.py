"""Tests of the reports of usage and activity: nothing that the service reports is merged wrongly or dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scripted_transport import ScriptedTransport, reply, retry

from weblake.api.models import ActivityEntry
from weblake.dataset.root import Dataset
from weblake.errors import MalformedReply
from weblake.jobs import usage_reports
from weblake.loads import usage
from weblake.receipt import LandedFile
from weblake.storage import Storage, open_storage

START, LATER = "2026-11-01T00:00:00.000Z", "2026-10-01T00:00:00.000Z"


def land_activity(entries: Iterable[ActivityEntry], storage: Storage) -> list[LandedFile]:
    return usage.land_activity(entries, Dataset.at(storage))


def land_report(found: usage_reports.Report, storage: Storage, only: Collection[str] | None = None) -> list[LandedFile]:
    return usage.land_report(found, Dataset.at(storage), only)


def report(*periods: dict[str, Any]) -> usage_reports.Report:
    found = ScriptedTransport([reply(body={"success": True, "periods": list(periods)})]).run(
        usage_reports.report("credits", retry(), by_api_key=True)
    )
    assert isinstance(found, usage_reports.Report)
    return found


def test_two_keys_of_one_name_are_one_row_with_the_credits_of_both() -> None:
    found = report(
        {"startDate": START, "apiKey": "pipeline", "totalCredits": 5},
        {"startDate": START, "apiKey": "pipeline", "totalCredits": 7},
        {"startDate": START, "apiKey": "other", "totalCredits": 1},
        {"startDate": LATER, "apiKey": "pipeline", "totalCredits": 2},
    )
    rows = {(row.start_date, row.api_key): row.total_credits for row in found.periods}
    assert rows == {(START, "pipeline"): 12, (START, "other"): 1, (LATER, "pipeline"): 2}
    storage = open_storage("memory://two-keys-of-one-name/lake")
    assert [file.rows for file in land_report(found, storage)] == [1, 2]


def test_periods_without_a_start_are_not_added_up() -> None:
    found = report(
        {"startDate": None, "endDate": "2026-10-31T23:59:59Z", "totalCredits": 5},
        {"startDate": None, "endDate": "2026-11-30T23:59:59Z", "totalCredits": 7},
        {"startDate": None, "endDate": "2026-11-30T23:59:59Z", "totalCredits": 1},
    )
    assert [(row.end_date, row.total_credits) for row in found.periods] == [
        ("2026-10-31T23:59:59Z", 5),
        ("2026-11-30T23:59:59Z", 8),
    ]
    files = land_report(found, open_storage("memory://periods-without-a-start/lake"))
    assert [(file.path.split("/")[2], file.rows) for file in files] == [("period=2026-10", 1), ("period=2026-11", 1)]


def test_a_number_beyond_float_is_kept_as_an_unknown_field() -> None:
    found = report({"startDate": START, "totalCredits": 10**400}, {"startDate": LATER, "totalCredits": 3})
    assert [row.total_credits for row in found.periods] == [None, 3]
    assert found.periods[0].extra == {"totalCredits": 10**400}
    assert len(land_report(found, open_storage("memory://huge-numbers/lake"))) == 2


def test_a_call_without_an_id_is_landed_once() -> None:
    entry = {"endpoint": "scrape", "createdAt": "2026-11-20T10:00:00.000Z", "target": "https://a.example/"}
    other = entry | {"target": "https://b.example/"}
    data = [entry, other, entry | {"id": "a"}, entry | {"api_version": "v1"}, entry]
    body = {"success": True, "data": data, "cursor": None, "hasMore": False}
    listed = ScriptedTransport([reply(body=body)]).run(usage_reports.activity(retry()))
    assert isinstance(listed, list)
    assert all(isinstance(each, ActivityEntry) for each in listed)
    storage = open_storage("memory://calls-without-ids/lake")
    assert [file.rows for file in land_activity(listed, storage)] == [4]
    assert [file.rows for file in land_activity(listed, storage)] == [4]


def test_a_period_is_closed_once_its_end_is_past_or_a_later_one_is_reported() -> None:
    november = datetime(2026, 11, 1, tzinfo=timezone.utc)
    october = {"startDate": LATER, "endDate": START, "totalCredits": 2}
    found = report(
        october | {"apiKey": "a"},
        october | {"apiKey": "b", "totalCredits": None},
        october | {"apiKey": "c", "totalCredits": 3},
        {"startDate": START, "endDate": "2026-12-01T00:00:00.000Z", "totalCredits": 1},
        {"startDate": START, "endDate": None, "totalCredits": 9},
    )
    (closed,) = usage_reports.closed_periods(found, november)
    assert (closed.start.month, closed.end, closed.total, closed.month) == (10, november, 5, "2026-10")
    early = datetime(2026, 10, 31, tzinfo=timezone.utc)
    assert usage_reports.closed_periods(found, early) == [closed], "the service is already in November"
    assert usage_reports.closed_periods(report(october), early) == []
    assert len(usage_reports.closed_periods(found, datetime(2026, 12, 1, tzinfo=timezone.utc))) == 2


def test_each_call_of_one_job_is_landed_once() -> None:
    """URLs are appended to a batch with a call of their own, which has the id of the batch."""
    start = {"id": "a", "endpoint": "batch_scrape", "created_at": "2026-11-20T10:00:00.000Z", "target": None}
    data = [start | {"created_at": "2026-11-20T10:05:00.000Z"}, start | {"endpoint": "interact"}, start, start]
    body = {"success": True, "data": data, "cursor": None, "has_more": False}
    listed = ScriptedTransport([reply(body=body)]).run(usage_reports.activity(retry()))
    assert isinstance(listed, list)
    storage = open_storage("memory://calls-of-one-job/lake")
    for _ in range(2):
        assert [file.rows for file in land_activity(listed, storage)] == [3]


def test_an_activity_list_is_read_page_by_page_and_a_cycle_is_detected() -> None:
    def page(job: str, cursor: str | None, **more: object) -> Any:
        return reply(body={"success": True, "data": [{"id": job, "endpoint": "crawl"}], "cursor": cursor, **more})

    def ids(*pages: Any) -> list[str | None]:
        listed = ScriptedTransport([*pages]).run(usage_reports.activity(retry()))
        assert isinstance(listed, list)
        return [each.id for each in listed]

    assert ids(page("a", "2"), page("b", "3"), page("c", None)) == ["a", "b", "c"]
    assert ids(page("a", "2"), page("b", "3", has_more=False), page("c", None)) == ["a", "b"]
    with pytest.raises(MalformedReply, match="does not end"):
        ids(page("a", "2"), page("b", "3"), page("c", "2"), page("d", None))


CALL = {"id": "a", "endpoint": "crawl", "created_at": "2026-11-20T10:00:00.000Z"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": {"a": CALL}},
        {"data": [CALL, "b"]},
        {"data": [CALL], "cursor": 2},
        {"data": [CALL], "cursor": None, "has_more": True},
        {"data": [CALL], "cursor": "", "has_more": True},
    ],
)
def test_an_activity_list_that_cannot_be_read_to_its_end_is_an_error(body: dict[str, Any]) -> None:
    answers = [reply(body={"success": True, **body})] * 3
    with pytest.raises(MalformedReply, match="did not answer with a list of jobs"):
        ScriptedTransport(answers).run(usage_reports.activity(retry()))


@pytest.mark.parametrize("body", [{}, {"data": []}, {"periods": {}}, {"periods": [{"startDate": START}, None]}])
def test_an_answer_without_a_report_is_an_error_and_not_a_month_below_its_budget(body: dict[str, Any]) -> None:
    answers = [reply(body={"success": True, **body})] * 3
    with pytest.raises(MalformedReply, match="did not answer with a report"):
        ScriptedTransport(answers).run(usage_reports.report("credits", retry()))


def test_a_row_of_usage_has_both_ends_of_its_period(tmp_path: Path) -> None:
    land_report(report({"startDate": LATER, "endDate": START, "totalCredits": 2}), open_storage(tmp_path))
    (file,) = tmp_path.rglob("*.parquet")
    (row,) = pq.ParquetFile(file).read().to_pylist()
    assert [row[name].month for name in ("period_start", "period_end")] == [10, 11]


def test_a_period_without_its_end_is_not_closed_and_rows_of_one_period_are_added_up() -> None:
    month = {"startDate": "2026-10-01T00:00:00Z", "endDate": "2026-11-01T00:00:00Z"}
    found = report(
        {**month, "apiKey": "a", "totalCredits": 2, "totalTokens": 50},
        {**month, "apiKey": "b", "totalCredits": 3},
        {**month, "apiKey": "c"},
        {"startDate": "2026-09-01T00:00:00Z", "totalCredits": 1},
        {"endDate": "2026-09-01T00:00:00Z", "totalCredits": 1},
    )
    end = datetime(2026, 11, 1, tzinfo=timezone.utc)
    assert usage_reports.closed_periods(found, end - timedelta(seconds=1)) == []
    (closed,) = usage_reports.closed_periods(found, end)
    assert (closed.month, closed.end, closed.total) == ("2026-10", end, 5)
    (tokens,) = usage_reports.closed_periods(replace(found, name="tokens_by_key"), end)
    assert tokens.total == 50


@pytest.mark.parametrize(
    ("start", "end", "now", "used"),
    [
        ("2026-10-15T00:00:00Z", "2026-11-15T00:00:00Z", "2026-10-20T00:00:00Z", 5.0),  # of the month that it begins in
        ("2026-09-15T00:00:00Z", "2026-11-15T00:00:00Z", "2026-10-20T00:00:00Z", 5.0),
        ("2026-08-15T00:00:00Z", "2026-10-15T00:00:00Z", "2026-10-15T00:00:00Z", 0.0),  # the end is after the period
        ("2026-08-15T00:00:00Z", "2026-09-15T00:00:00Z", "2026-08-01T00:00:00Z", 5.0),
        ("2026-11-15T00:00:00Z", None, "2026-10-20T00:00:00Z", 0.0),
        (None, None, "2026-10-20T00:00:00Z", 5.0),
    ],
)
def test_the_open_period_is_included(start: str | None, end: str | None, now: str, used: float) -> None:
    row = {"startDate": start, "endDate": end, "totalCredits": 5}
    found = report({name: value for name, value in row.items() if value is not None})
    assert replace(found, reported_at=datetime.fromisoformat(now.replace("Z", "+00:00"))).used == used
