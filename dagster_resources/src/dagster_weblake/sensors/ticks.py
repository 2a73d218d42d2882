"""Common parts of the sensors: a fault-tolerant cursor, a time limit, and requests that are followed to their runs.

Dagster loses no request of a tick that it had recorded, not even when its daemon is killed; but it drops one that could
not be launched, or that a stopped sensor had not come to. So a sensor requests a run again until it finds it: requests
with the same run key give one run at most.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import dagster as dg

from dagster_weblake.resource import WeblakeResource
from weblake.errors import InvalidOption

#: Seconds that a tick may take: Dagster aborts it after 60, and its results would be lost.
TICK_S = 40.0
#: Requests of one tick. Dagster keeps them in one field of its database, which on MySQL holds 64 KB.
REQUESTS = 100

#: The tags that Dagster puts on a run that a sensor has requested.
_RUN_KEY, _SENSOR = "dagster/run_key", "dagster/sensor_name"

#: An asset: its definition, its spec or its key, as text `prefix/name`.
Asset = dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str
#: An asset, or what `build_weblake_assets` returns for one asset.
One = Asset | Sequence[dg.AssetsDefinition]
#: The return value of a sensor's function.
Evaluated = list[dg.RunRequest] | dg.SkipReason | dg.SensorResult | None


class CallableSensor(dg.SensorDefinition):
    """A sensor that tests can call as any other: Dagster requires `with` if a resource has a teardown."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        """Evaluate the sensor once and return what its function returns: a list of requests, or a SkipReason.

        The resource is the one that is given by its key, else the context's, else that of its definitions.
        """
        contexts = [each for each in (*args, *given.values()) if isinstance(each, dg.SensorEvaluationContext)]
        (key,) = self.required_resource_keys
        with ExitStack() as opened:
            for context in contexts[:1]:
                opened.enter_context(context)
                defined = {} if context.repository_def is None else context.repository_def.get_top_level_resources()
                if key not in given and key in defined and not hasattr(context.resources, key):
                    given[key] = getattr(opened.enter_context(dg.build_resources({key: defined[key]})), key)
                if key in given:
                    return self._raw_fn(context, **{key: given[key]})
            return super().__call__(*args, **given)


def sensor(
    name: str,
    tick: Callable[[dg.SensorEvaluationContext, WeblakeResource], dg.SensorResult],
    description: str,
    *,
    keys: Iterable[dg.AssetKey] = (),
    resource_key: str,
    minimum_interval_seconds: int,
    default_status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Return a sensor that calls `tick` with the resource, and may request runs of the assets with these keys.

    Its function takes the resource as a parameter, so that the sensor can be called in tests as Dagster documents it.
    """

    def evaluate(context: dg.SensorEvaluationContext, **resources: WeblakeResource) -> Evaluated:
        if not _has_instance(context):
            return dg.SkipReason(
                f"Sensor {name} reads the event log, and this context has none: give build_sensor_context an instance."
            )
        return evaluated(context, tick(context, resources[resource_key]))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    types = {"context": dg.SensorEvaluationContext, resource_key: WeblakeResource}
    parameters = [inspect.Parameter(name, kind, annotation=annotation) for name, annotation in types.items()]
    evaluate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    evaluate.__annotations__ = types
    runs = list(keys)
    return CallableSensor(
        name=name,
        evaluation_fn=evaluate,
        asset_selection=dg.AssetSelection.assets(*runs) if runs else None,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description=description,
    )


def evaluated(context: dg.SensorEvaluationContext, result: dg.SensorResult) -> Evaluated:
    """Return the result of a tick in the form that callers of a sensor expect: the run requests, or a skip reason.

    A result that also has events for the event log is returned unchanged.
    """
    if result.asset_events:
        return result
    if result.cursor is not None:
        context.update_cursor(result.cursor)
    return list(result.run_requests) if result.run_requests else result.skip_reason


def _has_instance(context: dg.SensorEvaluationContext) -> bool:
    try:
        return context.instance is not None
    except dg.DagsterInvariantViolationError:  # a context that a test has built without one
        return False


