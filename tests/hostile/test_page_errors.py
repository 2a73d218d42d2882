"""Rows of `page_errors` from the job's error list, which may be incomplete, unreadable or missing."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from catalogue import proves
from landing_commands import KEY, Lake, page_errors
from scripted_job import JOB, Job, pages, url_of
from scripted_service import ScriptedService, reply


def failed(n: int, **more: object) -> dict[str, object]:
    found = {"id": f"e{n}", "url": url_of(n), "code": "SCRAPE_TIMEOUT", "error": f"Page {n} timed out"}
    return found | {"timestamp": "2026-11-21T10:00:00.000Z"} | more


def test_failed_and_blocked_pages_are_rows(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2), total=4)
    job.errors = {"errors": [failed(2)], "robotsBlocked": [url_of(3)]}
    receipt = lake.land(job=JOB).landed(pages(2), failed=1, robots_blocked=1, missing=0)
    first, second = sorted(page_errors(lake.root), key=lambda row: row["outcome"])
    assert (first["url"], first["outcome"], first["code"]) == (url_of(2), "failed", "SCRAPE_TIMEOUT")
    assert first["occurred_at"] == datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
    assert (second["url"], second["outcome"]) == (url_of(3), "robots_blocked")
    assert first["job_id"] == JOB
    assert len(receipt["files"]) == 2


@proves(
    "H21",
    at="src/weblake/loads/accounting.py",
    line="known = account.stored + account.failed + account.robots_blocked + account.rejected",
    becomes="known = account.stored",
)
def test_h21_failed_pages_outside_the_total_are_rows(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    job.errors = {"errors": [failed(2), failed(3)], "robotsBlocked": []}
    lake.land(job=JOB).landed(pages(2), submitted=4, failed=2)


#: A response of `/errors` beside two documents, and the numbers of failed and blocked pages in it.
TOLD = {
    "a url in data and in errors": ({"errors": [failed(1)], "robotsBlocked": [url_of(0)]}, 0, 0),
    "the same url twice": ({"errors": [failed(5), failed(5)], "robotsBlocked": []}, 1, 0),
    "failed and blocked": ({"errors": [failed(5)], "robotsBlocked": [url_of(5)]}, 1, 0),
    "without url": ({"errors": [{"error": "x"}, {"url": None}, {"url": 7}], "robotsBlocked": []}, 3, 0),
    "entries that are none": ({"errors": [failed(5), "text", None, 3, []], "robotsBlocked": [url_of(6), 1, {}]}, 7, 1),
    "null": ({"errors": None, "robotsBlocked": None}, 0, 0),
    "absent": ({}, 0, 0),
    "odd fields": ({"errors": [failed(5, timestamp=1, code=["x"], error={"a": 1}, more=2)], "robotsBlocked": []}, 1, 0),
    "odd times": ({"errors": [failed(n, timestamp=t) for n, t in enumerate(
        ("", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "noon", "2026-11-21"), 5)]}, 5, 0),
    "odd texts": ({"errors": [failed(5, error="\0\ud800" + "x" * 2_000_000, url="\ud800\0 http://[")]}, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize(("told", "failures", "blocked"), TOLD.values(), ids=TOLD)
def test_every_page_is_counted_once(
    service: ScriptedService, lake: Lake, told: object, failures: int, blocked: int
) -> None:
    job = Job(service, pages(2))
    job.errors = told
    lake.land(job=JOB).landed(pages(2), failed=failures, robots_blocked=blocked, missing=0)
    assert len(page_errors(lake.root)) == failures + blocked


BROKEN = {
    "html": reply("<html>", content_type="text/html"),
    "a list": reply([failed(1)]),
    "null": reply("null"),
    "an object for a list": reply({"errors": {"0": failed(1)}, "robotsBlocked": []}),
    "a text for a list": reply({"errors": [], "robotsBlocked": url_of(3)}),
    "cut off": reply(b'{"errors": [{"url"'),
}


@pytest.mark.parametrize("play", BROKEN.values(), ids=BROKEN)
def test_an_unreadable_error_list_publishes_nothing(service: ScriptedService, lake: Lake, play: object) -> None:
    job = Job(service, pages(2))
    service.first(f"{job.read}/errors", *[play] * 3)  # type: ignore[list-item]
    lake.land(job=JOB).expect_error("MalformedReply")
    lake.land(job=JOB).landed(pages(2))


@pytest.mark.parametrize("status", [404, 400, 405])
def test_without_an_error_list_the_total_is_used(service: ScriptedService, lake: Lake, status: int) -> None:
    job = Job(service, pages(2), total=3)
    service.on(f"{job.read}/errors", reply({"success": False, "error": "no such thing"}, status))
    lake.land(job=JOB).expect_error("LoadIncomplete", "1 of 3 pages are missing")
    lake.land("--allow-partial", job=JOB).landed(pages(2), complete=False, missing=1)


@proves(
    "S1",
    at="src/weblake/loads/download.py",
    line="replace(each, code=each.code and redact(each.code), error=each.error and redact(each.error))",
    becomes="each",
)
def test_s1_a_key_that_the_service_repeats_in_the_reason_of_a_page_is_not_stored(
    service: ScriptedService, lake: Lake
) -> None:
    job = Job(service, [], total=1)
    job.errors = {"errors": [failed(0, code=f"TOKEN_{KEY}", error=f"Invalid token: Bearer {KEY}")]}
    lake.land(job=JOB).expect_error("LoadIncomplete", f" {url_of(0)}: TOKEN_***: Invalid token: Bearer ***. ")
    (row,) = page_errors(lake.root)
    assert (row["url"], row["code"], row["error"]) == (url_of(0), "TOKEN_***", "Invalid token: Bearer ***")


def test_a_job_with_only_failed_pages_fails(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, [], total=2)
    job.errors = {"errors": [failed(0)], "robotsBlocked": [url_of(1)]}
    first = f" {url_of(0)}: SCRAPE_TIMEOUT: Page 0 timed out. The reasons are in page_errors."
    printed = lake.land(job=JOB).expect_error("LoadIncomplete", "None of the 2 pages", first)
    assert (printed["failed"], printed["robots_blocked"], printed["stored"]) == (1, 1, 0)
    assert {row["outcome"] for row in page_errors(lake.root)} == {"failed", "robots_blocked"}
    service.seen.clear()
    again = lake.land(job=JOB).expect_error("LoadIncomplete", "None of the 2 pages")
    assert {name: again[name] for name in ("load_id", "failed", "files")} == {
        name: printed[name] for name in ("load_id", "failed", "files")
    }
    assert service.seen == []
