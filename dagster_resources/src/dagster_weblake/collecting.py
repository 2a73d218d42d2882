"""The flow of an asset that lands the jobs that another asset has started, in an earlier run or in this one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.failures import translate_errors
from dagster_weblake.step import Metadata, Result, Step
from dagster_weblake.templates import Part
from weblake import orchestration
from weblake.errors import AskPerson

if TYPE_CHECKING:
    from dagster_weblake.requests import LandingRequest
    from dagster_weblake.resource import WeblakeResource

#: The run tag with which a sensor names the load to collect.
LOAD_TAG = "weblake/load_id"
#: Maximum number of an asset's newest materializations that are searched for a load.
SEARCHED_EVENTS = 32


def collect(
    context: dg.AssetExecutionContext,
    weblake: WeblakeResource,
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


def _load_to_collect(step: Step, part: Part, job_key: dg.AssetKey) -> str:
    """Return the load that this run started, or that a sensor names, or the partition's newest started one."""
    task, dataset = step.lineage.task(step.dataset, step.key, part.key, step.key), step.dataset
    own = next(n for n in count() if orchestration.LoadState(dataset, task.load_id(n)).intent is None)
    found = task.load_id(own - 1) if own else _find_reported_load(step, part, job_key, task)
    intent = orchestration.LoadState(dataset, found).intent
    if intent is not None and intent.slot != task.slot(0, intent.partition).name:
        raise AskPerson(
            f"Load {found} was not started for {_named(step.key, part.key)}.",
            hint=f"Leave the run's tag {LOAD_TAG} out. {_remedy(step, task, job_key)}",
        )
    return found


def _find_reported_load(step: Step, part: Part, job_key: dg.AssetKey, task: orchestration.Task) -> str:
    """Return the load that the run's tag names, or the one in the newest materialization of the asset `job_key`."""
    named = step.context.run.tags.get(LOAD_TAG)
    if named is not None and len(step.parts) == 1:
        return named
    wanted = dg.AssetRecordsFilter(job_key, asset_partitions=None if part.key is None else [part.key])
    for record in step.context.instance.fetch_materializations(wanted, limit=1).records:
        load_id = metadata.load_named_by(record)
        if load_id is None:
            continue
        if _is_reported(step, load_id, part):
            _refuse_if_unreported_job(step, part, job_key, task, since=load_id)
            raise AskPerson(
                f"Load {load_id}, the newest that {job_key.to_user_string()} has started, has landed as "
                f"{_named(step.key, part.key)} before, and no other job was started since.",
                hint=_remedy(step, task, job_key),
            )
        return load_id
    _refuse_if_unreported_job(step, part, job_key, task)
    raise AskPerson(f"Nothing has been started for {_named(step.key, part.key)}.", hint=_remedy(step, task, job_key))


def _remedy(step: Step, task: orchestration.Task, job_key: dg.AssetKey) -> str:
    """Return what to do if no job of the task is left to land: first, what lands a job that was paid under another key.

    An asset or partition that was renamed after its job had started has left such a job. This reads the whole ledger.
    """
    pay = (
        f"Materialize {job_key.to_user_string()} first, also in schedules: it starts and pays for a job, which lands "
        f"as {step.key.to_user_string()} when it has ended."
    )
    others = reversed(orchestration.open_loads_of_task(step.dataset, task, others=True))
    named = [f"{load.load_id} of {', partition '.join(load.task[1:])}" for load in others if load.paid is not False][:3]
    if not named:
        return pay
    return (
        f"If the asset or its partition had another key when its job was started, land that job first: `weblake "
        f"orphans {step.dataset.url}` lists loads that were paid ({'; '.join(named)}), with their `weblake land` "
        f"command. If not: {pay}"
    )


def _refuse_if_unreported_job(
    step: Step, part: Part, job_key: dg.AssetKey, task: orchestration.Task, since: str | None = None
) -> None:
    """Raise AskPerson if the ledger has a job, begun after load `since`, that no event in Dagster's log names.

    The run that started it was killed before its event, or was deleted. This reads the whole ledger.
    """
    intent = None if since is None else orchestration.LoadState(step.dataset, since).intent
    for load in reversed(orchestration.open_loads_of_task(step.dataset, task)):
        if load.paid is False:
            continue
        if intent is not None and load.age_s >= intent.age_s():
            return
        job = "" if load.job_id is None else f", job {load.job_id}"
        alone = "" if part.key is None else ", for this partition alone,"
        remedy = (
            f"To continue it, re-execute the run or backfill {load.run} from failure (`weblake orphans` says what else "
            "helps)."
        )
        if load.job_id is not None:
            remedy = (
                f"To land it, materialize {step.key.to_user_string()}{alone} with the run tag "
                f"{LOAD_TAG}={load.load_id}."
            )
        raise AskPerson(
            f"Load {load.load_id} of {_named(step.key, part.key)} has not landed ({load.record}{job}), and the "
            f"newest materialization of {job_key.to_user_string()} does not name it: the run or backfill "
            f"{load.run}, which requested it, was killed before its end, or is deleted.",
            hint=f"{remedy} To pay for another job, materialize {job_key.to_user_string()}.",
        )


def _is_reported(step: Step, load_id: str, part: Part) -> bool:
    """Return whether another run has materialized this asset with the load, so that an event would be outdated."""
    wanted = dg.AssetRecordsFilter(step.key, asset_partitions=None if part.key is None else [part.key])
    events = step.context.instance.fetch_materializations(wanted, limit=SEARCHED_EVENTS).records
    return any(metadata.load_named_by(each) == load_id and not step.lineage.has_begun(each.run_id) for each in events)


def _named(key: dg.AssetKey, partition: str | None) -> str:
    return key.to_user_string() + ("" if partition is None else f", partition {partition}")
