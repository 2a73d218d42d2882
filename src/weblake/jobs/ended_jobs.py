"""Find the jobs of a kind that have ended, with the activity list and one status poll of each job.

`EndedJobs` does a round of polls; `WatcherState` is what a watcher keeps between rounds and over restarts, in bounds;
`poll_all` polls any jobs, a few at a time. The activity list goes back 24 hours.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from typing_extensions import Self

from weblake import aio
from weblake.api.models import parse_time
from weblake.errors import FixRequest, JobGone, PermissionDenied, WeblakeError
from weblake.jobs import usage_reports
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.retry import Retry
from weblake.steps import Flow

T = TypeVar("T")

#: A job's own words for its end, and ours for one that the service no longer knows.
ENDS, GONE = ("completed", "failed", "cancelled"), "gone"
#: Status polls at the same time.
AT_ONCE = 8
#: Failed status polls after which a round is broken off: the next one goes on.
ROUND_TRIES = 5
#: A job just started may not be found yet: so many polls and seconds of "not found" are borne before it counts as gone.
GONE_POLLS, GONE_S = 3, 30.0
#: Running jobs that one watcher follows, and ended ones that it remembers: 1000 ids with their times are 55 KB of JSON,
#: below the 64 KB that an orchestrator's state should stay under.
MAX_PENDING, MAX_OVER = 600, 400
#: How long ended jobs are remembered by id: the activity list's 24 hours and one more.
WINDOW_MS = 25 * 3_600_000

#: What is known of a job's own: the service has no such job, or keeps this one from us.
_ABOUT_THE_JOB = (JobGone, PermissionDenied, FixRequest)


class AsyncFlowRunner(Protocol):
    """The part of `AsyncClient` that is used here."""

    @property
    def retry(self) -> Retry:
        """Its retry policy."""

    async def run(self, flow: Flow[T]) -> T:
        """Drive a conversation with the service and return what it comes to."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One entry of the activity list."""

    job_id: str
    #: Milliseconds since 1970, by the service's clock.
    created: int
    target: str | None

    def fits(self, target: str | None) -> bool:
        """Whether this is its target, where `*` stands for any characters; None is any target."""
        if target is None:
            return True
        return re.fullmatch(".*".join(map(re.escape, target.split("*"))), self.target or "", re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class PollRound:
    """The results of one round of polls."""

    #: Oldest first.
    jobs: tuple[ListedJob, ...]
    #: The last status of those that are over, by id.
    ended: Mapping[str, Mapping[str, object]]
    #: Whether the status of every job is known.
    complete: bool
    #: Has jobs polled with the next round that the activity list no longer shows.
    also: Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class PollResults:
    """The results of status polls; a job in neither mapping was not polled."""

    #: The head of each status reply, by job id.
    heads: Mapping[str, Mapping[str, object]]
    #: Why a job's status could not be read, by job id.
    errors: Mapping[str, WeblakeError]


async def poll_all(
    client: AsyncFlowRunner, jobs: Sequence[JobRef], *, at_once: int = AT_ONCE, until: float | None = None
) -> PollResults:
    """Asks for the status of each job once, a few at a time, without its documents.

    Breaks off when the service is in trouble: after ROUND_TRIES polls that failed for a reason of the service's.

    Args:
        client: The client.
        jobs: In the order in which they are asked about.
        at_once: Polls at the same time.
        until: Monotonic seconds at which it is broken off; never, where it is not given.
    """
    heads, failed = dict[str, Mapping[str, object]](), dict[str, WeblakeError]()
    waiting, trouble = iter(jobs), 0

    async def work() -> None:
        nonlocal trouble
        for job in waiting:
            if trouble >= ROUND_TRIES:
                return
            try:
                heads[job.job_id] = await client.run(get_status(job, client.retry))
            except WeblakeError as error:
                failed[job.job_id] = error
                trouble += not isinstance(error, _ABOUT_THE_JOB)

    left = None if until is None else until - time.monotonic()
    with suppress(TimeoutError):
        async with aio.timeout(left):
            await aio.run_together(work() for _ in range(min(at_once, len(jobs))))
    return PollResults(heads, failed)


class EndedJobs:
    """Polls jobs in rounds; each job is polled until it has ended."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._over: dict[str, Mapping[str, object]] = {}
        self._also: set[str] = set()
        #: When a job was first not found (monotonic seconds), and how often since.
        self._missed: dict[str, tuple[float, int]] = {}

    async def __call__(
        self, client: AsyncFlowRunner, *, watcher: WatcherState | None = None, until: float | None = None
    ) -> PollRound:
        """One round; raises the last error where not one status could be read.

        Args:
            client: The client.
            watcher: What the only watcher remembers: what it has settled needs no poll, what it follows needs one.
            until: Monotonic seconds at which the polls are broken off. With it they go in no order, so that each job
                has its turn in some round.
        """
        listed = await client.run(usage_reports.activity(client.retry, endpoint=self._kind))
        jobs = tuple(_jobs((entry.id, entry.created_at, entry.target) for entry in listed))
        also, self._also = self._also | (watcher.pending.keys() if watcher else set()), set()
        open_ids = [job.job_id for job in jobs if watcher is None or not watcher.knows(job)]
        asked = dict.fromkeys([*open_ids, *sorted(also)])
        self._over = {job_id: head for job_id, head in self._over.items() if job_id in asked}
        self._missed = {job_id: misses for job_id, misses in self._missed.items() if job_id in asked}
        complete = await self._poll(client, [job_id for job_id in asked if job_id not in self._over], until)
        return PollRound(jobs, dict(self._over), complete, self._also.update)

    async def _poll(self, client: AsyncFlowRunner, job_ids: list[str], until: float | None) -> bool:
        """Polls these; returns whether each of them answered."""
        if until is not None:
            random.shuffle(job_ids)
        answers = await poll_all(client, [JobRef(self._kind, job_id) for job_id in job_ids], until=until)
        missed = [job_id for job_id, error in answers.errors.items() if isinstance(error, _ABOUT_THE_JOB)]
        for job_id in missed:
            self._miss(job_id)
        for job_id, head in answers.heads.items():
            self._missed.pop(job_id, None)
            status = str(head.get("status")).lower()
            if status in ENDS:
                self._over[job_id] = {**{name: head.get(name) for name in _COUNTS}, "status": status}
        answered = len(answers.heads) + len(missed)
        if len(answers.errors) > len(missed) and not answered:
            raise list(answers.errors.values())[-1]
        return answered == len(job_ids)

    def _miss(self, job_id: str) -> None:
        first, times = self._missed.get(job_id, (time.monotonic(), 0))
        self._missed[job_id] = first, times + 1
        if times + 1 >= GONE_POLLS and time.monotonic() - first >= GONE_S:
            self._over[job_id] = {"status": GONE}


@dataclass(slots=True)
class WatcherState:
    """The jobs that a watcher has reported or follows.

    Every job created up to `watermark` is settled, unless it is among `pending`; of later ones, those in `over` are.
    """

    watermark: int = -1
    #: Running jobs, and when they were created.
    pending: dict[str, int] = field(default_factory=dict)
    #: Ended ones, likewise.
    over: dict[str, int] = field(default_factory=dict)
    #: How many memories like this one share the room of one.
    share: int = 1

    @classmethod
    def read(cls, memory: Mapping[str, object], *, share: int = 1) -> Self:
        """Return the state from its JSON form; entries that are not valid are left out."""
        watermark = memory.get("watermark")
        known = watermark if isinstance(watermark, int) else -1
        return cls(known, _times(memory.get("pending")), _times(memory.get("over")), share)

    def write(self) -> dict[str, object]:
        """Return the state in its JSON form."""
        return {"watermark": self.watermark, "pending": dict(self.pending), "over": dict(self.over)}

    def knows(self, job: ListedJob) -> bool:
        """Return whether a job was reported in an earlier round."""
        return job.job_id in self.over or (job.created <= self.watermark and job.job_id not in self.pending)

    def settle(self, jobs: Iterable[ListedJob], ended: Mapping[str, Mapping[str, object]]) -> list[ListedJob]:
        """Record a round and return the jobs that have ended since the last one, oldest first."""
        news = {job.job_id: job for job in jobs}
        for job_id, created in self.pending.items():
            news.setdefault(job_id, ListedJob(job_id, created, None))
        fresh: list[ListedJob] = []
        for job in sorted(news.values(), key=lambda job: job.created):
            if self.knows(job):
                continue
            if job.job_id in ended:
                self.pending.pop(job.job_id, None)
                self.over[job.job_id] = job.created
                fresh.append(job)
            elif job.job_id not in self.pending and len(self.pending) >= MAX_PENDING // self.share:
                break  # no room to follow it, so nothing later may be settled before it
            else:
                self.pending[job.job_id] = job.created
        self._forget()
        return fresh

    def _forget(self) -> None:
        """Drops the oldest of `over` into the watermark."""
        by_age = sorted(self.over.items(), key=lambda item: item[1])
        horizon = max([*self.over.values(), *self.pending.values()], default=0) - WINDOW_MS
        kept = [item for item in by_age if item[1] >= horizon][-(MAX_OVER // self.share) :]
        dropped = by_age[: len(by_age) - len(kept)]
        if dropped:
            self.watermark = max(self.watermark, dropped[-1][1])
            self.over = dict(kept)


#: What is kept of a status reply.
_COUNTS = ("completed", "total", "creditsUsed")


def _jobs(entries: Iterable[tuple[str | None, str | None, str | None]]) -> Iterator[ListedJob]:
    """The entries as jobs, oldest first. One without a time takes that of the entry before it, which is newer."""
    created, found = int(time.time() * 1000), list[ListedJob]()
    for job_id, created_at, target in entries:
        at = parse_time(created_at)
        created = created if at is None else round(at.timestamp() * 1000)
        if job_id:
            found.append(ListedJob(job_id, created, target))
    yield from sorted(found, key=lambda job: job.created)


def _times(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(job_id): created for job_id, created in value.items() if isinstance(created, int)}
