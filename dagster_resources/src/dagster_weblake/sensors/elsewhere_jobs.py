"""The sensor that has jobs landed which were started outside this Dagster.

The dataset's ledger identifies the jobs of Dagster itself and of any other writer of the dataset.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast, get_args

import dagster as dg

from dagster_weblake.remedies import in_dagster_terms
from dagster_weblake.sensors import ticks
from dagster_weblake.sensors.ticks import One
from weblake import aio, orchestration
from weblake.errors import InvalidOption, WeblakeError

if TYPE_CHECKING:
    from dagster_weblake.resource import WeblakeResource

Kind = Literal["batch_scrape", "crawl"]
Status = Literal["completed", "failed", "cancelled"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: Ended jobs that may wait for their run to be launched; further ones stay in the service's list meanwhile.
MOST_WAITING = 300
#: Seconds of a tick that are reserved for the ledger.
LEDGER_S = 15.0


def build_jobs_elsewhere_sensor(
    asset: One,
    *,
    kinds: Sequence[Kind] = KINDS,
    target: str | None = None,
    statuses: Sequence[Status] = ("completed",),
    to: str | None = None,
    fire_earlier: bool = False,
    name: str | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    resource_key: str = "weblake",
) -> dg.SensorDefinition:
    """Return a sensor that has jobs landed which were started elsewhere: by another program, or by hand.

    For an asset of a `JobRequest`, whose run config names the job: `{"ops": {asset: {"config": {"kind", "job_id"}}}}`.
    Each job that has ended since the sensor's first tick is requested, with its id as run key, until a run was
    launched. Jobs of any load of the dataset are left out, whichever program landed it; so is a job that may belong to
    a start whose response was lost, until that is resolved. The ids come from the service's activity list, which goes
    back 24 hours: a longer outage of the sensor loses the jobs of the time before. Polls cost no credits.

    Args:
        asset: The asset's definition, its spec or its key.
        kinds: `batch_scrape`, `crawl`, or both.
        target: Only jobs with this URL in the activity list; `*` matches any characters.
        statuses: The final statuses that count, of completed, failed and cancelled.
        to: The asset's root, if it is neither the resource's nor in the asset's definition.
        fire_earlier: Whether jobs that had ended before the first tick count too, as far as the list goes back.
        name: The sensor's name; by default `<asset>_jobs_elsewhere`.
        minimum_interval_seconds: Seconds between two ticks at least.
        default_status: RUNNING by default.
        resource_key: The key of the WeblakeResource.

    Raises:
        InvalidOption: No kind or status, or an unknown one; or a definition of several assets.
    """
    for what, given, allowed in (("kinds", kinds, KINDS), ("statuses", statuses, orchestration.JOB_ENDS)):
        if not given or not set(given) <= set(allowed):
            raise InvalidOption(f"{what} is {given!r}.", hint=f"Give some of {', '.join(allowed)}.")
    key, spec = ticks.the_one(asset)
    sensor = ticks.name_of(name, [key], "jobs_elsewhere")
    wanted = Wanted(sensor, key, ticks.root_of(spec, to), tuple(kinds), target, tuple(statuses), fire_earlier)
    known = _Known(wanted.kinds)

    return ticks.sensor(
        sensor,
        lambda context, resource: _Tick(context, resource, wanted, known).run(),
        "Has jobs of the service landed that were started elsewhere.",
        keys=[key],
        resource_key=resource_key,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The jobs that are requested, and their asset."""

    sensor: str
    key: dg.AssetKey
    to: str | None
    kinds: tuple[Kind, ...]
    target: str | None
    statuses: tuple[str, ...]
    fire_earlier: bool


