"""Tests of the state of a watcher: each ended job is reported once, within bounds, also over restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_transport import reply, retry
from tiers import examples

from weblake import AsyncClient
from weblake.api.steps import Request, Response, run
from weblake.errors import CreditsExhausted, JobGone, ServiceUnavailable
from weblake.jobs import ended_jobs
from weblake.jobs.ended_jobs import (
    MAX_PENDING,
    ROUND_TRIES,
    UNREADABLE_ROUNDS,
    EndedJobs,
    ListedJob,
    PollResults,
    PollRound,
    WatcherState,
    poll_all,
)
from weblake.jobs.polling import JobRef
from weblake.jobs.retry import Retry
from weblake.testing import WeblakeService

HOUR = 3_600_000
COMPLETED = {"status": "completed"}


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def restarted(state: WatcherState) -> WatcherState:
    """Return the state as the next triggerer reads it."""
    return WatcherState.read(json.loads(json.dumps(state.write())))


@settings(max_examples=examples(300))
@given(
    jobs=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), min_size=1, max_size=60),
    restarts=st.sets(st.integers(0, 110)),
    down=st.sets(st.integers(0, 110), max_size=20),
)
def test_each_ended_job_is_reported_once(jobs: list[tuple[int, int]], restarts: set[int], down: set[int]) -> None:
    """Jobs start and end at any hour, also beyond the list's 24; polls fail and triggerers restart at any hour."""
    started = {uuid(n): begin for n, (begin, _) in enumerate(jobs)}
    ends = {uuid(n): begin + length for n, (begin, length) in enumerate(jobs)}
    state, told = WatcherState(), list[str]()
    unheard = 0
    for hour in range(110):
        if hour in down and unheard < 20:
            unheard += 1
            continue
        unheard = 0
        listed = [ListedJob(name, at * HOUR, None) for name, at in started.items() if hour - 24 < at <= hour]
        asked = {job.job_id for job in listed} | state.pending.keys()
        newly_ended = state.record_round(listed, {name: COMPLETED for name in asked if ends[name] <= hour})
        told += [job.job_id for job in newly_ended]
        if hour in restarts:
            state = restarted(state)
    assert sorted(told) == sorted(started)


def test_many_jobs_fit_into_the_state_and_none_is_reported_twice() -> None:
    state, told = WatcherState(), list[str]()
    order = random.Random(7)
    running: list[ListedJob] = []
    for minute in range(0, 40 * 60, 10):
        now = minute * 60_000
        running += [ListedJob(uuid(minute * 100 + n), now + n, None) for n in range(20)]
        order.shuffle(running)
        ended, running = running[:19], running[19:]
        over = {job.job_id: COMPLETED for job in ended}
        listed = [*ended, *running]
        told += [job.job_id for job in state.record_round(listed, over)]
        state = restarted(state)
        assert len(json.dumps(state.write())) < 60_000
    assert len(told) == len(set(told)) == 240 * 19


def test_running_jobs_beyond_the_bound_are_reported_when_there_is_room() -> None:
    jobs = [ListedJob(uuid(n), n, None) for n in range(MAX_PENDING + 150)]
    state = WatcherState()
    assert state.record_round(jobs, {}) == []
    assert len(state.pending) == MAX_PENDING
    # The newest end first: they wait behind the oldest.
    newest = {job.job_id: COMPLETED for job in jobs[-100:]}
    told = state.record_round(jobs, newest)
    assert told == []
    state = restarted(state)
    everything = {job.job_id: COMPLETED for job in jobs}
    told += state.record_round(jobs, everything)
    assert [job.job_id for job in told] == [job.job_id for job in jobs]
    assert state.record_round(jobs, everything) == []


@pytest.mark.parametrize(
    "note", [{}, {"watermark": "x"}, {"pending": [1], "over": {"a": "b"}}, {"over": None, "watermark": None}]
)
def test_an_edited_or_foreign_state_is_tolerated(note: dict[str, object]) -> None:
    assert WatcherState.read(note) == WatcherState()


@pytest.mark.parametrize(
    ("target", "pattern", "fits"),
    [
        ("https://a.example/x", None, True),
        (None, None, True),
        (None, "*", True),
        ("https://a.example/x", "https://a.example/*", True),
        ("https://a.example/x", "https://a.example/", False),
        ("https://a.example/x?(y", "*?(y", True),
        (None, "https://*", False),
    ],
)
def test_a_target_fits_its_pattern(target: str | None, pattern: str | None, fits: bool) -> None:
    assert ListedJob("a", 0, target).fits(pattern) is fits


