"""The flow of every asset that lands: pages of a job, a page or a file, and the service's reports on the team.

    which generation -> landed already? -> intent, start, job id on record -> wait -> land -> metadata

Each run begins at the first step and follows the ledger of the dataset, so a step may be killed at any point. A run
over several partitions starts all of their jobs, waits for them together and lands each when its job has ended; a
partition that fails does not keep the others from landing. One report of usage or activity has every period, so a run
over several partitions requests it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.failures import translate_errors
from dagster_weblake.metadata.usage import usage_metadata
from dagster_weblake.step import Metadata, Result, Step, parts_of, result_of
from dagster_weblake.templates import Part
from weblake import orchestration

if TYPE_CHECKING:
    from dagster_weblake.connection import ServiceResource
    from dagster_weblake.requests import LandingRequest, UsageRequest


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
