"""The activity list and the reports of a team."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake_service.clock import iso, month_bounds, month_of
from weblake_service.config import Access, ServiceKey
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse
from weblake_service.store import accounts, schema

DAY = 24 * 3600.0
A, B, BAD = "http://site.test/a", "http://site.test/b", "http://site.test/bad"
TEAMS, KINDS = ["red", "blue"], ["scrape", "crawl", "batch_scrape", "search", "map"]


def database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    db.executescript(schema.SCHEMA)
    return db


def listed(db: sqlite3.Connection, at: float, cursor: Any = None, **asked: Any) -> dict[str, Any]:
    return accounts.list_activity(
        db,
        asked.get("team", "red"),
        endpoint=asked.get("endpoint"),
        limit=asked.get("limit", 100),
        cursor=cursor,
        at=at,
    )


entries = st.tuples(st.sampled_from(TEAMS), st.sampled_from(KINDS), st.floats(0, 9 * 3600))


@settings(max_examples=examples(100))
@given(
    before=st.lists(entries, max_size=25),
    meanwhile=st.lists(st.lists(entries, max_size=3), max_size=12),
    limit=st.integers(1, 7),
    kind=st.sampled_from([None, *KINDS]),
)
def test_pagination_lists_each_entry_once_while_new_ones_arrive(
    before: list[Any], meanwhile: list[list[Any]], limit: int, kind: str | None
) -> None:
    db, now, written = database(), 1_800_000_000.0, []

    def write(team: str, endpoint: str, later: float) -> None:
        nonlocal now
        now += later
        accounts.record_activity(db, Access(team, "k"), endpoint, f"{team}-{len(written)}", None, now)
        written.append((team, endpoint, now, f"{team}-{len(written)}"))

    for entry in before:
        write(*entry)
    begun, known = now, list(written)
    seen, cursor, turn = [], None, 0
    while True:
        page = listed(db, begun, cursor, limit=limit, endpoint=kind)
        assert page["has_more"] == (page["cursor"] is not None)
        assert len(page["data"]) == limit or not page["has_more"]
        seen += page["data"]
        if not page["has_more"]:
            break
        cursor = page["cursor"]
        for entry in meanwhile[turn] if turn < len(meanwhile) else []:
            write(*entry)
        turn += 1
    wanted = [
        (id_, endpoint, iso(at))
        for team, endpoint, at, id_ in reversed(known)
        if team == "red" and at > begun - DAY and kind in (None, endpoint)
    ]
    found = [(one["id"], one["endpoint"], one["created_at"]) for one in seen]
    assert sorted(found) == sorted(wanted)
    assert [one[2] for one in found] == sorted((one[2] for one in found), reverse=True)


def test_an_entry_is_listed_for_exactly_24_hours() -> None:
    db = database()
    accounts.record_activity(db, Access("red", "k"), "map", "one", A, 1_800_000_000.0)
    assert len(listed(db, 1_800_000_000.0 + DAY - 0.001)["data"]) == 1
    assert listed(db, 1_800_000_000.0 + DAY)["data"] == []


def test_a_cursor_names_the_last_entry_of_its_page() -> None:
    db = database()
    for number in range(3):
        for team in TEAMS:
            accounts.record_activity(db, Access(team, "k"), "map", f"{team}{number}", A, 1_800_000_000.0 + number)
    cursor = listed(db, 1_800_000_010.0, limit=1)["cursor"]
    assert [one["id"] for one in listed(db, 1_800_000_010.0, cursor)["data"]] == ["red1", "red0"]
    assert {one["id"] for one in listed(db, 1_800_000_010.0, cursor, team="blue")["data"]} <= {
        "blue1",
        "blue0",
        "blue2",
    }
    for spoilt in (f"{cursor}A", "", "é"):
        with pytest.raises(ErrorResponse) as caught:
            listed(db, 1_800_000_010.0, spoilt)
        assert caught.value.status == 400
    # Its entries have expired: the list is over, which is not an error of the client.
    assert listed(db, 1_800_000_010.0 + DAY, cursor)["data"] == []


@settings(max_examples=examples(100))
@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.decode("latin-1")))
def test_arbitrary_text_is_not_a_valid_cursor(text: str) -> None:
    with pytest.raises(ErrorResponse):
        listed(database(), 1_800_000_000.0, text)


charges = st.tuples(
    st.sampled_from(TEAMS), st.sampled_from(["etl", "adhoc", "old"]), st.integers(1, 50), st.floats(0, 40 * DAY)
)


@settings(max_examples=examples(100))
@given(st.lists(charges, max_size=40))
def test_the_reports_add_up(made: list[Any]) -> None:
    db, now = database(), 1_795_000_000.0
    by_month: dict[str, int] = {}
    for team, key, credits, later in made:
        now += later
        accounts.charge(db, Access(team, key), credits, now)
        if team == "red":
            by_month[month_of(now)] = by_month.get(month_of(now), 0) + credits
    plain = accounts.periods(db, "red", by_key=False, name="totalCredits", factor=1)
    split = accounts.periods(db, "red", by_key=True, name="totalCredits", factor=1)
    tokens = accounts.periods(db, "red", by_key=True, name="totalTokens", factor=accounts.TOKENS_PER_CREDIT)
    assert [one["totalCredits"] for one in plain] == [by_month[month] for month in sorted(by_month)]
    assert all("apiKey" not in one for one in plain)
    for period in plain:
        mine = [one for one in split if one["startDate"] == period["startDate"]]
        assert sum(one["totalCredits"] for one in mine) == period["totalCredits"]
        assert len({one["apiKey"] for one in mine}) == len(mine)
    assert [one["totalTokens"] for one in tokens] == [15 * one["totalCredits"] for one in split]


@given(st.floats(0, 4e9))
@example(539135999.999)
@example(536457600.0)
@example(1793491199.9999998)
@example(1793491199.9999990)
def test_months_are_divided_in_utc_to_the_millisecond(at: float) -> None:
    first, last = month_bounds(month_of(at))
    assert first - 1e-6 <= at < last + 0.001
    assert iso(first).endswith("-01T00:00:00.000Z")
    assert iso(last).endswith("T23:59:59.999Z")
    assert iso(at) <= iso(last)
    assert abs(datetime.fromisoformat(iso(at)).astimezone(timezone.utc).timestamp() - at) < 0.0011


def test_every_operation_is_listed_and_can_be_read_again(bench: Any) -> None:
    bench.web.failures[BAD] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    assert bench.http.post("/v2/scrape", json={"url": BAD}).status_code == 500
    bench.http.post("/v2/scrape", json={"url": A})
    bench.http.post("/v2/map", json={"url": A})
    bench.wait_until_ended(bench.batch(A, B))
    bench.wait_until_ended(bench.crawl(A), "crawl")
    running = bench.web.held.add(B) or bench.batch(B, maxAge=0)
    entries = bench.http.get("/v2/team/activity").json()["data"]
    assert [one["endpoint"] for one in entries] == ["batch_scrape", "crawl", "batch_scrape", "map", "scrape", "scrape"]
    assert {one["api_version"] for one in entries} == {"v2"}
    assert entries[0]["id"] == running
    paths = {"scrape": "scrape", "crawl": "crawl", "batch_scrape": "batch/scrape"}
    for one in entries:
        if one["endpoint"] in paths:
            reply = bench.http.get(f"/v2/{paths[one['endpoint']]}/{one['id']}")
            if one["target"] == BAD:
                assert reply.json()["code"] == "SCRAPE_SITE_ERROR"
            else:
                assert (reply.status_code, reply.json()["success"]) == (200, True), one
    for endpoint in accounts.ENDPOINTS:
        found = bench.http.get("/v2/team/activity", params={"endpoint": endpoint}).json()["data"]
        assert found == [one for one in entries if one["endpoint"] == endpoint]
    bench.web.held.clear()


def test_usage_of_a_renamed_or_removed_key_is_kept(make_bench: Any, tmp_path: Any) -> None:
    db = tmp_path / "service.db"
    bench = make_bench(db, keys=[ServiceKey("test-key", "etl", "red"), ServiceKey("test-key-2", "adhoc", "red")])
    bench.web.held.add(B)
    job = bench.batch(A, B)
    bench.until(lambda: bench.status(job)["completed"] == 1)
    bench.http.post("/v2/scrape", json={"url": A}, headers={"Authorization": "Bearer test-key-2"})
    bench.service.stop()
    later = make_bench(db, keys=[ServiceKey("test-key", "new-etl", "red")])
    assert later.wait_until_ended(job)["completed"] == 2
    later.http.post("/v2/scrape", json={"url": B})
    assert later.http.get("/v2/crawl/active", headers={"Authorization": "Bearer test-key-2"}).status_code == 401
    report = later.http.get("/v2/team/credit-usage/historical?byApiKey=true").json()["periods"]
    assert {one["apiKey"]: one["totalCredits"] for one in report} == {"etl": 2, "adhoc": 1, "new-etl": 1}
    assert later.http.get("/v2/team/credit-usage/historical").json()["periods"][0]["totalCredits"] == 4
