"""The wall clock jumps by an hour or by ten years during or between the start, the wait and the landing of a load."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from pathlib import Path

import pytest
from catalogue import proves
from scripted_job import url_of
from simulated_service import BEGAN, Clock, Content, Job, Page, SimulatedClient, SimulatedService

from weblake.api.steps import NoResponse, Request, Response
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import DeadlineExceeded, JobGone
from weblake.loads import intents, load, load_request, starts
from weblake.loads.load_request import Naming, Terms

HOUR, YEARS = 3600.0, 10 * 365.25 * 86400.0
URLS = [url_of(n) for n in range(3)]


@dataclass
class JumpingClock(Clock):
    """Apply the next jump at each read of the wall clock; the monotonic clock is not affected."""

    jumps: list[float] = field(default_factory=list)

    def wall(self) -> float:
        if self.jumps:
            self.wall_base += self.jumps.pop(0)
        return super().wall()


@dataclass
class ServiceWithDate(SimulatedService):
    """A service whose own clock is right, and which sends its time, as HTTP servers do."""

    def right(self) -> float:
        return BEGAN + self.clock.passed

    def add(self, kind: str, target: str, content: Content, job_id: str | None = None) -> Job:
        job = super().add(kind, target, content, job_id)
        job.created = self.right()
        return job

    def reply(self, body: object, status: int = 200, retry_after: str = "") -> Response:
        plain = super().reply(body, status, retry_after)
        return replace(plain, headers={**plain.headers, "date": formatdate(self.right(), usegmt=True)})


def content(polls: int) -> Content:
    documents: list[Page] = [{"markdown": url, "metadata": {"sourceURL": url}} for url in URLS]
    return Content(documents, polls=polls)


def world(clock: Clock, *, polls: int = 4, replay: bool = True, tape: Sequence[str | None] = ()) -> SimulatedService:
    return SimulatedService(lambda urls: content(polls), list(tape), replay=replay, clock=clock)


@pytest.mark.parametrize("by", [HOUR, -HOUR, YEARS, -YEARS, None])
def test_p8_a_load_takes_as_long_as_without_clock_jumps(tmp_path: Path, by: float | None) -> None:
    """Run a load with these jumps; `None` alternates between forward and backward jumps."""

    def taken(name: str, jumps: list[float]) -> float:
        random.seed(6)  # the pauses have jitter
        clock = JumpingClock(jumps=jumps)
        there = world(clock)
        with clock.installed():
            request = load_request.batch(URLS, Naming())
            landing = load.land(SimulatedClient(there), open_dataset(tmp_path / name), request, Terms(timeout_s=600))
        assert landing.receipt.stored == len(URLS)
        assert len(there.jobs) == 1
        return clock.passed

    # Not between a start's record and its sending: then the start is not sent, and is recorded again.
    jumps = [0.0] * 4 + ([by] if by is not None else [YEARS, -2 * YEARS, YEARS] * 9)
    assert taken("jumping", jumps) == pytest.approx(taken("steady", []), abs=0.5)


@proves(
    "P8",
    at="src/weblake/dataset/records.py",
    line="        return max(0.0, (datetime.now(timezone.utc) - datetime.fromisoformat(self.at)).total_seconds())",
    becomes="        return (datetime.now(timezone.utc) - datetime.fromisoformat(self.at)).total_seconds()",
    case="-3600.0",
)
@pytest.mark.parametrize("by", [0.0, -HOUR, -YEARS])
def test_p8_a_clock_set_back_does_not_move_the_deadline(tmp_path: Path, by: float) -> None:
    """The endless job of a retried load is ended in time, although the clock was changed since the first try."""
    clock = Clock()
    there = world(clock, polls=10**9)
    request = load_request.batch(URLS, Naming())
    terms = Terms(timeout_s=600, ends_job=True)
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        intents.start_load(SimulatedClient(there), dataset, request)
        clock.wall_base += by
        with suppress(DeadlineExceeded):
            load.land(SimulatedClient(there), dataset, request, terms)
    assert clock.passed < terms.timeout_s + load.GRACE_S + 60


def test_the_deadline_of_a_job_counts_from_the_first_try(tmp_path: Path) -> None:
    """A retry does not give an endless job its whole time again."""
    clock = Clock()
    there = world(clock, polls=10**9)
    request = load_request.batch(URLS, Naming())
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        intents.start_load(SimulatedClient(there), dataset, request)
        clock.sleep(500)
        with suppress(DeadlineExceeded):
            load.land(SimulatedClient(there), dataset, request, Terms(timeout_s=600, ends_job=True))
    (cancelled,) = [at for method, _, _, at, _ in there.heard if method == "DELETE"]
    assert cancelled == pytest.approx(600, abs=15)


@pytest.mark.parametrize(("started_before_s", "waited_s"), [(0.0, load.JUST_STARTED_S), (60.0, 0.0)])
def test_a_job_that_is_not_found_is_waited_for_only_just_after_its_start(
    tmp_path: Path, started_before_s: float, waited_s: float
) -> None:
    clock = Clock()
    there = world(clock)
    request = load_request.batch(URLS, Naming())
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        intents.start_load(SimulatedClient(there), dataset, request)
        clock.sleep(started_before_s)
        there.jobs.clear()
        begun = clock.passed
        with pytest.raises(JobGone):
            load.land(SimulatedClient(there), dataset, request, Terms(timeout_s=600))
    assert clock.passed - begun == pytest.approx(waited_s, abs=5)


class Dies(Exception):
    """The process ends."""


def start_and_die(clock: Clock, there: SimulatedService, dataset: Dataset) -> None:
    """Send a start whose response is lost, and end the process right after it."""

    def dies(seconds: float) -> None:
        raise Dies

    sleep, clock.sleep = clock.sleep, dies  # type: ignore[method-assign]
    with pytest.raises(Dies):
        intents.start_load(SimulatedClient(there), dataset, load_request.batch(URLS, Naming()))
    clock.sleep = sleep  # type: ignore[method-assign]


@proves(
    "P8",
    at="src/weblake/loads/starts.py",
    line="    wait = window if age < window + CLOCKS_S else 0.0",
    becomes="    wait = window - age",
    case="-3600.0",
)
@pytest.mark.parametrize("by", [0.0, -HOUR, -YEARS])
def test_p8_a_lost_start_is_looked_up_in_time_after_a_clock_was_set_back(tmp_path: Path, by: float) -> None:
    clock = Clock()
    there = world(clock, replay=False, tape=[None, "late"])
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        start_and_die(clock, there, dataset)
        clock.wall_base += by
        begun = clock.passed
        request = load_request.batch(URLS, Naming())
        assert load.land(SimulatedClient(there), dataset, request, Terms(timeout_s=600)).receipt.stored == len(URLS)
    assert len(there.jobs) == 1
    assert clock.passed - begun < 120


@proves(
    "P8",
    at="src/weblake/loads/lost_starts.py",
    line="(ahead_s if intent.clock_ahead_s is None else intent.clock_ahead_s)",
    becomes="ahead_s",
    case="60.0",
)
@pytest.mark.parametrize("ahead", [5.0, 60.0, HOUR, -60.0, -HOUR])
def test_p8_a_lost_start_of_a_machine_with_a_wrong_clock_is_found_by_another_machine(
    tmp_path: Path, ahead: float
) -> None:
    """By the clock of the second machine, the job may be older than the load."""
    clock = Clock()
    there = ServiceWithDate(lambda urls: content(4), [None, "late"], clock=clock)
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        clock.wall_base += ahead
        start_and_die(clock, there, dataset)
        clock.wall_base -= ahead
        request = load_request.batch(URLS, Naming())
        assert load.land(SimulatedClient(there), dataset, request, Terms(timeout_s=600)).receipt.stored == len(URLS)
    assert len(there.jobs) == 1


@proves(
    "P8",
    at="src/weblake/loads/starts.py",
    line="    wait = window if age < window + CLOCKS_S else 0.0",
    becomes="    wait = min(window, window - age)",
    case="60.0",
)
@pytest.mark.parametrize("behind", [0.0, 60.0, HOUR])
def test_p8_a_start_that_a_machine_with_a_slow_clock_is_sending_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: float
) -> None:
    """The second machine must not take the start for one that is long over: it takes effect at its deadline."""
    monkeypatch.setattr(starts, "MARGIN_S", 5.0)  # the fixture `short_waits` ends the wait before the deadline
    clock = Clock()
    there = ServiceWithDate(lambda urls: content(4), clock=clock)
    request = load_request.batch(URLS, Naming())
    slow: list[Request] = []

    def sent_slowly(start: Request) -> NoResponse:
        slow.append(start)
        there.send = arrives_late  # type: ignore[method-assign]
        return NoResponse("lost")

    def arrives_late(request: Request) -> Response | NoResponse:
        if slow and clock.passed >= slow[0].deadline_s:
            there.start(slow.pop())
        return SimulatedService.send(there, request)

    there.send = lambda asked: (  # type: ignore[method-assign]
        sent_slowly(asked) if asked.method == "POST" else SimulatedService.send(there, asked)
    )
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        clock.wall_base -= behind
        start_and_die(clock, there, dataset)
        clock.wall_base += behind
        assert load.land(SimulatedClient(there), dataset, request, Terms(timeout_s=600)).receipt.stored == len(URLS)
        for start in slow:
            there.start(start)
    assert len(there.jobs) == 1


@proves(
    "5.4",
    at="src/weblake/loads/starts.py",
    line="            at=start.at if adopted or started.replayed else at,",
    becomes="            at=start.at if started.replayed else at,",
)
def test_the_time_limit_of_a_job_whose_start_was_lost_counts_from_that_start(tmp_path: Path) -> None:
    """The run that finds the job may come hours later: the job has run, and has been paid for, all that time."""
    clock = Clock()
    there = world(clock, polls=10**9, replay=False, tape=[None, "late"])
    with clock.installed():
        dataset = open_dataset(tmp_path / "lake")
        start_and_die(clock, there, dataset)
        clock.sleep(500)
        request = load_request.batch(URLS, Naming())
        with suppress(DeadlineExceeded):
            load.land(SimulatedClient(there), dataset, request, Terms(timeout_s=600, ends_job=True))
    assert len(there.jobs) == 1
    (cancelled,) = [at for method, _, _, at, _ in there.heard if method == "DELETE"]
    assert cancelled == pytest.approx(600, abs=15)
