"""Paid once: every schedule of crashes and lost replies, against the real start flow.

A world holds what a service would hold: jobs, idempotency keys, an activity list. A schedule says after which of the
flow's outward acts the process dies, and which replies are lost. The ledger outlives the process; the flow is begun
again until it ends. What is counted is what was paid.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from weblake import orders, starts
from weblake.errors import OutcomeUnknown, WeblakeError
from weblake.ledger import Intent, Ledger, new_nonce
from weblake.orders import Naming
from weblake.retry import Retry
from weblake.steps import NoReply, Now, Reply, Request, Send, Sleep

URLS = ["http://a.test/1", "http://a.test/2"]
BEGAN = 1_800_000_000.0


class Crash(BaseException):
    """The process died."""


@dataclass
class World:
    """A service of one of three kinds, and a clock."""

    #: replay: same key, same answer; burnt: a key used again is a 409 without an id; none: keys are ignored.
    kind: str
    lists_activity: bool = True
    now: float = BEGAN
    jobs: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    slept: float = 0.0

    def handle(self, request: Request) -> Reply:
        if request.method == "POST":
            return self.start(dict(request.headers)["x-idempotency-key"])
        assert request.path == "/v2/team/activity"
        if not self.lists_activity:
            return reply(404, {"success": False, "error": "no such thing"})
        entries = [
            {"id": job, "endpoint": "batch_scrape", "created_at": stamp(BEGAN + 1), "target": URLS[0]}
            for job in self.jobs
        ]
        return reply(200, {"success": True, "data": entries, "cursor": None, "has_more": False})

    def start(self, key: str) -> Reply:
        if self.kind == "replay" and key in self.answers:
            return reply(200, {"success": True, "id": self.answers[key]})
        if self.kind == "burnt" and key in self.answers:
            return reply(409, {"success": False, "error": "Idempotency key already used"})
        job = str(uuid.uuid4())
        self.jobs.append(job)
        self.answers[key] = job
        return reply(200, {"success": True, "id": job, "invalidURLs": []})


def reply(status: int, body: object) -> Reply:
    return Reply(status, {"content-type": "application/json"}, json.dumps(body).encode(), wall=BEGAN)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@dataclass
class Schedule:
    """Which acts the process survives, and what becomes of replies."""

    #: The act (counted over all runs) before which the process dies; a set of them.
    crashes: frozenset[int]
    #: What happens to the n-th POST: answered, lost after it took effect, or lost before.
    posts: tuple[str, ...]
    act: int = 0
    post: int = 0

    def step(self) -> None:
        self.act += 1
        if self.act in self.crashes:
            raise Crash

    def fate(self) -> str:
        fate = self.posts[self.post] if self.post < len(self.posts) else "answered"
        self.post += 1
        return fate


class DyingStorage:
    """Records that outlive the process, which may die before or after each of them."""

    def __init__(self, records: dict[str, bytes], schedule: Schedule) -> None:
        self._records = records
        self._schedule = schedule

    def create(self, name: str, data: bytes) -> bool:
        self._schedule.step()
        made = self._records.setdefault(name, data) is data
        self._schedule.step()
        return made

    def read(self, name: str) -> bytes | None:
        return self._records.get(name)

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self._records if name.startswith(prefix))


def run_once(world: World, schedule: Schedule, records: dict[str, bytes], service: str = "given") -> str:
    """One process: from the intent to the job's id, or to its death."""
    ledger = Ledger(DyingStorage(records, schedule))  # type: ignore[arg-type]
    order = orders.batch(URLS, Naming("/lake"))
    intent = Intent(
        writer=new_nonce(),
        load_id=order.load_id,
        kind=order.kind,
        endpoint="batch_scrape",
        created_at=stamp(BEGAN),
        request_sha256=order.request_sha,
        first_target=URLS[0],
        replay=world.kind == "replay",
        service=service,
    )
    intent = ledger.begin(intent)
    assert order.start is not None
    plan = starts.Plan(intent, order.start, order.endpoint, service=service)
    flow = starts.start(plan, ledger, Retry(jitter=lambda: 0.5))
    answer: object = None
    while True:
        try:
            step = flow.send(answer)
        except StopIteration as end:
            job: str = end.value[0].job_id
            return job
        if isinstance(step, Send):
            schedule.step()
            fate = schedule.fate() if step.request.method == "POST" else "answered"
            if fate == "lost before":
                answer = NoReply("reset", sent=True)
            else:
                answer = world.handle(step.request)
                if fate == "lost after":
                    answer = NoReply("reset", sent=True)
            schedule.step()
        elif isinstance(step, Sleep):
            world.now += step.seconds
            world.slept += step.seconds
            answer = None
        else:
            assert isinstance(step, Now)
            answer = world.now


