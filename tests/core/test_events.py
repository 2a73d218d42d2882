"""Tests that the observer of a client gets the events of requests and loads, and that the log has a line for each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_in_process import run_command
from observed_lab import FirstResponseLost, ObservedLab, WithoutReplay, observed_lab

import weblake
from weblake import AsyncClient, Client, Terms, events
from weblake.api import steps
from weblake.errors import JobGone, LoadIncomplete, OutcomeUnknown
from weblake.events import Event, LoadTotals, ProgressLog, Totals, combine, log_event
from weblake.loads import load, load_request
from weblake.loads.load_request import Naming
from weblake_service.page_failure import PageFailure


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ObservedLab]:
    with observed_lab(f"memory://events-{tmp_path.name}") as made:
        yield made


def names(seen: list[Event]) -> list[str]:
    """Return the kinds of the events, without those of requests, whose number depends on time."""
    quiet = (events.RequestFinished, events.StatusPolled)
    return [type(event).__name__ for event in seen if not isinstance(event, quiet)]


def test_a_landed_load_reports_each_of_its_steps(lab: ObservedLab) -> None:
    receipt = lab.land("1", "2", "3")
    steps = ["LoadStarted", "JobStarted", "WaitFinished", "ChunkRead", "LoadAccounted", "FilesPublished"]
    assert names(lab.events) == [*steps, "LoadFinished"]
    of_load = [event for event in lab.events if not isinstance(event, events.RequestFinished)]
    assert {event.load_id for event in of_load} == {receipt.load_id}
    (end,) = lab.events_of(events.LoadFinished)
    assert (end.outcome, end.receipt, end.kind, end.job_id) == ("landed", receipt, "batch_scrape", receipt.job_id)
    (wait,) = lab.events_of(events.WaitFinished)
    assert (wait.outcome, wait.job_id) == ("completed", receipt.job_id)
    assert 0 < wait.seconds <= end.seconds
    assert {poll.status for poll in lab.events_of(events.StatusPolled)} <= {"scraping", "completed"}
    (chunk,) = lab.events_of(events.ChunkRead)
    assert chunk.documents == 3
    assert chunk.bytes > 100
    (published,) = lab.events_of(events.FilesPublished)
    assert published.paths == tuple(file.path for file in receipt.files)
    assert (published.rows, published.bytes) == (3, receipt.files[0].bytes)


def test_a_single_page_is_reported_as_one_chunk(lab: ObservedLab) -> None:
    request = load_request.scrape("http://pages.test/1", Naming())
    with Client(lab.service.url, lab.service.key, observer=lab.events.append) as client:
        load.land(client, lab.dataset, request)
    steps = ["LoadStarted", "JobStarted", "ChunkRead", "LoadAccounted", "FilesPublished", "LoadFinished"]
    assert names(lab.events) == steps
    (chunk,) = lab.events_of(events.ChunkRead)
    assert (chunk.documents, chunk.kind) == (1, "scrape")


def test_a_load_that_landed_before_reports_it_and_counts_nothing(lab: ObservedLab) -> None:
    lab.land("1")
    lab.events.clear()
    lab.land("1")
    assert names(lab.events) == ["LoadStarted", "LoadFinished"]
    assert lab.events_of(events.LoadFinished)[0].outcome == "landed_before"


def test_each_request_is_reported_with_its_load_in_every_thread(lab: ObservedLab) -> None:
    receipt = lab.land("1")
    requests = lab.events_of(events.RequestFinished)
    # The service was asked for the same number: what is read ahead in a thread is told, and nothing is told twice.
    assert len(requests) == len(lab.service.requests())
    assert {request.load_id for request in requests[1:]} == {receipt.load_id}
    job = f"/v2/batch/scrape/{receipt.job_id}"
    assert {(each.method, each.path) for each in requests} == {
        ("GET", "/v2/team/activity"),
        ("POST", "/v2/batch/scrape"),
        ("GET", job),
        ("GET", f"{job}/errors"),
    }
    assert {each.status for each in requests} == {200}


def test_a_refused_load_is_reported_and_its_pages_are_counted_once(lab: ObservedLab) -> None:
    lab.web.failures["http://pages.test/2"] = PageFailure("SCRAPE_ALL_ENGINES_FAILED", "no engine")
    strict = Terms(poll_s=0.05, timeout_s=60, fail_ratio=0.1)
    for _ in range(2):
        with pytest.raises(LoadIncomplete):
            lab.land("1", "2", terms=strict)
    refused = lab.events_of(events.LoadRefused)
    assert [(each.error, each.receipt and each.receipt.failed) for each in refused] == [("LoadIncomplete", 1)] * 2
    assert len(lab.events_of(events.LoadAccounted)) == 1
    assert lab.events_of(events.FilesPublished) == []


def test_a_load_that_two_runs_land_is_counted_by_the_one_that_publishes_it(lab: ObservedLab) -> None:
    """So that the counters of credits and pages are those of the service, also if a task is executed twice."""
    first = list[Event]()

    def observe(event: Event) -> None:
        lab.events.append(event)
        if isinstance(event, events.ChunkRead) and not first:
            lab.land("1", "2", observer=first.append)

    receipt = lab.land("1", "2", observer=observe)
    steps = ["LoadStarted", "WaitFinished", "ChunkRead"]
    assert names(first) == [*steps, "LoadAccounted", "FilesPublished", "LoadFinished"]
    assert names(lab.events) == ["LoadStarted", "JobStarted", "WaitFinished", "ChunkRead", "LoadFinished"]
    for seen in (first, lab.events):
        assert isinstance(seen[-1], events.LoadFinished)
        assert (seen[-1].outcome, seen[-1].receipt) == ("landed", receipt)


def test_a_load_that_fails_names_its_error_and_its_job(lab: ObservedLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "ELSEWHERE_S", 0.0)
    job_id = "11111111-2222-4333-8444-555555555555"
    with Client(lab.service.url, lab.service.key, observer=lab.events.append) as client, pytest.raises(JobGone):
        weblake.land("batch", job_id, to=lab.root, client=client)
    (failed,) = lab.events_of(events.LoadFailed)
    assert (failed.error, failed.receipt, failed.job_id) == ("JobGone", None, job_id)
    assert lab.events_of(events.WaitFinished)[0].outcome == "JobGone"


def test_a_retry_is_reported_with_its_attempt(lab: ObservedLab) -> None:
    lab.service.faults({"match": {"path": "/v2/team/credit-usage"}, "times": 1, "effect": {"status": 503}})
    with Client(lab.service.url, lab.service.key, observer=lab.events.append) as client:
        client.retry.jitter = lambda: 0.0
        client.credit_usage()
    requests = lab.events_of(events.RequestFinished)
    assert [(each.status, each.attempt, each.load_id) for each in requests] == [(503, 1, None), (200, 2, None)]
    (retry,) = lab.events_of(events.RetryScheduled)
    assert (retry.operation, retry.attempt, retry.status, retry.error) == (
        "credit_usage",
        1,
        503,
        "ServiceUnavailable",
    )


def test_a_replayed_lost_start_is_reported(lab: ObservedLab) -> None:
    receipt = lab.land("1", transport=FirstResponseLost(lab.client.transport, "POST"))
    (resolved,) = lab.events_of(events.LostStartResolved)
    assert (resolved.outcome, resolved.job_id, resolved.load_id) == ("replayed", receipt.job_id, receipt.load_id)
    assert lab.events_of(events.JobStarted) == []


@pytest.mark.parametrize(
    ("sends", "lists", "outcome"), [(True, True, "adopted"), (False, True, "not_started"), (True, False, "unknown")]
)
def test_the_outcome_of_a_lost_start_is_reported(
    lab: ObservedLab, monkeypatch: pytest.MonkeyPatch, sends: bool, lists: bool, outcome: str
) -> None:
    # The search for a lost start waits 40 s, second by second.
    monkeypatch.setitem(steps.run.__kwdefaults__, "sleep", lambda seconds: time.sleep(min(seconds, 0.002)))
    transport = WithoutReplay(lab.client.transport, sends=sends, lists=lists)
    with pytest.raises(OutcomeUnknown) if outcome == "unknown" else nullcontext():
        lab.land("1", transport=transport)
    (resolved,) = lab.events_of(events.LostStartResolved)
    assert (resolved.outcome, resolved.job_id is not None) == (outcome, outcome == "adopted")
    assert [len(lab.events_of(kind)) for kind in (events.JobStarted, events.LoadFailed)] == [
        outcome == "not_started",
        outcome == "unknown",
    ]


def test_an_async_client_reports_its_requests_and_waits(lab: ObservedLab) -> None:
    receipt = lab.land("1")
    lab.events.clear()

    async def wait() -> None:
        from weblake import orchestration

        job = orchestration.JobRef("batch_scrape", str(receipt.job_id))
        async with AsyncClient(lab.service.url, lab.service.key, observer=lab.events.append) as client:
            await client.run(orchestration.wait(job, client.retry, until=1e12))

    asyncio.run(wait())
    assert [type(event).__name__ for event in lab.events] == ["RequestFinished", "StatusPolled", "WaitFinished"]


def test_orphans_are_reported_with_the_age_of_the_oldest(lab: ObservedLab) -> None:
    lab.start("1")
    with Client(lab.service.url, lab.service.key, observer=lab.events.append) as client:
        weblake.orphans(lab.root, client=client)
    (listed,) = lab.events_of(events.OrphansListed)
    assert (listed.root, listed.orphans, listed.refused) == (lab.root, 1, 0)
    assert 0 < listed.oldest_s < 300


@pytest.mark.parametrize(("hours", "code"), [("0", 1), ("1", 0)])
def test_the_command_orphans_can_check_for_old_ones_only(
    lab: ObservedLab, tmp_path: Path, hours: str, code: int
) -> None:
    lab.root = tmp_path
    load_id = lab.start("1")
    asked = ("orphans", str(tmp_path), "--offline", "--check", "--older-than", hours)
    found, out, _ = run_command(asked, {})
    assert (found, load_id in out) == (code, bool(code))


@dataclass
class Broken:
    """An observer that cannot be hashed, as any data class that can be compared."""

    calls: int = 0

    def __call__(self, event: Event) -> None:
        self.calls += 1
        raise RuntimeError("broken")


def test_an_observer_that_raises_changes_nothing_and_is_logged_once(
    lab: ObservedLab, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken()
    assert lab.land("1", observer=combine(broken, lab.events.append)).complete
    assert broken.calls > 1
    assert "LoadFinished" in names(lab.events)
    assert caplog.text.count("An observer raised") == 1


def test_the_log_has_milliseconds_and_the_error_of_a_load(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "weblake.client")
    caplog.set_level(logging.DEBUG, "weblake.landing")
    log_event(events.RequestFinished(method="GET", path="/", status=None, attempt=2, bytes=0, seconds=1.23456))
    log_event(events.LoadFailed(load_id="a", kind="crawl", job_id=None, seconds=1.23456, error="JobEnded"))
    request, load = (record.__dict__["weblake"] for record in caplog.records)
    assert (request["ms"], request["attempt"]) == (1234.6, 2)
    assert (load["seconds"], load["error"], load["outcome"]) == (1.235, "JobEnded", "failed")


@pytest.mark.parametrize("told", ["a-key", None, 7, "Completed "])
def test_a_text_of_the_service_is_not_a_status(told: object) -> None:
    assert events.known_status(told) == "other"


def test_the_totals_of_a_load_add_up_its_own_events() -> None:
    totals = LoadTotals()
    for load_id in ("a", "b", None):
        job = {"kind": "crawl", "job_id": "1", "load_id": load_id}
        for _ in range(2):
            totals(events.WaitFinished(**job, outcome="completed", seconds=1.5))
            totals(events.LostStartResolved(**job, outcome="adopted", seconds=9.0))
            totals(events.ChunkRead(**job, documents=1, bytes=100, seconds=9.0))
        totals(events.StatusPolled(**job, status="completed", completed=1, total=1))
        totals(events.RetryScheduled(operation="x", attempt=1, error="y", status=503, pause_s=9.0, load_id=load_id))
    found = totals.pop("a")
    assert (found.wait_s, found.retries, found.lost_starts) == (3.0, 1, 2)
    assert (found.polls, found.downloaded_bytes) == (1, 200)
    assert totals.pop("a") == totals.pop("c") == Totals()
    assert totals.pop("b") == found


def test_a_count_is_a_number_of_zero_or_more() -> None:
    found = [events.count_of(value) for value in (0, 7, -1, True, 1.0, "3", None)]
    assert found == [0, 7, None, None, None, None, None]


def test_the_same_state_is_logged_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr("weblake.events.time.monotonic", lambda: now[0])
    log = ProgressLog(lambda _, message: said.append(message))
    poll = events.StatusPolled(kind="crawl", job_id="x", status="scraping", completed=3, total=None)
    retry = events.RetryScheduled(operation="get_crawl", attempt=1, error="ServiceUnreachable", status=None, pause_s=9)
    for event in [poll] * 18 + [retry] * 18 + [poll]:
        log(event)
        now[0] += 10
    assert said == [
        *["crawl x is scraping: completed 3."] * 3,
        *["get_crawl: ServiceUnreachable; it is tried again in 9 s."] * 3,
        "crawl x is scraping: completed 3.",
    ]
