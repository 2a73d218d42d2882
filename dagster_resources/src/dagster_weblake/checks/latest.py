"""Selection of the loads that a check looks at, from Dagster's event log."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.checks.findings import Load
from dagster_weblake.metadata import load_named_by, named_loads
from dagster_weblake.metadata.text_format import plain
from weblake import orchestration
from weblake.errors import WeblakeError

if TYPE_CHECKING:
    from weblake.orchestration import Dataset

#: The run tag with which Dagster names the partition that is materialized.
_PARTITION = "dagster/partition"
_MONTH = re.compile(r"\d{4}-\d\d")
#: Pages of materializations that are searched for one that names a load.
_SOME = 1


class NothingLandedError(Exception):
    """There is no load to check; the text says why and what to do."""


def loads_of(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, dataset: Dataset) -> list[Load]:
    """Return the loads to check, newest first; one, unless the run has landed several partitions.

    Raises:
        NothingLandedError: There is none.
    """
    return [_load(load_id, record, dataset) for load_id, record in _named(context, key)]


def months_of(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[str]:
    """Return the months, YYYY-MM, that the check's own run has landed; else that of its partition; else the current."""
    landed = {record.partition_key for record in _materializations(context, key)}
    months = {str(name)[:7] for name in landed or {context.run.tags.get(_PARTITION)}}
    return sorted(filter(_MONTH.fullmatch, months)) or [f"{datetime.now(timezone.utc):%Y-%m}"]


def replacement_of(load: Load) -> Load | None:
    """Return the load that has replaced this one since it was selected; None if there is none or it is not known."""
    with suppress(WeblakeError):
        newest = orchestration.LoadState(load.dataset, load.receipt.load_id).current
        landing = newest.landed
        if newest.load_id != load.receipt.load_id and landing is not None:
            return replace(load, receipt=landing.receipt)
    return None


def _named(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[tuple[str, dg.EventLogRecord]]:
    if ours := _landed_by_run(context, key):
        return ours
    instance, partition = context.instance, context.run.tags.get(_PARTITION)
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


def _landed_by_run(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[tuple[str, dg.EventLogRecord]]:
    """Return the newest load of each partition that the check's own run has landed, newest first."""
    found: dict[str | None, tuple[str, dg.EventLogRecord]] = {}
    for record in _materializations(context, key):
        load_id = load_named_by(record)
        if load_id is not None:
            found.setdefault(record.partition_key, (load_id, record))
    return list(found.values())


def _materializations(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[dg.EventLogRecord]:
    """Return the materializations of the asset by the check's own run, newest first."""
    events = context.instance.get_records_for_run(
        context.run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION, ascending=False
    )
    return [record for record in events.records if record.asset_key == key]


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
