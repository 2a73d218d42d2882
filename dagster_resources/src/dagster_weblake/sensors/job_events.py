"""Jobs that assets have started, read from the event log; those that a sensor still follows; and what their runs do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated

import dagster as dg
from pydantic import BaseModel, Field, ValidationError

from dagster_weblake.metadata import WeblakeMetadataSet
from weblake import orchestration
from weblake.errors import CreditsExhausted, DeadlineExceeded, JobEnded, JobGone, LoadIncomplete

#: How far back a sensor without a cursor reads: longer than a job runs (24 hours by default) and is kept (24 more).
LOOK_BACK_S = 7 * 24 * 3600.0
#: Events are numbered before they are visible: a later one may be seen first. So these last numbers are read again.
OVERLAP = 200
#: Jobs that one sensor follows; others wait in the event log until there is room. Numbers of 3000 events are 36 KB.
MAX_FOLLOWED = 3000
_PAGE = 500
#: Errors of landing that another run would only repeat.
_FINAL = frozenset(each.__name__ for each in (CreditsExhausted, DeadlineExceeded, JobEnded, JobGone, LoadIncomplete))
#: Statuses of a job whose run was terminated by a user.
_UNWANTED = ("failed", "cancelled")
#: The number of an event; a database refuses numbers of more than 64 bits.
EventNumber = Annotated[int, Field(ge=0, lt=1 << 63)]


@dataclass(frozen=True, slots=True)
class StartedJob:
    """One materialization of an asset that starts jobs."""

    #: The event's number in the log.
    event: int
    #: Seconds since 1970.
    started_at: float
    load_id: str
    kind: str
    job_id: str
    partition: str | None
    #: The deadline in seconds since 1970; None for no deadline.
    deadline: float | None
    #: The credits that it may use.
    max_credits: float | None
    #: The run that started it; empty if it was reported without one.
    run_id: str = ""

    @property
    def ref(self) -> orchestration.JobRef:
        """Return the reference to the job."""
        return orchestration.JobRef(self.kind, self.job_id)

    def is_late(self, now: float) -> bool:
        """Return whether its deadline has passed."""
        return self.deadline is not None and now >= self.deadline


class FollowedJobs(BaseModel):
    """The cursor of a sensor: numbers of events, by the key of the asset that started the jobs."""

    #: The highest number that was read.
    after: dict[str, EventNumber] = {}
    #: The numbers read of the last OVERLAP.
    recent: dict[str, list[EventNumber]] = {}
    #: Jobs that have no run yet, in the order in which they are polled.
    pending: dict[str, list[EventNumber]] = {}
    #: Seconds since 1970 before which the service must not be asked, because it has named this time.
    ask_after: Annotated[float, Field(allow_inf_nan=False)] = 0.0

    @classmethod
    def read(cls, context: dg.SensorEvaluationContext) -> FollowedJobs:
        """Return the content of the cursor; empty at the first tick, and if it cannot be read, which is logged."""
        if context.cursor is None:
            return cls()
        try:
            return cls.model_validate_json(context.cursor)
        except ValidationError:
            context.log.warning("The cursor of this sensor cannot be read; it begins anew.")
            return cls()

    @property
    def free_slots(self) -> int:
        """Return how many more jobs it can follow."""
        return max(0, MAX_FOLLOWED - sum(map(len, self.pending.values())))

    def follow(self, key: dg.AssetKey, event: int) -> None:
        """Add a job, unless it is known."""
        name = key.to_user_string()
        recent = self.recent.setdefault(name, [])
        if event in recent:
            return
        self.pending.setdefault(name, []).append(event)
        self.after[name] = max(event, self.after.get(name, 0))
        self.recent[name] = [each for each in (*recent, event) if each > self.after[name] - OVERLAP]

    def postpone(self, key: dg.AssetKey, event: int) -> None:
        """Move a job to the end of the queue."""
        self.forget(key, event)
        self.pending[key.to_user_string()].append(event)

    def forget(self, key: dg.AssetKey, event: int) -> None:
        """Remove a job."""
        self.pending[key.to_user_string()].remove(event)


def read_new(instance: dg.DagsterInstance, key: dg.AssetKey, memory: FollowedJobs) -> None:
    """Add the jobs that an asset has started since the last tick, as far as there is room for them."""
    after = memory.after.get(key.to_user_string())
    since = time.time() - LOOK_BACK_S if after is None else None
    low = None if after is None else after - OVERLAP
    while memory.free_slots:
        wanted = dg.AssetRecordsFilter(
            asset_key=key, after_timestamp=since, after_storage_id=low if low is not None and low > 0 else None
        )
        page = instance.fetch_materializations(wanted, limit=min(_PAGE, memory.free_slots + OVERLAP), ascending=True)
        for record in page.records:
            if memory.free_slots:
                memory.follow(key, record.storage_id)
                low = record.storage_id
        if not page.has_more:
            return


def read_started(instance: dg.DagsterInstance, key: dg.AssetKey, events: Sequence[int]) -> list[StartedJob]:
    """Return the jobs of these events in their order; an event that is deleted, or names no job, has none."""
    found: dict[int, StartedJob] = {}
    for begin in range(0, len(events), _PAGE):
        wanted = dg.AssetRecordsFilter(asset_key=key, storage_ids=events[begin : begin + _PAGE])
        for record in instance.fetch_materializations(wanted, limit=_PAGE).records:
            job = _started(record)
            if job is not None:
                found[job.event] = job
    return [found[event] for event in events if event in found]


def _started(record: dg.EventLogRecord) -> StartedJob | None:
    event = record.asset_materialization
    if event is None:
        return None
    try:
        facts = WeblakeMetadataSet.extract(event.metadata)
    except (ValidationError, dg.DagsterError):  # another program's event
        return None
    load_id, kind, job_id = facts.load_id, facts.kind, facts.job_id
    if not load_id or not job_id or not kind or kind not in orchestration.JOB_KINDS:
        return None
    at, run_id = record.timestamp, record.run_id
    return StartedJob(
        record.storage_id, at, load_id, kind, job_id, event.partition, facts.deadline, facts.max_credits, run_id
    )


class OwnRun(Enum):
    """The state of the landing in the run that started a job."""

    #: It does not land it: it has another selection, or it died before it could.
    NOTHING = "nothing"
    #: It has not ended yet, and lands it or fails.
    WAITS = "waits"
    #: It has failed to land it, as any other run would.
    FAILED = "failed"


class OwnRuns:
    """The runs that have started jobs, each read once: a run over many partitions has started a job for each."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._run = cache(instance.get_run_by_id)
        self._events = cache(lambda run_id, kind: instance.get_records_for_run(run_id, of_type=kind).records)

    def of(self, job: StartedJob, data: dg.AssetKey, state: object) -> OwnRun:
        """Return what the run that started a job does about its landing.

        Args:
            job: The job.
            data: The asset that it lands as.
            state: The job's final status; None if it is not known.
        """
        run = self._run(job.run_id) if job.run_id else None
        if run is None or not self._selects(run, data):
            return OwnRun.NOTHING
        if not run.is_finished:
            return OwnRun.WAITS
        if run.status == dg.DagsterRunStatus.CANCELED:
            return OwnRun.FAILED if state in _UNWANTED else OwnRun.NOTHING
        failures = self._events(run.run_id, dg.DagsterEventType.STEP_FAILURE)
        return OwnRun.FAILED if any(_is_final(record, job.load_id) for record in failures) else OwnRun.NOTHING

    def _selects(self, run: dg.DagsterRun, key: dg.AssetKey) -> bool:
        if run.asset_selection:
            return key in run.asset_selection
        planned = self._events(run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
        return any(record.asset_key == key for record in planned)


def _is_final(record: dg.EventLogRecord, load_id: str) -> bool:
    event = record.event_log_entry.dagster_event
    failure = None if event is None else event.step_failure_data.user_failure_data
    if failure is None:
        return False
    facts = {name: value.value for name, value in failure.metadata.items()}
    return facts.get("weblake/load_id") == load_id and facts.get("weblake/error") in _FINAL