def live(world: World, schedule: Schedule) -> str | WeblakeError:
    """Runs until it ends, as an orchestrator would, beginning anew after each crash."""
    records: dict[str, bytes] = {}
    for _ in range(10):
        try:
            return run_once(world, schedule, records)
        except Crash:
            world.now += 1.0
        except WeblakeError as error:
            return error
    raise AssertionError("it did not end in ten runs")


def schedules() -> Iterator[tuple[frozenset[int], tuple[str, ...]]]:
    fates = ("answered", "lost after", "lost before")
    for crashes in [(), *itertools.combinations(range(1, 17), 1), *itertools.combinations(range(1, 17), 2)]:
        for posts in itertools.product(fates, repeat=2):
            yield frozenset(crashes), posts


@pytest.mark.parametrize("kind", ["replay", "burnt", "none"])
def test_every_schedule_pays_once_and_strands_nothing(kind: str) -> None:
    for crashes, posts in schedules():
        world = World(kind)
        outcome = live(world, Schedule(crashes, posts))
        told = f"{kind}: crashes {sorted(crashes)}, posts {posts}: {outcome!r}"
        assert len(world.jobs) <= 1, f"paid {len(world.jobs)} times; {told}"
        if isinstance(outcome, OutcomeUnknown):
            assert world.kind == "burnt", told
            continue
        assert isinstance(outcome, str), told
        assert world.jobs == [outcome], told


@pytest.mark.parametrize("kind", ["burnt", "none"])
def test_without_an_activity_list_a_lost_reply_asks_a_person(kind: str) -> None:
    for crashes, posts in schedules():
        world = World(kind, lists_activity=False)
        outcome = live(world, Schedule(crashes, posts))
        told = f"{kind}: crashes {sorted(crashes)}, posts {posts}: {outcome!r}"
        assert len(world.jobs) <= 1, told
        if world.jobs and not isinstance(outcome, str):
            assert isinstance(outcome, OutcomeUnknown), told  # a paid job is never left unread without saying so


def test_a_lost_start_is_not_looked_up_at_another_service() -> None:
    """The activity list of another service would say that nothing was started, and it would be paid twice."""
    for kind in ("none", "replay"):
        first, second = World(kind), World(kind)
        records: dict[str, bytes] = {}
        with pytest.raises(Crash):
            run_once(first, Schedule(frozenset([6]), ()), records, service="https://one.test")
        assert len(first.jobs) == 1
        with pytest.raises(OutcomeUnknown, match=r"https://one\.test"):
            run_once(second, Schedule(frozenset(), ()), records, service="https://other.test")
        assert second.jobs == []
        assert run_once(first, Schedule(frozenset(), ()), records, service="https://one.test") == first.jobs[0]


def test_the_same_exploration_catches_a_start_that_is_simply_repeated() -> None:
    """The control: a naive flow, on the same worlds and schedules, pays more than once."""
    most = 0
    for crashes, posts in schedules():
        world, schedule = World("none"), Schedule(crashes, posts)
        for _ in range(10):
            try:
                for attempt in range(3):
                    schedule.step()
                    fate = schedule.fate()
                    if fate != "lost before":
                        world.start(str(attempt))
                    schedule.step()
                    if fate == "answered":
                        break
                schedule.step()
                break
            except Crash:
                continue
        most = max(most, len(world.jobs))
    assert most > 1
