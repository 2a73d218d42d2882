"""Jobs that assets have started, read from the event log, and the sensor's state of which it still follows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from typing_extensions import Self

from weblake import orchestration

#: How far back a sensor without a cursor reads: longer than a job runs (24 hours by default) and is kept (24 more).
LOOK_BACK_S = 7 * 24 * 3600.0
#: Events are numbered before they are visible: a later one may be seen first. So these last numbers are read again.
OVERLAP = 200
#: Jobs that one sensor follows; others wait in the event log until there is room. Numbers of 3000 events are 36 KB.
MAX_FOLLOWED = 3000
_PAGE = 500


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


@dataclass(slots=True)
class FollowedJobs:
    """The state of a sensor: numbers of events, by the key of the asset that started the jobs."""

    #: The highest number that was read.
    after: dict[str, int] = field(default_factory=dict)
    #: The numbers read of the last OVERLAP.
    recent: dict[str, list[int]] = field(default_factory=dict)
    #: Jobs that may be running, in the order in which they are polled.
    pending: dict[str, list[int]] = field(default_factory=dict)
    #: Jobs whose run was requested.
    asked: dict[str, list[int]] = field(default_factory=dict)
    #: Seconds since 1970 before which the service must not be asked, because it has named this time.
    ask_after: float = 0.0

    @classmethod
    def read(cls, memory: Mapping[str, object]) -> Self:
        """Return the state from its JSON form; parts in another form count as unknown."""
        after = memory.get("after")
        known = {key: at for key, at in after.items() if _is_number(at)} if isinstance(after, dict) else {}
        recent, pending, asked = (_numbers(memory.get(name)) for name in ("recent", "pending", "asked"))
        return cls(known, recent, pending, asked, _amount(memory.get("ask_after")) or 0.0)

    def write(self) -> dict[str, object]:
        """Return its JSON form."""
        lists = {name: getattr(self, name) for name in ("recent", "pending", "asked")}
        scalars = {"ask_after": self.ask_after} if self.ask_after else {}
        full = {name: {k: v for k, v in each.items() if v} for name, each in lists.items()}
        return {"after": self.after, **scalars, **full}

    @property
    def free_slots(self) -> int:
        """Return how many more jobs it can follow."""
        return max(0, MAX_FOLLOWED - sum(len(ids) for each in (self.pending, self.asked) for ids in each.values()))

    def followed(self, key: dg.AssetKey) -> set[int]:
        """Return the jobs of an asset that may be running, or whose run was requested."""
        name = key.to_user_string()
        return {*self.pending.get(name, ()), *self.asked.get(name, ())}

    def follow(self, key: dg.AssetKey, event: int) -> None:
        """Add a job, unless it is known."""
        name = key.to_user_string()
        if event in self.recent.setdefault(name, []):
            return
        self.recent[name].append(event)
        self.pending.setdefault(name, []).append(event)
        self.after[name] = max(event, self.after.get(name, 0))
        self.recent[name] = [each for each in self.recent[name] if each > self.after[name] - OVERLAP]

    def restart(self, key: dg.AssetKey) -> None:
        """Forget everything about an asset."""
        for each in (self.after, self.recent, self.pending, self.asked):
            each.pop(key.to_user_string(), None)

    def postpone(self, key: dg.AssetKey, event: int) -> None:
        """Move a job to the end of the queue, if it is pending."""
        line = self.pending.get(key.to_user_string(), [])
        if event in line:
            line.remove(event)
            line.append(event)

    def ask(self, key: dg.AssetKey, event: int) -> None:
        """Record that its run was requested."""
        self.forget(key, event)
        self.asked.setdefault(key.to_user_string(), []).append(event)

    def forget(self, key: dg.AssetKey, event: int) -> None:
        """Remove a job."""
        for each in (self.pending, self.asked):
            line = each.get(key.to_user_string(), [])
            if event in line:
                line.remove(event)


def read_new(instance: dg.DagsterInstance, key: dg.AssetKey, memory: FollowedJobs) -> None:
    """Add the jobs that an asset has started since the last tick, as far as there is room for them.

    If the last event that was read is gone, the numbers may be those of another event log: one that was deleted,
    restored or moved, which begins to count anew. The asset is then read as without a cursor.
    """
    after = memory.after.get(key.to_user_string())
    if after is not None and not _exists(instance, key, after):
        memory.restart(key)
        after = None
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


def _exists(instance: dg.DagsterInstance, key: dg.AssetKey, event: int) -> bool:
    wanted = dg.AssetRecordsFilter(asset_key=key, storage_ids=[event])
    return bool(instance.fetch_materializations(wanted, limit=1).records)


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
    values = {name: value.value for name, value in event.metadata.items() if name.startswith("weblake/")}
    texts = [values.get(f"weblake/{name}") for name in ("load_id", "kind", "job_id")]
    if not all(isinstance(text, str) for text in texts) or texts[1] not in orchestration.JOB_KINDS:
        return None
    load_id, kind, job_id = map(str, texts)
    deadline, most = (_amount(values.get(f"weblake/{name}")) for name in ("deadline", "max_credits"))
    at, run_id = record.timestamp, record.run_id
    return StartedJob(record.storage_id, at, load_id, kind, job_id, event.partition, deadline, most, run_id)


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 63:
        return None  # JSON has integers that no float can hold
    return float(value)


def _is_number(value: object) -> bool:
    # A database refuses numbers of more than 64 bits.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _numbers(value: object) -> dict[str, list[int]]:
    if not isinstance(value, Mapping):
        return {}
    return {
        str(key): [each for each in ids if _is_number(each)] for key, ids in value.items() if isinstance(ids, Iterable)
    }