def test_polls_end_by_their_deadline_and_report_their_progress(weblake_service: WeblakeService) -> None:
    weblake_service.faults(
        {"match": {"path": "/v2/crawl/"}, "times": None, "effect": {"status": 429, "retry_after": 3600}}
    )
    gone, stalled = JobRef("batch_scrape", uuid(1)), [JobRef("crawl", uuid(n)) for n in range(2, 30)]

    async def ask(jobs: list[JobRef], seconds: float) -> tuple[PollResults, float]:
        began = time.monotonic()
        async with AsyncClient(weblake_service.url, weblake_service.key) as client:
            found = await poll_all(client, jobs, at_once=4, until=began + seconds)
        return found, time.monotonic() - began

    found, _ = asyncio.run(ask([gone, *stalled], 30.0))
    assert isinstance(found.errors[gone.job_id], JobGone)
    assert ROUND_TRIES <= len(found.errors) - 1 < len(stalled), "a service in trouble is not asked about every job"
    assert not found.heads
    weblake_service.faults({"match": {"path": "/v2/crawl/"}, "times": None, "effect": {"stall": True}})
    found, took = asyncio.run(ask([gone, *stalled], 0.5))
    assert took < 10
    assert set(found.errors) == {gone.job_id}


def test_a_watcher_without_shared_polls_gets_each_ended_job_once(weblake_service: WeblakeService) -> None:
    async def story() -> None:
        async with AsyncClient(weblake_service.url, weblake_service.key) as client:
            job = await client.start_batch_scrape(["http://127.0.0.1:9/"])
            seen, told = WatcherState(), list[ListedJob]()
            give_up = time.monotonic() + 60
            while not told:
                assert time.monotonic() < give_up
                found = await EndedJobs("batch_scrape")(client, watcher=seen, until=give_up)
                told += seen.record_round(found.jobs, found.ended)
            assert [each.job_id for each in told] == [job.id]
            asked = len(weblake_service.requests())
            found = await EndedJobs("batch_scrape")(client, watcher=seen, until=give_up)
            assert (found.complete, seen.record_round(found.jobs, found.ended)) == (True, [])
            assert len(weblake_service.requests()) == asked + 1  # the list, and no poll
            # One that the list shows no more is asked about as long as it is followed.
            found = await EndedJobs("batch_scrape")(client, watcher=WatcherState(0, {str(job.id): 0}), until=give_up)
            assert set(found.ended) == {job.id}

    asyncio.run(story())


def test_an_ended_job_is_remembered_for_the_time_that_the_activity_list_covers() -> None:
    """Then no job that the list shows late is taken for one that was told."""
    for hours, told in ((24, ["late"]), (26, [])):
        state = WatcherState()
        state.record_round([ListedJob("first", 10, None)], {"first": COMPLETED})
        state.record_round([ListedJob("last", 10 + hours * HOUR, None)], {"last": COMPLETED})
        assert ("first" in state.over) is bool(told)
        assert [job.job_id for job in state.record_round([ListedJob("late", 5, None)], {"late": COMPLETED})] == told


