"""The flow of every asset that lands: pages of a job, a page or a file, and the service's reports on the team.

    which generation -> landed already? -> intent, start, job id on record -> wait -> land -> metadata

Each run begins at the first step and follows the ledger of the dataset, so a step may be killed at any point. A run
over several partitions starts all of their jobs, waits for them together and lands each when its job has ended; a
partition that fails does not keep the others from landing. One report of usage or activity has every period, so a run
over several partitions requests it once.

An asset may also land the jobs that another asset has started, in an earlier run or in this one: see `collect`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.failures import translate_errors
from dagster_weblake.metadata.usage import usage_metadata
from dagster_weblake.step import Metadata, Result, Step, parts_of, result_of
from dagster_weblake.templates import Part
from weblake import orchestration
from weblake.errors import AskPerson

if TYPE_CHECKING:
    from dagster_weblake.connection import ServiceResource
    from dagster_weblake.requests import LandingRequest, UsageRequest


#: The run tag with which a sensor names the load to collect.
LOAD_TAG = "weblake/load_id"
#: Maximum number of an asset's newest materializations that are searched for a load.
SEARCHED_EVENTS = 32


def land(
    context: dg.AssetExecutionContext,
    weblake: ServiceResource,
    request: LandingRequest,
    key: dg.AssetKey,
    to: str | None,
) -> Iterator[Result]:
    """Land the request for each partition of this step: start its jobs, unless an earlier run did, and wait."""
    step = Step(context, weblake, request, key, to, owns_job=request.owns_job)
    load_requests = step.load_requests
    started_loads: dict[str | None, orchestration.StartedLoad] = {}
    waits: dict[str | None, orchestration.WaitingJob] = {}

    def start_job(part: Part) -> Metadata:
        load_request = load_requests[part.key] = step.load_request(part)
        if request.owns_job and load_request.kind in orchestration.JOB_KINDS:
            stopping.open[load_request.load_id] = load_request
            if orchestration.find_landed(step.dataset, load_request, step.terms) is None:
                started_loads[part.key], _ = step.start_load(part, load_request)
                _, job, _ = started_loads[part.key]
                waits[part.key] = step.waiting_job(part, job)
        return {}

    def finish(part: Part) -> Metadata:
        load_request = load_requests[part.key]
        known = started_loads.get(part.key)
        landing = orchestration.land(weblake.client, step.dataset, load_request, step.terms, started_load=known)
        stopping.open.pop(load_request.load_id, None)
        return step.record_landing(part, landing, load_request.load_id)

    with translate_errors(context), step.stopping() as stopping:
        unstarted = step.run_each(start_job).failed
        outcome = step.run_each(finish, unstarted, waits)
    yield from step.results(outcome)


def start(
    context: dg.AssetExecutionContext,
    weblake: ServiceResource,
    request: LandingRequest,
    key: dg.AssetKey,
    to: str | None,
    data_key: dg.AssetKey,
) -> Iterator[Result]:
    """Start the job of each partition, for another run to land it as the asset `data_key`."""
    step = Step(context, weblake, request, key, to)

    def start_job(part: Part) -> Metadata:
        load_request = step.load_request(part, data_key)
        stopping.open[load_request.load_id] = load_request
        (intent, job, _), url = step.start_load(part, load_request)
        deadline = job.at_seconds() + step.terms.timeout_s
        started = metadata.started_metadata(
            step.dataset, intent, job, deadline=deadline, max_credits=step.terms.max_credits, job_url=url
        )
        stopping.open.pop(load_request.load_id)
        return started

    with translate_errors(context), step.stopping() as stopping:
        outcome = step.run_each(start_job)
    yield from step.results(outcome)


def collect(
    context: dg.AssetExecutionContext,
    weblake: ServiceResource,
    request: LandingRequest,
    key: dg.AssetKey,
    to: str | None,
    job_key: dg.AssetKey,
) -> Iterator[Result]:
    """Land the jobs that the asset `job_key` started; wait for jobs that have not ended yet."""
    step = Step(context, weblake, request, key, to, owns_job=False)
    load_ids: dict[str | None, str] = {}
    waits: dict[str | None, orchestration.WaitingJob] = {}

    def find(part: Part) -> Metadata:
        load_id = load_ids[part.key] = _load_to_collect(step, part, job_key)
        step.parts_of_loads[load_id] = part
        stopping.open[load_id] = None
        state = orchestration.LoadState(step.dataset, load_id)
        if len(step.parts) > 1 and state.landed is None:
            job = state.job
            if job is not None and job.kind in orchestration.JOB_KINDS:
                waits[part.key] = step.waiting_job(part, job)
        return {}

    def finish(part: Part) -> Metadata:
        load_id = load_ids[part.key]
        landing = orchestration.collect(weblake.client, step.dataset, load_id, step.terms)
        stopping.open.pop(load_id)
        return step.record_landing(part, landing, load_id)

    with translate_errors(context), step.stopping() as stopping:
        unknown = step.run_each(find).failed
        outcome = step.run_each(finish, unknown, waits)
    yield from step.results(outcome)


def land_usage(
    context: dg.AssetExecutionContext, weblake: ServiceResource, request: UsageRequest, key: dg.AssetKey, to: str | None
) -> Iterator[Result]:
    """Land the months of this step's partitions, or all that the service reports; each file is replaced whole.

    A month for which the service reports nothing keeps its file, if it has one.
    """
    with translate_errors(context):
        client, dataset, parts = weblake.client, weblake.dataset_of_step(context, to), parts_of(context, key)
        found = client.run(
            orchestration.report(request.report, client.retry, by_api_key=request.by_api_key, budget=request.budget)
        )
        if not found.split:
            context.log.warning("The service did not split the report by API key, although it was asked to.")
        months = None if parts[0].key is None else [str(part.month) for part in parts]
        files = orchestration.land_report(found, dataset, months)
        values = {
            part.key: usage_metadata(found, files, dataset, period=part.month, budget=request.budget) for part in parts
        }
    yield result_of(context, key, values)


def land_activity(
    context: dg.AssetExecutionContext, weblake: ServiceResource, key: dg.AssetKey, to: str | None
) -> Iterator[Result]:
    """Merge the calls that the service lists (24 hours) into the files of their UTC days."""
    with translate_errors(context):
        client, dataset, parts = weblake.client, weblake.dataset_of_step(context, to), parts_of(context, key)
        entries = client.run(orchestration.activity(client.retry))
        files = orchestration.land_activity(entries, dataset)
        values = {part.key: metadata.activity_metadata(files, dataset, len(entries), date=part.day) for part in parts}
    yield result_of(context, key, values)


def _load_to_collect(step: Step, part: Part, job_key: dg.AssetKey) -> str:
    """Return the load that this run started, or that a sensor names, or the partition's newest started one."""
    task, dataset = step.lineage.task(step.dataset, step.key, part.key, step.key), step.dataset
    own = next(n for n in count() if orchestration.LoadState(dataset, task.load_id(n)).intent is None)
    found = task.load_id(own - 1) if own else _reported_load(step, part, job_key)
    intent = orchestration.LoadState(dataset, found).intent
    if intent is not None and intent.slot != task.slot(0, intent.partition).name:
        raise AskPerson(
            f"Load {found} was not started for {_named(step.key, part.key)}.",
            hint=f"Leave the run's tag {LOAD_TAG} out. {_remedy(step, job_key)}",
        )
    return found