class _Known:
    """A cache of this process from earlier ticks; its loss costs only requests."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.jobs = {kind: orchestration.EndedJobs(kind) for kind in kinds}
        self._ledgers: dict[str, orchestration.LedgerNews] = {}

    def news(self, dataset: orchestration.Dataset) -> orchestration.LedgerNews:
        """Return the ledger reader of this dataset."""
        return self._ledgers.setdefault(dataset.url, orchestration.LedgerNews(dataset))


@dataclass(slots=True)
class _Tick:
    context: dg.SensorEvaluationContext
    resource: WeblakeResource
    wanted: Wanted
    known: _Known
    until: float = field(default_factory=ticks.deadline)
    trouble: WeblakeError | TimeoutError | None = None
    #: The activity list of this tick, by job id.
    listed: dict[str, orchestration.ListedJob] = field(default_factory=dict)

    def run(self) -> dg.SensorResult:
        memory = ticks.remembered(self.context)
        # If the cursor cannot be read, all listed jobs count, so that none that ended meanwhile is missed.
        lost = memory is not None and not isinstance(memory.get("kinds"), dict)
        all_count = self.wanted.fire_earlier or lost
        states = _objects((memory or {}).get("kinds"))
        waiting = {str(job_id): str(kind) for job_id, kind in _objects((memory or {}).get("waiting")).items()}
        for kind in random.sample(self.wanted.kinds, len(self.wanted.kinds)):  # random order, so that no kind starves
            state = _objects(states.get(kind))
            begun = all_count or state.get("begun") is True
            seen = orchestration.WatcherState.read(state, share=len(self.wanted.kinds) + 1)  # one for `waiting`
            found = self._look(kind, seen)
            if found is None:
                continue
            over = self._settle(seen, found, max(0, MOST_WAITING - len(waiting)) if begun else None)
            states[kind] = seen.write() | {"begun": begun or found.complete}
            waiting |= dict.fromkeys(over if begun else [], kind)
        requests = self._requests(waiting)
        cursor = ticks.written({"kinds": states, "waiting": waiting})
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=cursor)
        return dg.SensorResult(skip_reason=self._skip_text(len(waiting)), cursor=cursor)

    def _look(self, kind: Kind, seen: orchestration.WatcherState) -> orchestration.PollRound | None:
        """Return the service's answer about the jobs of a kind; None after an error."""
        try:
            with in_dagster_terms():
                found = asyncio.run(self._ask(kind, seen))
        except (WeblakeError, TimeoutError) as error:
            self.trouble = error
            self.context.log.warning(
                f"The {kind} jobs could not be asked about; the next tick does: {_error_text(error)}"
            )
            return None
        self.listed |= {job.job_id: job for job in found.jobs}
        return found

    def _settle(self, seen: orchestration.WatcherState, found: orchestration.PollRound, room: int | None) -> list[str]:
        """Return the jobs that have ended since the last poll; only the oldest if there is not room for all."""
        jobs = {job.job_id: job for job in found.jobs if job.fits(self.wanted.target)}
        news = [
            job_id
            for job_id in found.ended
            if job_id in seen.pending or (job_id in jobs and not seen.knows(jobs[job_id]))
        ]
        news.sort(key=lambda job_id: jobs[job_id].created if job_id in jobs else seen.pending[job_id])
        fresh = seen.settle(jobs.values(), {job_id: found.ended[job_id] for job_id in news[:room]})
        return [job.job_id for job in fresh if found.ended[job.job_id]["status"] in self.wanted.statuses]

    async def _ask(self, kind: Kind, seen: orchestration.WatcherState) -> orchestration.PollRound:
        until = self.until - LEDGER_S
        async with aio.timeout(ticks.left(self.until)), self.resource.get_async_client() as client:
            return await self.known.jobs[kind](client, watcher=seen, until=until)

    def _requests(self, waiting: dict[str, str]) -> list[dg.RunRequest]:
        """Return run requests for jobs that belong to no load; remove jobs that need no request from `waiting`."""
        for job_id in ticks.launched(self.context, self.wanted.sensor, waiting):
            del waiting[job_id]
        if not waiting:
            return []
        try:
            with in_dagster_terms():
                news = self.known.news(self.resource.dataset(self.wanted.to))
                if not news.refresh(self.until, warn=self.context.log.warning):
                    return []
        except WeblakeError as error:
            self.trouble = error
            self.context.log.warning(f"The ledger cannot be read, so that nobody knows whose jobs these are: {error}")
            return []
        for job_id in [job_id for job_id, kind in waiting.items() if news.holds(kind, job_id)]:
            del waiting[job_id]
        free = [job_id for job_id, kind in waiting.items() if not news.may_be_ours(kind, self._listed(job_id))]
        return [self._request(job_id, waiting[job_id]) for job_id in free[: ticks.REQUESTS]]

    def _listed(self, job_id: str) -> orchestration.ListedJob:
        """Return a job as the list shows it; for a job that is no longer listed, nothing is known that excludes it."""
        return self.listed.get(job_id) or orchestration.ListedJob(job_id, 1 << 53, None)

    def _request(self, job_id: str, kind: str) -> dg.RunRequest:
        op = self.wanted.key.to_python_identifier()
        config = {"ops": {op: {"config": {"kind": kind, "job_id": job_id}}}}
        return dg.RunRequest(run_key=job_id, run_config=config, asset_selection=[self.wanted.key])

    def _skip_text(self, waiting: int) -> str:
        if self.trouble is not None:
            return f"Trouble: {_error_text(self.trouble)}"
        # They may belong to a start whose response was lost; a retry of that start resolves it.
        return f"Ended, and perhaps the dataset's own: {waiting}." if waiting else "No job has ended."


def _objects(value: object) -> dict[str, object]:
    return dict(cast("dict[str, object]", value)) if isinstance(value, dict) else {}


def _error_text(error: WeblakeError | TimeoutError) -> str:
    return str(error) or "no answer within the time of a tick"
