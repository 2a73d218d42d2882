"""The sensor that has ended jobs collected, for assets made with `wait="sensor"`, so that no process waits for them.

    <key>_job materialized -> pending -> over: completed, failed, cancelled, past its deadline, over its credits, gone
        -> a run of <key>, with the load id as run key -> that run is known to Dagster: forgotten

The run lands, cancels or refuses the job, see `landing`. The state is in the event log: the cursor holds only numbers
of events. Dagster loses no request of a tick that it had recorded, not even when its daemon is killed; but it drops one
that could not be launched, or that a stopped sensor had not come to. So the sensor requests a run again until it finds
it: requests with the same run key give one run at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, cast

import dagster as dg

from dagster_weblake.failures import in_dagster_terms
from dagster_weblake.landing import LOAD_TAG
from dagster_weblake.sensors.job_events import FollowedJobs, OwnRun, OwnRuns, StartedJob, read_new, read_started
from dagster_weblake.specs import job_key
from weblake import orchestration
from weblake.errors import InvalidOption, JobGone, WeblakeError

if TYPE_CHECKING:
    from dagster_weblake.resource import WeblakeResource

#: An asset: its definition, its spec or its key, as text `prefix/name`.
Asset = dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str
#: Concurrent status polls, and concurrent reads of the ledger.
PARALLEL_POLLS = 16
#: Jobs that one tick polls. The others are polled in the next ticks.
POLLS_PER_TICK = 1000
#: Seconds that a tick may take: Dagster aborts it after 60, and its results would be lost.
TICK_S = 40.0
#: Requests of one tick. Dagster keeps them in one field of its database, which on MySQL holds 64 KB.
REQUESTS = 100
#: Seconds of a tick that are reserved for queries of Dagster's database and reads of the ledger.
LEDGER_S = 15.0
#: Seconds in which "not found" is tolerated: a job just started may not be found yet.
UNSEEN_S = 30.0
#: The tags that Dagster puts on a run that a sensor has requested.
_RUN_KEY, _SENSOR = "dagster/run_key", "dagster/sensor_name"


def build_collect_sensor(
    assets: Asset | Sequence[Asset],
    *,
    name: str | None = None,
    to: str | None = None,
    minimum_interval_seconds: int = 30,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    resource_key: str = "weblake",
) -> dg.SensorDefinition:
    """Return a sensor that has the jobs of `wait="sensor"` assets collected when they have ended.

    Each tick polls each job that a `<key>_job` asset has started once, and requests a run of `<key>` for those that
    have ended, one for each load. A service that cannot be reached costs only the time of a tick.

    Guarantees: a job is requested until a run with its load id as run key has been launched, also after a lost cursor
    (the event log of the last week is read again), a killed daemon, or a sensor that was stopped for days. A job gets
    one run at most, and a load lands once however many runs try. That run may fail like any other; it is not requested
    again: run retries of the instance, or a person's re-execution, continue from the ledger. A job whose own run also
    lands it is left to that run, unless the run dies first.

    Args:
        assets: What `build_weblake_assets` or `@weblake_assets` returned, or keys of the assets that collect.
        name: The sensor's name; by default `<asset>_collect`, or `weblake_collect` for several assets.
        to: The assets' root, if they are given as keys and it is not the resource's.
        minimum_interval_seconds: Seconds between two ticks at least.
        default_status: RUNNING by default: without it no job would be collected.
        resource_key: The key of the WeblakeResource.

    Raises:
        InvalidOption: None of the definitions has an asset that only starts jobs.
    """
    pairs = _pairs(assets, to)
    if name is None:
        name = f"{pairs[0].data.to_python_identifier()}_collect" if len(pairs) == 1 else "weblake_collect"
    sensor = name

    def evaluate(context: dg.SensorEvaluationContext, **_: object) -> dg.SensorResult:
        # A direct call passes the resources as arguments as well.
        with in_dagster_terms():
            return _Tick(context, getattr(context.resources, resource_key), pairs, sensor).run()

    return dg.SensorDefinition(
        name=sensor,
        evaluation_fn=evaluate,
        asset_selection=dg.AssetSelection.assets(*(pair.data for pair in pairs)),
        required_resource_keys={resource_key},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Requests a run for each job that has ended; the run lands it.",
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """An asset that starts jobs, the one that collects them, and their root if it is not the resource's."""

    job: dg.AssetKey
    data: dg.AssetKey
    to: str | None


