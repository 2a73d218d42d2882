"""Which load a step means: by the asset, its partition, and the run that a person or a schedule asked for.

Dagster runs a step again in three ways, and only one of them means "buy again":

    a step retry                                    the same run
    a run retry by the daemon                       a new run, tagged dagster/retry_number
    a person's re-execution from failure            a new run, tagged as resuming
    a person's re-execution of all steps, a new run  somebody asks anew

Imports: weblake.orchestration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weblake import orchestration

if TYPE_CHECKING:
    import dagster as dg

#: Tags of a run that goes on with what its parent began.
_GOES_ON = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
_RETRY_NUMBER = "dagster/retry_number"
#: Parents that are looked up: no run has been retried so often.
_MOST = 64


def task_of(context: dg.AssetExecutionContext, key: dg.AssetKey, partition: str | None) -> orchestration.Task:
    """The step's work on one asset partition, as loads are named after it."""
    run = context.run
    names = ("dagster", key.to_user_string())
    return orchestration.Task(names, run.root_run_id or run.run_id, _asked_by(context.instance, run), partition)


def _asked_by(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """The run with which somebody asked, at the beginning of a chain of retries."""
    for _ in range(_MOST):
        if run.parent_run_id is None or not _goes_on(run):
            break
        parent = instance.get_run_by_id(run.parent_run_id)
        if parent is None:
            return run.root_run_id or run.run_id  # deleted: taken for the retry that it says it is
        run = parent
    return run.run_id


def _goes_on(run: dg.DagsterRun) -> bool:
    return _RETRY_NUMBER in run.tags or any(run.tags.get(tag) == "true" for tag in _GOES_ON)
