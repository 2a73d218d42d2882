"""Selection of the loads that a check looks at, from Dagster's event log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.checks.findings import Load
from dagster_weblake.metadata import named_loads
from dagster_weblake.metadata.text_format import plain
from weblake import orchestration

if TYPE_CHECKING:
    from weblake.orchestration import Dataset

#: The run tags with which Dagster names the partitions that are materialized.
_PARTITION, _RANGE = "dagster/partition", "dagster/asset_partition_range_start"
#: Pages of materializations that are searched: for one that names a load, and for those of a run over many partitions.
_SOME, _MANY = 1, 2


class NothingLandedError(Exception):
    """There is no load to check; the text says why and what to do."""


def loads_of(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, dataset: Dataset) -> list[Load]:
    """Return the loads to check, newest first; one, unless the run has landed several partitions.

    Raises:
        NothingLandedError: There is none.
    """
    return [_load(load_id, record, dataset) for load_id, record in _named(context, key)]


def _named(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[tuple[str, dg.EventLogRecord]]:
    instance, partition = context.instance, context.run.tags.get(_PARTITION)
    if _RANGE in context.run.tags:
        ours: dict[str | None, tuple[str, dg.EventLogRecord]] = {}
        for load_id, record in named_loads(instance, key, pages=_MANY):
            if record.run_id == context.run.run_id:
                ours.setdefault(record.partition_key, (load_id, record))
        if ours:
            return list(ours.values())
    found = None if partition is None else next(named_loads(instance, key, [partition], pages=_SOME), None)
    if found is None:
        found = next(named_loads(instance, key, pages=_SOME), None)
        if partition is not None and found is not None and found[1].partition_key is not None:
            found = None  # the newest one is of another partition
    if found is None:
        where = "" if partition is None else f", partition {plain(partition, 200)},"
        raise NothingLandedError(
            f"{key.to_user_string()}{where} has no materialization yet that names a load of weblake: there is nothing "
            "to check. Materialize it."
        )
    return [found]


def _load(load_id: str, record: dg.EventLogRecord, dataset: Dataset) -> Load:
    newest = orchestration.LoadState(dataset, load_id).current
    landing = newest.landed
    if landing is None:
        event = record.asset_materialization
        root = event.metadata.get("weblake/root") if event is not None else None
        landed = root.value if root is not None else None
        elsewhere = f" It landed in {plain(landed, 300)}: give `to`." if landed not in (None, dataset.url) else ""
        raise NothingLandedError(f"Load {plain(newest.load_id, 40)} is not on record in {dataset.url}.{elsewhere}")
    return Load(dataset, landing.receipt, record.partition_key)