def _pairs(assets: Asset | Sequence[Asset], to: str | None) -> list[_Pair]:
    one = isinstance(assets, dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str)
    found: dict[dg.AssetKey, _Pair] = {}
    for asset in cast("Sequence[Asset]", [assets] if one else assets):
        if isinstance(asset, dg.AssetKey | str):
            data = dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset
            found[data] = _Pair(job_key(data), data, to)
            continue
        for spec in asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset]:
            starts, own = (spec.metadata.get(f"weblake/{name}") for name in ("starts", "to"))
            if isinstance(starts, str):
                data = dg.AssetKey.from_user_string(starts)
                found[data] = _Pair(spec.key, data, own if to is None and isinstance(own, str) else to)
    if not found:
        raise InvalidOption(
            "None of these assets waits with a sensor.",
            hint='Give assets that were made with wait="sensor"; with wait="step" the step itself waits.',
        )
    return list(found.values())


@dataclass(slots=True)
class _Tick:
    """One evaluation of the sensor for all pending jobs."""

    context: dg.SensorEvaluationContext
    resource: WeblakeResource
    pairs: Sequence[_Pair]
    sensor: str
    memory: FollowedJobs = field(init=False)
    until: float = field(default_factory=lambda: time.monotonic() + TICK_S)
    #: The reason why a poll or a read failed, if one did.
    trouble: WeblakeError | None = None
    #: The final statuses of jobs by their ids, as far as they were polled in this tick.
    states: dict[str, object] = field(default_factory=dict)

    def run(self) -> dg.SensorResult:
        self.memory = FollowedJobs.read(self.context)
        for pair in self.pairs:
            read_new(self.context.instance, pair.job, self.memory)
        requests = self._requests(self._over(self._jobs()))
        left = sum(len(self.memory.pending.get(pair.job.to_user_string(), ())) for pair in self.pairs)
        cursor = self.memory.model_dump_json()
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=cursor)
        return dg.SensorResult(skip_reason=self._skip_text(left), cursor=cursor)

    def _jobs(self) -> list[tuple[_Pair, StartedJob]]:
        """Return the first pending jobs of each asset, without repeated starts of the same load."""
        found: dict[str, tuple[_Pair, StartedJob]] = {}
        most = max(1, POLLS_PER_TICK // len(self.pairs))
        for pair in self.pairs:
            ids = self.memory.pending.get(pair.job.to_user_string(), [])[:most]
            started = read_started(self.context.instance, pair.job, ids)
            for job in started:
                earlier = found.get(job.load_id)
                if earlier is not None:
                    self.memory.forget(earlier[0].job, earlier[1].event)
                found[job.load_id] = pair, job
            unknown = set(ids) - {job.event for job in started}
            for event in unknown:
                self.memory.forget(pair.job, event)
            if unknown:
                self.context.log.warning(
                    f"{len(unknown)} materializations of {pair.job.to_user_string()} are deleted, as with their runs, "
                    "or name no job. They are not followed any more. `weblake orphans` lists the jobs that were paid "
                    "and have not landed."
                )
        return list(found.values())

    def _over(self, pending: list[tuple[_Pair, StartedJob]]) -> list[tuple[_Pair, StartedJob]]:
        """Return the jobs that have ended, and move the others to the end of the queue."""
        now = time.time()
        open_jobs = [] if self._must_wait(now) else [job.ref for _, job in pending if not job.is_late(now)]
        answers = asyncio.run(self._ask(open_jobs))
        self.states = {job_id: head.get("status") for job_id, head in answers.heads.items()}
        over = []
        for pair, job in pending:
            if job.is_late(now) or _is_over(job, answers, now):
                over.append((pair, job))
            elif job.job_id in answers.heads or job.job_id in answers.errors:
                self.memory.postpone(pair.job, job.event)
        self._tell(answers, len(open_jobs))
        return over

    async def _ask(self, jobs: Sequence[orchestration.JobRef]) -> orchestration.PollResults:
        if not jobs:
            return orchestration.PollResults({}, {})
        async with self.resource.get_async_client() as client:
            return await orchestration.poll_all(client, jobs, at_once=PARALLEL_POLLS, until=self.until - LEDGER_S)

    def _tell(self, answers: orchestration.PollResults, asked: int) -> None:
        failed = [error for error in answers.errors.values() if not isinstance(error, JobGone)]
        if named := max(map(orchestration.named_pause, failed), default=0.0):
            self.memory.ask_after = time.time() + named
        if failed:
            self.trouble = failed[-1]
            self.context.log.warning(
                f"{asked - len(answers.heads)} of {asked} jobs could not be asked about and stay pending: {failed[-1]}"
            )

    def _must_wait(self, now: float) -> bool:
        """Return whether the service has named a time that has not come; one that it cannot have named is none."""
        return now < self.memory.ask_after <= now + orchestration.longest_named_pause()

    def _requests(self, jobs: list[tuple[_Pair, StartedJob]]) -> list[dg.RunRequest]:
        """Return run requests for the jobs that have not landed and for which no run was launched."""
        until = self.until - LEDGER_S / 2
        launched = _launched(self.context, self.sensor, [job.load_id for _, job in jobs], until)
        jobs = [(pair, job) for pair, job in jobs if job.load_id in launched]  # the others follow in the next tick
        unlanded = self._unlanded([(pair, job) for pair, job in jobs if not launched[job.load_id]])
        requests: list[dg.RunRequest] = []
        runs = OwnRuns(self.context.instance)
        for pair, job in jobs:
            if launched[job.load_id] or unlanded[job.load_id] is False:
                self.memory.forget(pair.job, job.event)
            elif unlanded[job.load_id] is None or len(requests) >= REQUESTS or time.monotonic() > self.until:
                continue  # it is handled in the next tick
            elif not _can_be_run(self.context, pair.data, job.partition):
                self._drop(pair, job)
            elif (own := runs.of(job, pair.data, self.states.get(job.job_id))) is OwnRun.FAILED:
                self._leave(pair, job)
            else:
                self.memory.postpone(pair.job, job.event)  # others have their turn before it is looked at again
                if own is OwnRun.WAITS and not job.is_late(time.time()):
                    continue
                requests.append(
                    dg.RunRequest(
                        run_key=job.load_id,
                        asset_selection=[pair.data],
                        partition_key=job.partition,
                        tags={LOAD_TAG: job.load_id},
                    )
                )
        return requests

    def _unlanded(self, jobs: list[tuple[_Pair, StartedJob]]) -> dict[str, bool | None]:
        """Return by load id whether the load has not landed yet; None if that cannot be read now."""
        datasets = {to: self.resource.dataset(to) for to in {pair.to for pair, _ in jobs}}

        def look(of: tuple[_Pair, StartedJob]) -> bool | None:
            pair, job = of
            if time.monotonic() > self.until:
                return None
            try:
                return orchestration.LoadState(datasets[pair.to], job.load_id).landed is None
            except WeblakeError as error:
                self.trouble = error
                # A temporary failure of the storage must not cause a run; a permanent one is reported by the run.
                return True if job.is_late(time.time()) else None

        with ThreadPoolExecutor(PARALLEL_POLLS) as readers:
            looks = {job.load_id: readers.submit(copy_context().run, look, (pair, job)) for pair, job in jobs}
            return {load_id: found.result() for load_id, found in looks.items()}

    def _drop(self, pair: _Pair, job: StartedJob) -> None:
        self.context.log.warning(
            f"The sensor gives up {job.ref}: {pair.data.to_user_string()} has no partition {job.partition!r} now."
            f" Once it has, materialize it there: load {job.load_id} lands without being bought again."
        )
        self.memory.forget(pair.job, job.event)

    def _leave(self, pair: _Pair, job: StartedJob) -> None:
        self.context.log.info(
            f"No run is requested for {job.ref}: run {job.run_id}, which started it, has failed to land it, and "
            f"says why. Materialize {pair.job.to_user_string()} to start another job."
        )
        self.memory.forget(pair.job, job.event)

    def _skip_text(self, left: int) -> str:
        pending = f"{left or 'No'} {'job is' if left == 1 else 'jobs are'} pending."
        if self.trouble:
            pending = f"{pending} Trouble: {self.trouble}"
        if self._must_wait(time.time()):
            moment = datetime.fromtimestamp(self.memory.ask_after, timezone.utc)
            pending = f"{pending} The service named a time to wait. It is asked again after {moment:%H:%M:%S} UTC."
        return pending


def _is_over(job: StartedJob, answers: orchestration.PollResults, now: float) -> bool:
    head = answers.heads.get(job.job_id)
    if head is not None:
        return orchestration.is_over(head, job.max_credits)
    # Gone: expired, or of another team. The run gets the same error, and reports it where users see it.
    return isinstance(answers.errors.get(job.job_id), JobGone) and now - job.started_at > UNSEEN_S


def _launched(
    context: dg.SensorEvaluationContext, sensor: str, run_keys: Iterable[str], until: float
) -> dict[str, bool]:
    """Return by run key of a sensor whether Dagster has launched a run, however that has ended.

    Keys for which there is no time before `until`, in monotonic seconds, are left out.
    """
    found: dict[str, bool] = {}
    for run_key in run_keys:  # one by one, as Dagster does: its database has an index for one, not for many
        if time.monotonic() > until:
            break
        runs = context.instance.get_runs(filters=dg.RunsFilter(tags={_RUN_KEY: run_key, _SENSOR: sensor}), limit=1)
        found[run_key] = bool(runs) and runs[0].status != dg.DagsterRunStatus.NOT_STARTED
    return found


def _can_be_run(context: dg.SensorEvaluationContext, key: dg.AssetKey, partition: str | None) -> bool:
    """Return whether the partition exists now: Dagster fails the whole tick over a request for a deleted one."""
    if context.repository_def is None or not context.repository_def.asset_graph.has(key):
        return True
    partitions = context.repository_def.asset_graph.get(key).partitions_def
    if partitions is None or partition is None:
        return partitions is None and partition is None
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        return partitions.has_partition_key(partition)