def _reported_load(step: Step, part: Part, job_key: dg.AssetKey) -> str:
    """Return the load that the run's tag names, or the one in the newest materialization of the asset `job_key`.

    Raises:
        AskPerson: There is none, or another run has reported that it has landed.
    """
    named = step.context.run.tags.get(LOAD_TAG)
    if named is not None and len(step.parts) == 1:
        return named
    wanted = dg.AssetRecordsFilter(job_key, asset_partitions=None if part.key is None else [part.key])
    started = step.context.instance.fetch_materializations(wanted, limit=1).records
    load_id = metadata.load_named_by(started[0]) if started else None
    if not load_id:
        raise AskPerson(f"No run has reported a job for {_named(step.key, part.key)}.", hint=_remedy(step, job_key))
    if _is_reported(step, load_id, part):
        raise AskPerson(
            f"Load {load_id}, the newest that {job_key.to_user_string()} has started, has landed as "
            f"{_named(step.key, part.key)} before, and no run has reported another job since.",
            hint=_remedy(step, job_key),
        )
    return load_id


def _remedy(step: Step, job_key: dg.AssetKey) -> str:
    """Return what to do if no event names a job to land.

    A job that was paid may have none: its run was killed or deleted, or its asset or partition has another key now.
    """
    name = step.key.to_user_string()
    return (
        f"`weblake orphans {step.dataset.url}` lists the loads that were paid and have not landed, and what lands "
        f"them. A load of this asset and partition also lands if {name} is materialized with the run tag "
        f"{LOAD_TAG}=LOAD. If there is none: Materialize {job_key.to_user_string()} first, also in schedules. It "
        f"starts and pays for a job, which lands as {name} when it has ended."
    )


def _is_reported(step: Step, load_id: str, part: Part) -> bool:
    """Return whether another run has materialized this asset with the load, so that an event would be outdated."""
    wanted = dg.AssetRecordsFilter(step.key, asset_partitions=None if part.key is None else [part.key])
    events = step.context.instance.fetch_materializations(wanted, limit=SEARCHED_EVENTS).records
    return any(metadata.load_named_by(each) == load_id and not step.lineage.has_begun(each.run_id) for each in events)


def _named(key: dg.AssetKey, partition: str | None) -> str:
    return key.to_user_string() + ("" if partition is None else f", partition {partition}")
