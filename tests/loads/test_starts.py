"""Tests that a job is paid once: every schedule of crashes, lost responses and time, with the real start flow.

`start_schedules.py` computes the states that may follow each state; the tests check every end. Times are shortened: a
start has 4 s to take effect, is sent within 1 s of its record, and is in the activity list within 2 s.

Two crashes and a loss by default; more of them, and two processes at every turn, under `nightly`.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from start_outcomes import check_all_ends, check_end, orphans_after
from start_schedules import Process, StartModel, State
from start_service_model import BEGAN, Service, stamp

from weblake.api import operation
from weblake.dataset import ledger
from weblake.dataset.ledger import Ledger
from weblake.jobs import usage_reports
from weblake.loads import load_request, starts
from weblake.loads.load_request import LoadRequest, Naming

URLS = ["http://a.test/1", "http://a.test/2"]
ALONE = (Process(),)
#: Two at the same moment; a second one while the first may still be waiting for its answer.
TOGETHER, BEHIND = (Process(), Process()), (Process(), Process(ready=BEGAN + 1))


@pytest.fixture(autouse=True)
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a simulated clock, no randomness, and short time limits."""
    monkeypatch.setattr(ledger, "utc_now", lambda: stamp(BEGAN))
    monkeypatch.setattr(secrets, "token_hex", lambda size: "00" * size)
    monkeypatch.setattr(usage_reports, "list_activity", functools.cache(usage_reports.list_activity))
    for room, name, seconds in (
        (operation, "START_DEADLINE_S", 4.0),
        (starts, "PROMPT_S", 1.0),
        (starts, "MARGIN_S", 2.0),
        (starts, "BETWEEN_S", 1.0),
    ):
        monkeypatch.setattr(room, name, seconds)


def batch() -> LoadRequest:
    return load_request.batch(URLS, Naming())


@pytest.mark.system
@proves("3.1", at="src/weblake/loads/starts.py", line="    while wait > 0:", becomes="    while False:", case="none")
@pytest.mark.parametrize("kind", ["replay", "burnt", "none"])
def test_every_schedule_pays_once_and_leaves_no_unreported_job(kind: str) -> None:
    """Crashes before and after every act of the longest run: there is no bound but the flow's own end."""
    assert check_all_ends(StartModel(batch(), kind), ALONE, crashes=2, losses=1) > 60
    assert check_all_ends(StartModel(batch(), kind, again_s=30.0), ALONE, crashes=1, losses=1) > 20


@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="    if self.replays and",
    becomes="    if not self.replays and",
)
def test_a_start_is_repeated_only_if_it_cannot_start_a_second_job() -> None:
    for kind in ("replay", "burnt", "none"):
        assert check_all_ends(StartModel(batch(), kind), ALONE, crashes=0, losses=1) > 5


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["replay", "burnt", "none"])
def test_schedules_of_two_crashes_and_two_lost_responses(kind: str) -> None:
    assert check_all_ends(StartModel(batch(), kind), ALONE, crashes=2, losses=2) > 400


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("crashes", "losses"), [(3, 1), (1, 3)])
def test_schedules_of_three_equal_faults(crashes: int, losses: int) -> None:
    assert check_all_ends(StartModel(batch(), "none"), ALONE, crashes, losses) > 200


def a_crawl(_: Path) -> LoadRequest:
    return load_request.crawl(URLS[0], Naming())


def a_scrape(_: Path) -> LoadRequest:
    return load_request.scrape(URLS[0], Naming(), timeout=1000)


def a_parse(folder: Path) -> LoadRequest:
    (folder / "a.html").write_text("<p>a</p>")
    return load_request.parse(folder / "a.html", Naming(), timeout=1000)


@pytest.mark.parametrize("request_for", [a_crawl, a_scrape, a_parse])
def test_every_kind_of_load_is_paid_once(request_for: Callable[[Path], LoadRequest], tmp_path: Path) -> None:
    for kind in ("replay", "none"):
        assert check_all_ends(StartModel(request_for(tmp_path), kind, slow_s=100.0), ALONE, crashes=1, losses=0) >= 3
        assert check_all_ends(StartModel(request_for(tmp_path), kind, slow_s=100.0), ALONE, crashes=0, losses=1) >= 3


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("request_for", [a_crawl, a_scrape, a_parse])
@pytest.mark.parametrize("kind", ["replay", "burnt", "none"])
def test_every_kind_of_load_with_a_crash_and_a_loss(
    request_for: Callable[[Path], LoadRequest], kind: str, tmp_path: Path
) -> None:
    assert check_all_ends(StartModel(request_for(tmp_path), kind, slow_s=100.0), ALONE, crashes=1, losses=1) > 20


