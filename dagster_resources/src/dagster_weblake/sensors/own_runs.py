"""Detection of jobs that the run which started them also lands, so that a sensor must not request a run, or not yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class OwnRuns:
    """The runs that have started jobs, each read once: a run over many partitions has started a job for each."""

    instance: dg.DagsterInstance
    _runs: dict[str, dg.DagsterRun | None] = field(default_factory=dict)
    _selected: dict[tuple[str, dg.AssetKey], bool] = field(default_factory=dict)
    _failures: dict[str, Sequence[dg.EventLogRecord]] = field(default_factory=dict)

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
        if run.run_id not in self._failures:
            found = self.instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
            self._failures[run.run_id] = found.records
        failures = self._failures[run.run_id]
        return OwnRun.FAILED if any(_is_final(record, job.load_id) for record in failures) else OwnRun.NOTHING

    def _run(self, run_id: str) -> dg.DagsterRun | None:
        if run_id not in self._runs:
            self._runs[run_id] = self.instance.get_run_by_id(run_id)
        return self._runs[run_id]

    def _selects(self, run: dg.DagsterRun, key: dg.AssetKey) -> bool:
        if run.asset_selection:
            return key in run.asset_selection
        if (run.run_id, key) not in self._selected:
            planned = self.instance.get_records_for_run(
                run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
            )
            self._selected[run.run_id, key] = any(record.asset_key == key for record in planned.records)
        return self._selected[run.run_id, key]


def _is_final(record: dg.EventLogRecord, load_id: str) -> bool:
    event = record.event_log_entry.dagster_event
    failure = None if event is None else event.step_failure_data.user_failure_data
    if failure is None:
        return False
    facts = {name: value.value for name, value in failure.metadata.items()}
    return facts.get("weblake/load_id") == load_id and facts.get("weblake/error") in _FINAL
