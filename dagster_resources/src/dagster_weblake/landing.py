"""The common flow of every asset that starts jobs: first run, retry or re-execution, one partition or many.

    which generation -> landed already? -> intent, start, job id on record -> wait -> land -> metadata

Each run begins at the first step and follows the ledger of the dataset, so a step may be killed at any point. A run
over several partitions starts all of their jobs, waits for them together and lands each when its job has ended; a
partition that fails does not keep the others from landing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.failures import translate_errors
from dagster_weblake.step import Metadata, Result, Step
from dagster_weblake.templates import Part
from weblake import orchestration

if TYPE_CHECKING:
    from dagster_weblake.requests import LandingRequest
    from dagster_weblake.resource import WeblakeResource


def land(
    context: dg.AssetExecutionContext,
    weblake: WeblakeResource,
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
                started_loads[part.key] = orchestration.start_load(
                    weblake.client,
                    step.dataset,
                    load_request,
                    max_credits=step.terms.max_credits,
                    ends_at=time.monotonic() + step.terms.timeout_s,
                )
                intent, job, _ = started_loads[part.key]
                step.log_job(part, intent, job)
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
    weblake: WeblakeResource,
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
        intent, job, _ = orchestration.start_load(
            weblake.client,
            step.dataset,
            load_request,
            max_credits=step.terms.max_credits,
            ends_at=time.monotonic() + step.terms.timeout_s,
        )
        url = step.log_job(part, intent, job)
        deadline = job.at_seconds() + step.terms.timeout_s
        started = metadata.started_metadata(
            step.dataset, intent, job, deadline=deadline, max_credits=step.terms.max_credits, job_url=url
        )
        stopping.open.pop(load_request.load_id)
        return started

    with translate_errors(context), step.stopping() as stopping:
        outcome = step.run_each(start_job)
    yield from step.results(outcome)
