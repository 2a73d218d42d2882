"""Which jobs of a kind have ended: asked with the activity list and a cheap poll of each, and remembered within bounds.

`EndedJobs` asks and is shared by all watchers of a connection; `Seen` is what one watcher remembers. The activity list
goes back 24 hours. Imports: watching; weblake without Arrow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from airflow_provider_weblake.triggers.watching import Memory, parse_time
from weblake import orchestration
from weblake.errors import FixRequest, JobGone, PermissionDenied, WeblakeError

if TYPE_CHECKING:
    from weblake import AsyncClient

#: A job's own words for its end, and ours for one that the service no longer knows.
ENDS, GONE = ("completed", "failed", "cancelled"), "gone"
#: Status polls at the same time.
AT_ONCE = 8
#: Failed status polls after which a round is broken off: the next one goes on.
ROUND_TRIES = 5
#: A job just started may not be found yet: so many polls and seconds of "not found" are borne before it counts as gone.
GONE_POLLS, GONE_S = 3, 30.0
#: Running jobs that one watcher follows, and ended ones that it remembers: 1000 ids with their times are 55 KB of JSON,
#: below the 64 KB that Airflow asks a state to stay under.
MAX_PENDING, MAX_OVER = 600, 400
#: How long ended jobs are remembered by id: the activity list's 24 hours and one more.
WINDOW_MS = 25 * 3_600_000


@dataclass(frozen=True, slots=True)
class Job:
    """One entry of the activity list."""

    job_id: str
    #: Milliseconds since 1970, by the service's clock.
    created: int
    target: str | None


@dataclass(frozen=True, slots=True)
class Round:
    """What one poll found."""

    #: Oldest first.
    jobs: tuple[Job, ...]
    #: The last status of those that are over, by id.
    ended: Mapping[str, Mapping[str, object]]
    #: Whether the status of every job is known.
    complete: bool
    #: Has jobs polled with the next round that the activity list no longer shows.
    also: Callable[[Iterable[str]], None]


class EndedJobs:
    """Asks, with a memory of what is over: each job is polled until its end and then no more."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._over: dict[str, Mapping[str, object]] = {}
        self._also: set[str] = set()
        #: When a job was first not found (monotonic seconds), and how often since.
        self._missed: dict[str, tuple[float, int]] = {}

    async def __call__(self, client: AsyncClient) -> Round:
        """One round; raises the last error where not one status could be read."""
        listed = await client.run(orchestration.activity(client.retry, endpoint=self._kind))
        jobs = tuple(_jobs((entry.id, entry.created_at, entry.target) for entry in listed))
        also, self._also = self._also, set()
        asked = dict.fromkeys([*(job.job_id for job in jobs), *sorted(also)])
        self._over = {job_id: head for job_id, head in self._over.items() if job_id in asked}
        self._missed = {job_id: misses for job_id, misses in self._missed.items() if job_id in asked}
        open_jobs = [job_id for job_id in asked if job_id not in self._over]
        complete = await self._poll(client, open_jobs)
        return Round(jobs, dict(self._over), complete, self._also.update)

    async def _poll(self, client: AsyncClient, job_ids: list[str]) -> bool:
        """Polls these, a few at a time; returns whether each of them answered."""
        waiting, errors, answers = iter(job_ids), list[WeblakeError](), 0

        async def work() -> None:
            nonlocal answers
            for job_id in waiting:
                if len(errors) >= ROUND_TRIES:
                    return
                try:
                    await self._glance(client, job_id)
                    answers += 1
                except WeblakeError as error:
                    errors.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(job_ids))):
                group.create_task(work())
        if errors and not answers:
            raise errors[-1]
        return answers == len(job_ids)

    async def _glance(self, client: AsyncClient, job_id: str) -> None:
        try:
            head = await client.run(orchestration.glance(orchestration.JobRef(self._kind, job_id), client.retry))
        except (JobGone, PermissionDenied, FixRequest):
            first, times = self._missed.get(job_id, (time.monotonic(), 0))
            self._missed[job_id] = first, times + 1
            if times + 1 >= GONE_POLLS and time.monotonic() - first >= GONE_S:
                self._over[job_id] = {"status": GONE}
            return
        self._missed.pop(job_id, None)
        status = str(head.get("status")).lower()
        if status in ENDS:
            self._over[job_id] = {**{name: head.get(name) for name in _COUNTS}, "status": status}


@dataclass(slots=True)
class Seen:
    """What a watcher knows of the jobs so far.

    Every job created up to `watermark` is settled, unless it is among `pending`; of later ones, those in `over` are.
    """

    watermark: int = -1
    #: Running jobs, and when they were created.
    pending: dict[str, int] = field(default_factory=dict)
    #: Ended ones, likewise.
    over: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, memory: Memory) -> Self:
        """From its JSON form; what is not of this form counts as not known."""
        watermark = memory.get("watermark")
        known = watermark if isinstance(watermark, int) else -1
        return cls(known, _times(memory.get("pending")), _times(memory.get("over")))

    def write(self) -> Memory:
        """Its JSON form."""
        return {"watermark": self.watermark, "pending": dict(self.pending), "over": dict(self.over)}

    def settle(self, jobs: Iterable[Job], ended: Mapping[str, Mapping[str, object]]) -> list[Job]:
        """Takes note of a round and returns the jobs that are over since the last one, oldest first."""
        news = {job.job_id: job for job in jobs}
        for job_id, created in self.pending.items():
            news.setdefault(job_id, Job(job_id, created, None))
        fresh: list[Job] = []
        for job in sorted(news.values(), key=lambda job: job.created):
            if job.job_id in self.over or (job.created <= self.watermark and job.job_id not in self.pending):
                continue
            if job.job_id in ended:
                self.pending.pop(job.job_id, None)
                self.over[job.job_id] = job.created
                fresh.append(job)
            elif job.job_id not in self.pending and len(self.pending) >= MAX_PENDING:
                break  # no room to follow it, so nothing later may be settled before it
            else:
                self.pending[job.job_id] = job.created
        self._forget()
        return fresh

    def _forget(self) -> None:
        """Drops the oldest of `over` into the watermark."""
        by_age = sorted(self.over.items(), key=lambda item: item[1])
        horizon = max([*self.over.values(), *self.pending.values()], default=0) - WINDOW_MS
        kept = [item for item in by_age if item[1] >= horizon][-MAX_OVER:]
        dropped = by_age[: len(by_age) - len(kept)]
        if dropped:
            self.watermark = max(self.watermark, dropped[-1][1])
            self.over = dict(kept)


#: What is kept of a status reply.
_COUNTS = ("completed", "total", "creditsUsed")


def _jobs(entries: Iterable[tuple[str | None, str | None, str | None]]) -> Iterator[Job]:
    """The entries as jobs, oldest first. One without a time takes that of the entry before it, which is newer."""
    created, found = int(time.time() * 1000), list[Job]()
    for job_id, created_at, target in entries:
        at = parse_time(created_at)
        created = created if at is None else round(at.timestamp() * 1000)
        if job_id:
            found.append(Job(job_id, created, target))
    yield from sorted(found, key=lambda job: job.created)


def _times(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(job_id): created for job_id, created in value.items() if isinstance(created, int)}
