"""Find the jobs of a kind that have ended, with the activity list and one status poll of each job.

`EndedJobs` runs a round of polls; `WatcherState` is the bounded state that a watcher keeps between rounds and across
restarts; `poll_all` polls any jobs, a few at a time. The activity list goes back 24 hours.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Protocol, Self, TypeVar

from msgspec.structs import replace

from weblake.api.models import parse_time
from weblake.api.steps import Flow
from weblake.errors import FixRequest, JobGone, PermissionDenied, WeblakeError
from weblake.jobs import usage_reports
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.retry import SINGLE, Retry, RetryPolicy

T = TypeVar("T")

#: The service's final statuses of a job, and weblake's own status for a job that the service no longer has.
ENDS, GONE = ("completed", "failed", "cancelled"), "gone"
#: Status polls at the same time.
PARALLEL_POLLS = 8
#: Failed status polls after which a round ends early; the next round continues.
ROUND_TRIES = 5
#: Rounds in a row in which the status of a job could not be read, after which the other jobs no longer wait for it.
UNREADABLE_ROUNDS = 3
#: Polls and seconds of "not found" before a job counts as gone: a job just started may not be found yet.
GONE_POLLS, GONE_S = 3, 30.0
#: Maximum number of running jobs that one watcher follows, and of ended jobs that it remembers: 1000 ids with their
#: times are 55 KB of JSON, below the 64 KB that an orchestrator's state should not exceed.
MAX_PENDING, MAX_OVER = 600, 400
#: Milliseconds that the ids of ended jobs are remembered: the activity list's 24 hours and one more.
WINDOW_MS = 25 * 3_600_000

#: Errors about the job and not the service: there is no such job, or the client may not read it.
_JOB_ERRORS = (JobGone, PermissionDenied, FixRequest)


class AsyncFlowRunner(Protocol):
    """The part of `AsyncClient` that this module uses."""

    @property
    def retry(self) -> Retry:
        """The retry rules of the client."""

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end and return its result."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One entry of the activity list."""

    job_id: str
    #: Milliseconds since 1970, by the service's clock.
    created: int
    target: str | None

    def fits(self, target: str | None) -> bool:
        """Return whether the job's target matches; `*` matches any characters, and None any target."""
        if target is None:
            return True
        return re.fullmatch(".*".join(map(re.escape, target.split("*"))), self.target or "", re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class PollRound:
    """The results of one round of polls."""

    #: Oldest first.
    jobs: tuple[ListedJob, ...]
    #: The last status fields of the jobs that have ended, by id.
    ended: Mapping[str, Mapping[str, object]]
    #: Whether the status of every job is known, except of those in `unreadable`.
    complete: bool
    #: Adds the ids of jobs to the next round that the activity list no longer shows.
    also: Callable[[Iterable[str]], None]
    #: The errors of jobs whose status could not be read for UNREADABLE_ROUNDS rounds, fewer than ROUND_TRIES; they
    #: count as running.
    unreadable: Mapping[str, WeblakeError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PollResults:
    """The results of status polls; a job in neither mapping was not polled."""

    #: The head of each status response, by job id.
    heads: Mapping[str, Mapping[str, object]]
    #: The error of each poll that failed, by job id.
    errors: Mapping[str, WeblakeError]


async def poll_all(
    client: AsyncFlowRunner, jobs: Sequence[JobRef], *, at_once: int = PARALLEL_POLLS, until: float | None = None
) -> PollResults:
    """Poll the status of each job once, a few at a time, without its documents, and return the results.

    It ends early if the service fails: after ROUND_TRIES polls with an error that does not concern the job only.

    Args:
        client: The client.
        jobs: The jobs, in the order of the polls.
        at_once: Maximum number of polls at the same time.
        until: Deadline in monotonic seconds; None for no deadline. A time after it that the service names is not
            waited for: the poll fails with it at once.
    """
    heads, failed = dict[str, Mapping[str, object]](), dict[str, WeblakeError]()
    waiting, trouble = iter(jobs), 0

    async def work() -> None:
        nonlocal trouble
        for job in waiting:
            if trouble >= ROUND_TRIES:
                return
            try:
                heads[job.job_id] = await client.run(get_status(job, client.retry, _policy(until)))
            except WeblakeError as error:
                failed[job.job_id] = error
                trouble += not isinstance(error, _JOB_ERRORS)

    left = None if until is None else until - time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(left), asyncio.TaskGroup() as workers:
            for _ in range(min(at_once, len(jobs))):
                workers.create_task(work())
    return PollResults(heads, failed)


def _policy(until: float | None) -> RetryPolicy:
    left = SINGLE.wait_s if until is None else until - time.monotonic()
    return replace(SINGLE, wait_s=min(left, SINGLE.wait_s))


class EndedJobs:
    """Polls jobs in rounds; each job is polled until it has ended."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._over: dict[str, Mapping[str, object]] = {}
        self._also: set[str] = set()
        #: When a job was first not found (monotonic seconds), and how many polls did not find it.
        self._missed: dict[str, tuple[float, int]] = {}
        #: In how many rounds in a row the status of a job could not be read.
        self._failed: dict[str, int] = {}

    async def __call__(
        self, client: AsyncFlowRunner, *, watcher: WatcherState | None = None, until: float | None = None
    ) -> PollRound:
        """Run one round of polls and return its results; raise the last error if no status could be read.

        Args:
            client: The client.
            watcher: The state of the only watcher: jobs that it has reported are not polled, jobs that it follows are.
            until: Deadline of the polls in monotonic seconds. If it is given, the order is random, so that each job is
                polled in some round.
        """
        listed = await client.run(usage_reports.activity(client.retry, endpoint=self._kind))
        jobs = tuple(_jobs((entry.id, entry.created_at, entry.target) for entry in listed))
        also, self._also = self._also | (watcher.pending.keys() if watcher else set()), set()
        open_ids = [job.job_id for job in jobs if watcher is None or not watcher.knows(job)]
        asked = dict.fromkeys([*open_ids, *sorted(also)])
        self._over = {job_id: head for job_id, head in self._over.items() if job_id in asked}
        self._missed = {job_id: misses for job_id, misses in self._missed.items() if job_id in asked}
        self._failed = {job_id: rounds for job_id, rounds in self._failed.items() if job_id in asked}
        job_ids = [job_id for job_id in asked if job_id not in self._over]
        complete, unreadable = await self._poll(client, job_ids, until)
        return PollRound(jobs, dict(self._over), complete, self._also.update, unreadable)

    async def _poll(
        self, client: AsyncFlowRunner, job_ids: list[str], until: float | None
    ) -> tuple[bool, Mapping[str, WeblakeError]]:
        """Poll these jobs; return the last two fields of the round."""
        if until is not None:
            random.shuffle(job_ids)
        # Jobs whose status cannot be read come last: ROUND_TRIES of them would keep all later ones from being polled.
        job_ids.sort(key=lambda job_id: self._failed.get(job_id, 0))
        answers = await poll_all(client, [JobRef(self._kind, job_id) for job_id in job_ids], until=until)
        missed = [job_id for job_id, error in answers.errors.items() if isinstance(error, _JOB_ERRORS)]
        for job_id in missed:
            self._miss(job_id)
        for job_id, head in answers.heads.items():
            self._missed.pop(job_id, None)
            status = str(head.get("status")).lower()
            if status in ENDS:
                self._over[job_id] = {**{name: head.get(name) for name in _COUNTS}, "status": status}
        answered = {*answers.heads, *missed}
        failed = {job_id: error for job_id, error in answers.errors.items() if job_id not in answered}
        self._failed = {job_id: rounds for job_id, rounds in self._failed.items() if job_id not in answered}
        for job_id in failed:
            self._failed[job_id] = self._failed.get(job_id, 0) + 1
        unknown = [job_id for job_id in job_ids if job_id not in answered]
        # More of them are an outage of the service, after which jobs that had ended before must not count as new.
        conclusive = len(unknown) < ROUND_TRIES and all(
            self._failed.get(each, 0) >= UNREADABLE_ROUNDS for each in unknown
        )
        if failed and not answered and not conclusive:
            raise list(failed.values())[-1]
        return conclusive, failed if conclusive else {}

    def _miss(self, job_id: str) -> None:
        first, times = self._missed.get(job_id, (time.monotonic(), 0))
        self._missed[job_id] = first, times + 1
        if times + 1 >= GONE_POLLS and time.monotonic() - first >= GONE_S:
            self._over[job_id] = {"status": GONE}


@dataclass(slots=True)
class WatcherState:
    """The jobs that a watcher has reported or follows.

    Every job created up to `watermark` has been reported, unless it is in `pending`; of later jobs, those in `over`
    have been reported.
    """

    watermark: int = -1
    #: Running jobs and the times of their creation, by id; milliseconds since 1970.
    pending: dict[str, int] = field(default_factory=dict)
    #: Ended jobs, in the same form.
    over: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, memory: Mapping[str, object]) -> Self:
        """Return the state from its JSON form; entries that are not valid are left out."""
        watermark = memory.get("watermark")
        known = watermark if isinstance(watermark, int) else -1
        return cls(known, _times(memory.get("pending")), _times(memory.get("over")))

    def write(self) -> dict[str, object]:
        """Return the state in its JSON form."""
        return {"watermark": self.watermark, "pending": dict(self.pending), "over": dict(self.over)}

    def knows(self, job: ListedJob) -> bool:
        """Return whether a job was reported in an earlier round."""
        return job.job_id in self.over or (job.created <= self.watermark and job.job_id not in self.pending)

    def record_round(self, jobs: Iterable[ListedJob], ended: Mapping[str, Mapping[str, object]]) -> list[ListedJob]:
        """Record a round and return the jobs that have ended since the last one, oldest first."""
        news = {job.job_id: job for job in jobs}
        for job_id, created in self.pending.items():
            news.setdefault(job_id, ListedJob(job_id, created, None))
        newly_ended: list[ListedJob] = []
        for job in sorted(news.values(), key=lambda job: job.created):
            if self.knows(job):
                continue
            if job.job_id in ended:
                self.pending.pop(job.job_id, None)
                self.over[job.job_id] = job.created
                newly_ended.append(job)
            elif job.job_id not in self.pending and len(self.pending) >= MAX_PENDING:
                break  # it cannot be followed, so no later job may be recorded before it
            else:
                self.pending[job.job_id] = job.created
        self._forget()
        return newly_ended

    def _forget(self) -> None:
        """Remove the oldest jobs from `over` and raise the watermark to cover them."""
        by_age = sorted(self.over.items(), key=lambda item: item[1])
        horizon = max([*self.over.values(), *self.pending.values()], default=0) - WINDOW_MS
        kept = [item for item in by_age if item[1] >= horizon][-MAX_OVER:]
        dropped = by_age[: len(by_age) - len(kept)]
        if dropped:
            self.watermark = max(self.watermark, dropped[-1][1])
            self.over = dict(kept)


#: Rounding up would turn the last millisecond of the year 9999 into a time that Python cannot represent.
_EPOCH, _MILLISECOND = datetime.fromtimestamp(0, timezone.utc), timedelta(milliseconds=1)
#: Fields of a status response that are kept.
_COUNTS = ("completed", "total", "creditsUsed")


def _jobs(entries: Iterable[tuple[str | None, str | None, str | None]]) -> Iterator[ListedJob]:
    """Yield the entries as jobs, oldest first. An entry without a time gets that of the previous, newer entry.

    Of several entries of a job (URLs were appended to it) the first one counts, which is the newest.
    """
    created, found = int(time.time() * 1000), dict[str, ListedJob]()
    for job_id, created_at, target in entries:
        at = parse_time(created_at)
        created = created if at is None else (at - _EPOCH) // _MILLISECOND
        if job_id:
            found.setdefault(job_id, ListedJob(job_id, created, target))
    yield from sorted(found.values(), key=lambda job: job.created)


def _times(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(job_id): created for job_id, created in value.items() if isinstance(created, int)}
