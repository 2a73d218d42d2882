"""Selection of the loads that a check looks at, from Dagster's event log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.checks.findings import Load
from dagster_weblake.metadata import load_named_by
from dagster_weblake.metadata.text_format import plain
from weblake import orchestration

if TYPE_CHECKING:
    from weblake.orchestration import Dataset

#: The run tags with which Dagster names the partitions that are materialized.
_PARTITION, _RANGE = "dagster/partition", "dagster/asset_partition_range_start"
#: Materializations that are searched: for one that names a load, and for those of a run over many partitions.
_SOME, _MANY = 100, 1000


class NothingLandedError(Exception):
    """There is no load to check; the text says why and what to do."""


def loads_of(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, dataset: Dataset) -> list[Load]:
    """Return the loads to check, newest first; one, unless the run has landed several partitions.

    Raises:
        NothingLandedError: There is none.
    """
    return [_load(record, key, dataset) for record in _records(context, key)]


def _records(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[dg.EventLogRecord]:
    tags = context.run.tags
    partition = tags.get(_PARTITION)
    if partition is not None:
        found = _fetch(context, dg.AssetRecordsFilter(key, asset_partitions=[partition]), _SOME)
        if found:
            return found[:1]
    if _RANGE in tags:
        found = _fetch(context, dg.AssetRecordsFilter(key), _MANY)
        ours = [record for record in found if record.run_id == context.run.run_id]
        if ours:
            return list({record.partition_key: record for record in reversed(ours)}.values())[::-1]
    found = _fetch(context, dg.AssetRecordsFilter(key), _SOME)
    if found and (partition is None or found[0].partition_key is None):
        return found[:1]
    where = "" if partition is None else f", partition {plain(partition, 200)},"
    raise NothingLandedError(
        f"{key.to_user_string()}{where} has no materialization yet that names a load of weblake: there is nothing to "
        "check. Materialize it."
    )


def _fetch(context: dg.AssetCheckExecutionContext, wanted: dg.AssetRecordsFilter, most: int) -> list[dg.EventLogRecord]:
    """Return the materializations that name a load, newest first; the newest, which usually does, is fetched first."""
    for limit in (1, most):
        records = context.instance.fetch_materializations(wanted, limit=limit).records
        found = [record for record in records if load_named_by(record) is not None]
        if len(records) < limit or (found and most == _SOME):
            break
    return found


def _load(record: dg.EventLogRecord, key: dg.AssetKey, dataset: Dataset) -> Load:
    load_id = load_named_by(record)
    assert load_id is not None
    newest = orchestration.LoadState(dataset, load_id).current
    landing = newest.landed
    if landing is None:
        event = record.asset_materialization
        root = event.metadata.get("weblake/root") if event is not None else None
        landed = root.value if root is not None else None
        elsewhere = f" It landed in {plain(landed, 300)}: give `to`." if landed not in (None, dataset.url) else ""
        raise NothingLandedError(f"Load {plain(newest.load_id, 40)} is not on record in {dataset.url}.{elsewhere}")
    return Load(dataset, landing.receipt, record.partition_key)
