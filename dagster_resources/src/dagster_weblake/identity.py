"""The identity of a step's load: the asset, its partition, and the run or backfill that requested it.

Dagster runs a step again in five ways, and only two of them mean "buy again":

    a step retry                                        the same run
    a run retry by the daemon                           a new run, tagged dagster/retry_number
    a person's re-execution of a run from failure       a new run, tagged as resuming
    a person's re-execution of a backfill from failure  a new backfill, whose runs have no parent run
    a person's re-execution of all steps, or of all of  a new request
    a backfill; a new run, a new backfill

The runs of a re-executed backfill are tagged with the backfill that it repeats and the first one, but not with whether
it repeats "from failure" or "all". In the former case Dagster leaves out the partitions that the repeated backfill has
materialized; so a partition that it has materialized is a new request, and any other one is continued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import dagster as dg

from weblake import orchestration
from weblake.errors import AskPerson

if TYPE_CHECKING:
    from weblake.orchestration import Dataset, Task

#: Tags of a run that continues the work of its parent.
_RESUME_TAGS = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
_RETRY_NUMBER = "dagster/retry_number"
#: Tags of a run of a backfill: that backfill; the one that it repeats; the first of them.
_BACKFILL, _REPEATED, _FIRST = "dagster/backfill", "dagster/parent_backfill_id", "dagster/root_backfill_id"
#: The maximum of parents, runs and events that are looked up; no chain of retries is that long.
_MAX_LOOKUPS = 64


@dataclass(frozen=True)
class Lineage:
    """The runs and backfills that one run continues."""

    instance: dg.DagsterInstance
    run: dg.DagsterRun

    def task(self, dataset: Dataset, key: dg.AssetKey, partition: str | None, reported_key: dg.AssetKey) -> Task:
        """Return the step's work on one asset partition, under the name that its loads have.

        Args:
            dataset: The dataset of the loads.
            key: The asset that the loads materialize.
            partition: The asset's partition.
            reported_key: The asset that the step materializes: `key`, or the one that starts jobs for it.

        Raises:
            AskPerson: A load is open, and it cannot be known whether the step is to continue it.
            StorageRefused: A record that decides it cannot be read.
        """
        task = self.task_of(key, partition, reported_key)
        if self._first_run is None and not self._backfills:
            started = orchestration.LoadState(dataset, task.load_id(0)).intent
            if started is None:
                self._check_nothing_is_open(dataset, task)
        return task

    def task_of(self, key: dg.AssetKey, partition: str | None, reported_key: dg.AssetKey) -> Task:
        """Return the work as `task` does, without a look at open loads."""
        by_run = self._by_run(("dagster", key.to_user_string()), partition)
        if not self._backfills:
            return by_run
        first, asked = self._backfills[-1], self._requested_by
        if asked is not None and asked.parent_run_id is not None:  # all steps of a run were executed again
            return replace(by_run, run=first)
        return replace(by_run, run=first, occasion=self._requesting_backfill(reported_key, partition))

    def has_begun(self, run_id: str) -> bool:
        """Return whether a run is this one, or has the same first run."""
        if run_id in (self.run.run_id, self.run.root_run_id):
            return True
        other = self.instance.get_run_by_id(run_id) if self.run.root_run_id and run_id else None
        return other is not None and other.root_run_id == self.run.root_run_id

    def _by_run(self, names: tuple[str | int, ...], partition: str | None) -> Task:
        """Return the work under the name of the first run."""
        root, asked = self.run.root_run_id or self.run.run_id, self._requested_by
        return orchestration.Task(names, root, root if asked is None else asked.run_id, partition)

    @cached_property
    def _first_run(self) -> dg.DagsterRun | None:
        """Return the first of the runs that were retried or re-executed up to this one; None if it was deleted."""
        root = self.run.root_run_id
        return self.run if root is None or root == self.run.run_id else self.instance.get_run_by_id(root)

    @cached_property
    def _requested_by(self) -> dg.DagsterRun | None:
        """Return the run that requested the work, at the beginning of a chain of retries; None if it was deleted."""
        run = self.run
        for _ in range(_MAX_LOOKUPS):
            if run.parent_run_id is None or not _continues_parent(run):
                break
            parent = self.instance.get_run_by_id(run.parent_run_id)
            if parent is None:
                return None  # taken for the retry that it says it is
            run = parent
        return run

    @cached_property
    def _backfills(self) -> list[str]:
        """Return the backfill of the first run, the one that it repeats, and so on to the first one; empty without any.

        Dagster leaves a backfill's tags out of what follows its runs once it has ended, so the first run's tags count.
        """
        tags = self.run.tags if self._first_run is None else self._first_run.tags
        if _BACKFILL not in tags:
            return []
        found, first = [tags[_BACKFILL]], tags.get(_FIRST)
        repeated = tags.get(_REPEATED)
        while repeated is not None and repeated not in found and len(found) < _MAX_LOOKUPS:
            found.append(repeated)
            backfill = None if repeated == first else self.instance.get_backfill(repeated)
            repeated = None if backfill is None else backfill.tags.get(_REPEATED)
        if first is not None and first not in found:
            found.append(first)
        return found

    def _requesting_backfill(self, reported_key: dg.AssetKey, partition: str | None) -> str:
        """Return the backfill that requested the partition: after the newest that materialized it, or the first."""
        if len(self._backfills) > 1:
            wanted = dg.AssetRecordsFilter(reported_key, asset_partitions=None if partition is None else [partition])
            records = self.instance.fetch_materializations(wanted, limit=_MAX_LOOKUPS).records
            if run_ids := list({record.run_id for record in records if record.run_id}):
                within = dg.RunsFilter(run_ids=run_ids, tags={_BACKFILL: self._backfills[1:]})
                reported_in = {run.tags[_BACKFILL] for run in self.instance.get_runs(within)}
                for later, backfill in pairwise(self._backfills):
                    if backfill in reported_in:
                        return later
        return self._backfills[-1]

    def _check_nothing_is_open(self, dataset: Dataset, task: Task) -> None:
        """Raise AskPerson if a load of the task is open: the first run, which would identify it, is deleted.

        Unlike the rest of this module this reads the whole ledger, because nothing else identifies the load.
        """
        for load in orchestration.open_loads_of_task(dataset, task):
            job = "" if load.job_id is None else f", job {load.job_id}"
            of = "" if task.partition is None else f", partition {task.partition}"
            raise AskPerson(
                f"Load {load.load_id} of {task.names[-1]}{of} is open ({load.record}{job}). This run follows run "
                f"{self.run.root_run_id}, which is deleted, so it cannot be known whether it is to land that load.",
                hint="Land its job, if `weblake orphans` names one, with an asset of a JobRequest, and do not "
                "re-execute this run after that: it would buy the pages again. To buy them, materialize the asset in a "
                "new run.",
            )


def _continues_parent(run: dg.DagsterRun) -> bool:
    return _RETRY_NUMBER in run.tags or any(run.tags.get(tag) == "true" for tag in _RESUME_TAGS)