@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="while isinstance(came, Pause) and came.open:",
    becomes="while isinstance(came, Pause):",
    case="none",
)
@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="return took > PROMPT_S",
    becomes="return took > 1e9",
    case="none",
)
@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="if not self.ledger.record_start(record):",
    becomes="if self.ledger.record_start(record) is None:",
    case="none",
)
@pytest.mark.parametrize("kind", ["replay", "burnt", "none"])
def test_two_concurrent_processes_pay_once(kind: str) -> None:
    """Also where one is told to wait, or takes long to record its start: the other reckons from that record."""
    for processes in (TOGETHER, BEHIND):
        assert check_all_ends(StartModel(batch(), kind), processes, crashes=0, losses=0)
    assert check_all_ends(StartModel(batch(), kind), BEHIND, crashes=0, losses=1)


@proves("3.1", at="src/weblake/loads/starts.py", line="attempt = 1 if self.replays else n", becomes="attempt = n")
@pytest.mark.system  # 7 s: two processes and two losses
def test_a_rate_limited_start_and_its_repetition_send_the_same_key() -> None:
    """Both are told to wait: then one starts anew while the other repeats the attempt before."""
    assert check_all_ends(StartModel(batch(), "replay", paced_s=1), TOGETHER, crashes=0, losses=2)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["replay", "none"])
def test_two_processes_interleaved_at_every_step(kind: str) -> None:
    for crashes, losses in ((1, 0), (0, 1)):
        assert check_all_ends(StartModel(batch(), kind), TOGETHER, crashes, losses)
        assert check_all_ends(StartModel(batch(), kind, fine=True), BEHIND, crashes, losses)
    assert check_all_ends(StartModel(batch(), kind), BEHIND, crashes=1, losses=1)


@pytest.mark.parametrize("kind", ["burnt", "none"])
def test_without_an_activity_list_a_lost_response_needs_a_decision(kind: str) -> None:
    model = StartModel(batch(), kind, lists_activity=False)
    ends = list(model.explore(State(ALONE, crashes=1, losses=1)))
    for end in ends:
        check_end(model, end)
    asked = [process.error for end in ends for process in end.processes if process.error]
    assert asked
    assert all(error.startswith("OutcomeUnknown") for error in asked)


def test_a_lost_start_is_not_looked_up_at_another_service() -> None:
    """The activity list of another service would say that nothing was started, and it would be paid twice."""
    for kind in ("none", "replay"):
        here = StartModel(batch(), kind)
        paid = next(
            state for state in states_after_a_crash(here, State(ALONE, crashes=1, losses=0)) if state.service.jobs
        )
        there = StartModel(batch(), kind, service="https://other.test")
        moved = State((Process(),), 0, 0, now=paid.now, records=paid.records, service=Service())
        (end,) = there.explore(moved)
        assert "OutcomeUnknown" in str(end.processes[0].error)
        assert end.service.jobs == ()
        back = State((Process(),), 0, 0, now=paid.now, records=paid.records, service=paid.service)
        assert [end.processes[0].job for end in here.explore(back)] == [paid.service.jobs[0][0]]


def states_after_a_crash(model: StartModel, state: State) -> Any:
    """Yield the states in which a process has just died."""
    seen, left = {state}, [state]
    while left:
        now = left.pop()
        for each in model.after(now):
            if each not in seen:
                seen.add(each)
                left.append(each)
                if each.crashes < now.crashes:
                    yield each


def test_a_worker_lost_at_any_step_leaves_an_orphan_that_names_the_paid_job() -> None:
    """The worker never runs again: only the ledger and the activity list name the job."""
    for kind in ("replay", "burnt", "none"):
        model = StartModel(batch(), kind)
        lost = list(states_after_a_crash(model, State(ALONE, crashes=1, losses=0)))
        paid = 0
        for state in lost:
            service = state.service.at(state.now + 100, kind)
            found = orphans_after(model, state)
            for job, _ in service.jobs:
                assert [{each.job_id, *(each.candidates or ())} - {None} for each in found] == [{job}], state.trail
                paid += 1
            if not service.jobs:
                assert all(each.job_id is None and not each.candidates for each in found), state.trail
        assert paid >= 3


@proves("P10", at="src/weblake/loads/starts.py", line="    if found:", becomes="    if False:")
def test_p10_a_worker_lost_between_the_response_and_its_record_is_recovered_by_the_next() -> None:
    for kind in ("replay", "burnt", "none"):
        model = StartModel(batch(), kind)
        lost = [
            state
            for state in states_after_a_crash(model, State(ALONE, crashes=1, losses=0))
            if state.service.jobs and not any(name.endswith(".job.json") for name, _ in state.records)
        ]
        assert lost, "no worker died there"
        for state in lost:
            for end in model.explore(state):
                assert [process.job for process in end.processes] == [state.service.jobs[0][0]], state.trail
                assert len(end.service.jobs) == 1


def test_control_a_start_flow_that_repeats_blindly_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a naive flow, in the same worlds, pays more than once."""
    monkeypatch.setattr(starts.JobStarter, "_resolve", lambda self, last: resolve_by_repeating(last, self.ledger))
    model = StartModel(batch(), "none")
    assert max(len(end.service.jobs) for end in model.explore(State(ALONE, crashes=1, losses=0))) > 1


def resolve_by_repeating(last: Any, ledger: Ledger) -> Any:
    ledger.void_start(last, "no answer came")
    return
    yield