class Watched:
    """A client whose service lists these jobs and knows the status of some; its clock stands until a test moves it."""

    def __init__(self, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids = [uuid(n) for n in range(jobs)]
        self.retry, self.now = retry(), 1000.0
        self.known: dict[str, str] = {}
        self.polled: list[str] = []
        self.created = "2026-11-21T10:00:{:02d}Z"
        #: Jobs for whose status the service has an error.
        self.broken: set[str] = set()
        clock = SimpleNamespace(monotonic=lambda: self.now, time=time.time)
        monkeypatch.setattr(ended_jobs, "time", clock)
        self._rounds = EndedJobs("crawl")
        self.last: PollRound | None = None

    def send(self, request: Request) -> Response:
        job_id = request.path.rpartition("/")[2]
        if job_id == "activity":
            jobs = [
                {"id": each, "endpoint": "crawl", "created_at": self.created.format(n)}
                for n, each in enumerate(self.ids)
            ]
            return reply(200, {"success": True, "data": jobs})
        self.polled.append(job_id)
        if job_id in self.broken:
            return reply(402, {"success": False, "error": "broken"})
        if job_id not in self.known:
            return reply(404, {"success": False, "error": "Job not found"})
        return reply(200, {"status": self.known[job_id], "completed": 1, "data": []})

    async def run(self, flow: Any) -> Any:
        return run(flow, self, sleep=lambda seconds: None, clock=lambda: self.now)

    def round(self, at: float, until: float | None = None) -> dict[str, object]:
        """Run a round of polls at this second, and return the statuses of the jobs that have ended."""
        self.now = 1000.0 + at
        self.last = asyncio.run(self._rounds(self, until=until))
        return {job_id: head["status"] for job_id, head in self.last.ended.items()}


@pytest.mark.parametrize(
    ("polls", "gone"),
    [([0, 10, 29.9], False), ([0, 10, 30], True), ([0, 40], False), ([0, 40, 41], True), ([0], False)],
)
def test_a_job_is_gone_after_three_polls_and_half_a_minute(
    polls: list[float], monkeypatch: pytest.MonkeyPatch, *, gone: bool
) -> None:
    client = Watched(1, monkeypatch)
    ends = [client.round(at) for at in polls]
    assert ends == [{}] * (len(polls) - 1) + [{uuid(0): "gone"} if gone else {}]


def test_a_job_that_was_found_in_between_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Watched(1, monkeypatch)
    assert [client.round(0), client.round(20)] == [{}, {}]
    client.known[uuid(0)] = "scraping"
    assert client.round(25) == {}
    client.known.clear()
    assert [client.round(at) for at in (30, 35, 59)] == [{}] * 3
    client.known[uuid(0)] = "Completed"
    assert client.round(60) == {uuid(0): "completed"}
    client.polled.clear()
    assert client.round(61) == {uuid(0): "completed"}
    assert client.polled == []


def test_the_polls_of_a_round_with_a_deadline_are_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the last jobs are polled in no round if its time never suffices."""
    client = Watched(40, monkeypatch)
    client.known = dict.fromkeys(client.ids, "scraping")
    client.round(0)
    assert client.polled == client.ids
    client.polled.clear()
    client.round(1, until=client.now + 60)
    assert client.polled != client.ids
    assert sorted(client.polled) == client.ids


@pytest.mark.parametrize(("broken", "complete"), [(1, True), (ROUND_TRIES - 1, True), (ROUND_TRIES, False)])
@pytest.mark.parametrize("others", [0, 3])
def test_a_few_unreadable_jobs_do_not_keep_a_watcher_waiting(
    monkeypatch: pytest.MonkeyPatch, broken: int, others: int, *, complete: bool
) -> None:
    """More of them are an outage: jobs that had ended before the watcher began would then count as new."""
    client = Watched(broken + others, monkeypatch)
    client.broken, client.known = set(client.ids[:broken]), dict.fromkeys(client.ids[broken:], "completed")
    for number in range(UNREADABLE_ROUNDS - 1):
        with contextlib.suppress(CreditsExhausted):  # no status at all could be read
            client.round(number)
            assert client.last is not None
            assert not client.last.complete
    if complete:
        assert set(client.round(10)) == set(client.ids[broken:])
        assert client.last is not None
        assert (client.last.complete, set(client.last.unreadable)) == (True, client.broken)
        client.known[client.ids[0]] = "completed"
        client.broken.clear()
        client.round(11)
        assert client.last.unreadable == {}
    elif others == 0:
        with pytest.raises(CreditsExhausted):
            client.round(10)


def test_unreadable_jobs_do_not_keep_later_ones_from_being_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Watched(100, monkeypatch)
    client.broken, client.known = set(client.ids[:20]), dict.fromkeys(client.ids[20:], "completed")
    for number in range(20 // ROUND_TRIES + 1):
        with contextlib.suppress(CreditsExhausted):
            client.round(number)
    assert client.last is not None
    assert set(client.last.ended) == set(client.ids[20:])


def test_a_job_of_the_last_year_that_can_be_written_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Watched(1, monkeypatch)
    client.known, client.created = dict.fromkeys(client.ids, "completed"), "9999-12-31T23:59:59.999999Z"
    client.round(0)
    assert client.last is not None
    assert datetime.fromtimestamp(client.last.jobs[0].created / 1000, timezone.utc).year == 9999


def test_a_job_to_which_urls_were_appended_is_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has an entry for each call."""
    client = Watched(2, monkeypatch)
    client.ids = [client.ids[0], client.ids[1], client.ids[0]]
    client.round(0)
    assert client.last is not None
    assert [job.job_id for job in client.last.jobs] == client.ids[:2]


@pytest.mark.parametrize(("error", "polls"), [(ServiceUnavailable, 5), (JobGone, 9)])
def test_a_round_ends_after_five_polls_that_failed_because_of_the_service(
    error: type[ServiceUnavailable | JobGone], polls: int
) -> None:
    class Fails:
        retry = Retry()

        async def run(self, flow: object) -> Any:
            raise error("no")

    jobs = [JobRef("crawl", uuid(number)) for number in range(9)]
    found = asyncio.run(poll_all(Fails(), jobs, at_once=1))
    assert (len(found.errors), found.heads) == (polls, {})