def deadline() -> float:
    """Return the time at which a tick that begins now has to end, in monotonic seconds."""
    return time.monotonic() + TICK_S


def remembered(context: dg.SensorEvaluationContext) -> dict[str, object] | None:
    """Return the content of the cursor: None at the first tick; empty if it cannot be read, which is logged."""
    if context.cursor is None:
        return None
    try:
        found = json.loads(context.cursor)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    context.log.warning("The cursor of this sensor cannot be read; it begins anew, and no job is collected twice.")
    return {}


def written(memory: Mapping[str, object]) -> str:
    """Return the cursor that holds this state."""
    return json.dumps(memory, separators=(",", ":"))


def launched(context: dg.SensorEvaluationContext, sensor: str, run_keys: Iterable[str]) -> set[str]:
    """Return the run keys of a sensor for which Dagster has launched a run, however that has ended."""
    found = set()
    for run_key in run_keys:  # one by one, as Dagster does: its database has an index for one, not for many
        runs = context.instance.get_runs(filters=dg.RunsFilter(tags={_RUN_KEY: run_key, _SENSOR: sensor}), limit=1)
        if runs and runs[0].status != dg.DagsterRunStatus.NOT_STARTED:
            found.add(run_key)
    return found


def can_be_run(context: dg.SensorEvaluationContext, key: dg.AssetKey, partition: str | None) -> bool:
    """Return whether the partition exists now: Dagster fails the whole tick over a request for a deleted one."""
    if context.repository_def is None or not context.repository_def.asset_graph.has(key):
        return True
    partitions = context.repository_def.asset_graph.get(key).partitions_def
    if partitions is None or partition is None:
        return partitions is None and partition is None
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        return context.instance.has_dynamic_partition(str(partitions.name), partition)
    if isinstance(partitions, dg.MultiPartitionsDefinition):  # their dimensions may be dynamic
        return partition in partitions.get_partition_keys(dynamic_partitions_store=context.instance)
    return partitions.has_partition_key(partition)


def the_one(asset: One) -> tuple[dg.AssetKey, dg.AssetSpec | None]:
    """Return the key of an asset, and its spec if it is given; assets that only start jobs do not count.

    Raises:
        InvalidOption: It is a definition of several assets, or none.
    """
    if isinstance(asset, str):
        return dg.AssetKey.from_user_string(asset), None
    if isinstance(asset, dg.AssetKey):
        return asset, None
    specs = [asset] if isinstance(asset, dg.AssetSpec) else specs_of(asset)
    specs = [spec for spec in specs if "weblake/starts" not in spec.metadata]
    if len(specs) != 1:
        names = ", ".join(spec.key.to_user_string() for spec in specs) or "none"
        raise InvalidOption(
            f"One asset was expected, and these are {len(specs)}: {names}.",
            hint="Give the key of the one that is meant.",
        )
    return specs[0].key, specs[0]


def specs_of(assets: dg.AssetsDefinition | Sequence[dg.AssetsDefinition]) -> list[dg.AssetSpec]:
    """Return the specs of all assets that these define."""
    given = [assets] if isinstance(assets, dg.AssetsDefinition) else assets
    return [spec for each in given for spec in each.specs]


def name_of(name: str | None, keys: Iterable[dg.AssetKey], what: str) -> str:
    """Return the sensor's name: as given, or derived from its only asset."""
    found = list(keys)
    if name is not None:
        return name
    return f"{found[0].to_python_identifier()}_{what}" if len(found) == 1 else f"weblake_{what}"


def root_of(spec: dg.AssetSpec | None, to: str | None) -> str | None:
    """Return the root: as given, or as the asset's spec says; None if it is the resource's."""
    own = None if spec is None else spec.metadata.get("weblake/to")
    return to if to is not None or not isinstance(own, str) else own


def left(until: float) -> float:
    """Return the seconds until then, never below zero."""
    return max(0.0, until - time.monotonic())
