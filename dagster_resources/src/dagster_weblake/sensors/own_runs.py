"""Detection of jobs that the run which started them also lands, so that a sensor must not request a run, or not yet."""

from __future__ import annotations

from enum import Enum

import dagster as dg

from dagster_weblake.sensors.job_events import StartedJob
from weblake.errors import CreditsExhausted, DeadlineExceeded, JobEnded, JobGone, LoadIncomplete

#: Errors of landing that another run would only repeat.
_FINAL = frozenset(each.__name__ for each in (CreditsExhausted, DeadlineExceeded, JobEnded, JobGone, LoadIncomplete))
#: Statuses of a job whose run was terminated by a user.
_UNWANTED = ("failed", "cancelled")


class OwnRun(Enum):
    """The state of the landing in the run that started a job."""

    #: It does not land it: it has another selection, or it died before it could.
    NOTHING = "nothing"
    #: It has not ended yet, and lands it or fails.
    WAITS = "waits"
    #: It has failed to land it, as any other run would.
    FAILED = "failed"


def own_run(instance: dg.DagsterInstance, job: StartedJob, data: dg.AssetKey, state: object) -> OwnRun:
    """Return what the run that started a job does about its landing.

    Args:
        instance: The instance of the run.
        job: The job.
        data: The asset that it lands as.
        state: The job's final status; None if it is not known.
    """
    run = instance.get_run_by_id(job.run_id) if job.run_id else None
    if run is None or not _selects(instance, run, data):
        return OwnRun.NOTHING
    if not run.is_finished:
        return OwnRun.WAITS
    if run.status == dg.DagsterRunStatus.CANCELED:
        return OwnRun.FAILED if state in _UNWANTED else OwnRun.NOTHING
    failures = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
    return OwnRun.FAILED if any(_is_final(record, job.load_id) for record in failures) else OwnRun.NOTHING


def _selects(instance: dg.DagsterInstance, run: dg.DagsterRun, key: dg.AssetKey) -> bool:
    if run.asset_selection:
        return key in run.asset_selection
    planned = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    return any(record.asset_key == key for record in planned.records)


def _is_final(record: dg.EventLogRecord, load_id: str) -> bool:
    event = record.event_log_entry.dagster_event
    failure = None if event is None else event.step_failure_data.user_failure_data
    if failure is None:
        return False
    facts = {name: value.value for name, value in failure.metadata.items()}
    return facts.get("weblake/load_id") == load_id and facts.get("weblake/error") in _FINAL
