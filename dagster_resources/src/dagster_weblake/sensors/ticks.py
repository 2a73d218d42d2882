"""Common parts of a tick: a fault-tolerant cursor, a time limit, and requests that are followed to their runs.

Dagster loses no request of a tick that it had recorded, not even when its daemon is killed; but it drops one that could
not be launched, or that a stopped sensor had not come to. So a sensor requests a run again until it finds it: requests
with the same run key give one run at most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import dagster as dg

#: Seconds that a tick may take: Dagster aborts it after 60, and its results would be lost.
TICK_S = 40.0
#: Seconds after that in which it still looks up the runs that have started jobs.
OWN_RUNS_S = 10.0
#: Requests of one tick. Dagster keeps them in one field of its database, which on MySQL holds 64 KB.
REQUESTS = 100

#: The tags that Dagster puts on a run that a sensor has requested.
_RUN_KEY, _SENSOR = "dagster/run_key", "dagster/sensor_name"


class CallableSensor(dg.SensorDefinition):
    """A sensor that tests can call with a context: Dagster requires `with` if a resource has a teardown."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        """Evaluate the sensor once and return its SensorResult."""
        with ExitStack() as opened:
            for each in (*args, *given.values()):
                if isinstance(each, dg.SensorEvaluationContext):
                    opened.enter_context(each)
            return super().__call__(*args, **given)


def remembered(context: dg.SensorEvaluationContext) -> dict[str, object]:
    """Return the content of the cursor; empty at the first tick, and if it cannot be read, which is logged."""
    if context.cursor is None:
        return {}
    try:
        found = json.loads(context.cursor)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    context.log.warning("The cursor of this sensor cannot be read; it begins anew, and no job is collected twice.")
    return {}


def launched(
    context: dg.SensorEvaluationContext, sensor: str, run_keys: Iterable[str], until: float
) -> dict[str, bool]:
    """Return by run key of a sensor whether Dagster has launched a run, however that has ended.

    Keys for which there is no time before `until`, in monotonic seconds, are left out.
    """
    found: dict[str, bool] = {}
    for run_key in run_keys:  # one by one, as Dagster does: its database has an index for one, not for many
        if time.monotonic() > until:
            break
        runs = context.instance.get_runs(filters=dg.RunsFilter(tags={_RUN_KEY: run_key, _SENSOR: sensor}), limit=1)
        found[run_key] = bool(runs) and runs[0].status != dg.DagsterRunStatus.NOT_STARTED
    return found


def can_be_run(context: dg.SensorEvaluationContext, key: dg.AssetKey, partition: str | None) -> bool:
    """Return whether the partition exists now: Dagster fails the whole tick over a request for a deleted one."""
    if context.repository_def is None or not context.repository_def.asset_graph.has(key):
        return True
    partitions = context.repository_def.asset_graph.get(key).partitions_def
    if partitions is None or partition is None:
        return partitions is None and partition is None
    return _has_partition(context.instance, partitions, partition)


def _has_partition(instance: dg.DagsterInstance, partitions: dg.PartitionsDefinition, key: str) -> bool:
    """Return whether a partition exists, without a list of all partitions: it may have a million."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        keys = key.split("|")
        dimensions = [dimension.partitions_def for dimension in partitions.partitions_defs]
        return len(keys) == len(dimensions) and all(map(partial(_has_partition, instance), dimensions, keys))
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        return instance.has_dynamic_partition(str(partitions.name), key)
    return partitions.has_partition_key(key)
