"""The sensor that has a month's usage landed once the month has closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_weblake.remedies import in_dagster_terms
from dagster_weblake.sensors import ticks
from dagster_weblake.sensors.ticks import One
from weblake import orchestration
from weblake.errors import InvalidOption, RetryLater

if TYPE_CHECKING:
    from dagster_weblake.resource import WeblakeResource

Report = Literal["credits", "tokens"]


def build_usage_closed_sensor(
    asset: One,
    *,
    report: Report | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    fire_latest: bool = False,
    name: str | None = None,
    minimum_interval_seconds: int = 3600,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    resource_key: str = "weblake",
) -> dg.SensorDefinition:
    """Return a sensor that requests a run for each usage period that has closed, so that its final numbers land.

    A period has closed when its end is past, or when the service reports a later one. Each is requested, with
    `<report>/<month>` as run key, until its run was launched; after an outage all periods that closed meanwhile are
    requested. A sensor whose cursor cannot be read requests again what has no run yet. Reading usage costs no credits.

    Args:
        asset: The asset of a `UsageRequest`, its spec or its key.
        report: `credits` or `tokens`; by default the one that the asset's definition names, else credits.
        partitions_def: The asset's partitions, if `asset` is a key: the run is for the partition of the period, which
            begins with its month, or is named like it (`2026-11`). Without partitions it is for the whole asset.
        fire_latest: Whether the newest period that had closed before the first tick counts too; by default the sensor
            only records it. Earlier months are left to backfills.
        name: The sensor's name; by default `<asset>_closed`.
        minimum_interval_seconds: Seconds between two ticks at least; an hour by default.
        default_status: RUNNING by default.
        resource_key: The key of the WeblakeResource.

    Raises:
        InvalidOption: There is no such report.
    """
    key, spec = ticks.the_one(asset)
    partitions_def = partitions_def or (None if spec is None else spec.partitions_def)
    named = _report_of(spec) if report is None else report
    if named not in ("credits", "tokens"):
        raise InvalidOption(f"There is no report of {named!r}.", hint="Give credits or tokens.")
    sensor = ticks.name_of(name, [key], "closed")
    wanted = _Wanted(sensor, key, named, partitions_def, fire_latest)

    return ticks.sensor(
        sensor,
        lambda context, resource: _tick(context, resource, wanted),
        "Has usage landed when its month has closed.",
        keys=[key],
        resource_key=resource_key,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )


def _report_of(spec: dg.AssetSpec | None) -> str:
    told = None if spec is None else spec.metadata.get("weblake/report")
    return told.removesuffix("_by_key") if isinstance(told, str) else "credits"


@dataclass(frozen=True, slots=True)
class _Wanted:
    sensor: str
    key: dg.AssetKey
    report: str
    partitions_def: dg.PartitionsDefinition[str] | None
    fire_latest: bool


def _tick(context: dg.SensorEvaluationContext, resource: WeblakeResource, wanted: _Wanted) -> dg.SensorResult:
    memory = ticks.remembered(context)
    try:
        with in_dagster_terms(), resource.get_client() as client:
            found = client.run(orchestration.report(wanted.report, client.retry))
    except RetryLater as error:
        context.log.warning(f"Usage could not be read; the next tick does: {error}")
        return dg.SensorResult(skip_reason=f"Trouble: {error}", cursor=context.cursor)
    closed = orchestration.closed_periods(found, datetime.now(timezone.utc))
    settled = _remembered(memory, closed, fire_latest=wanted.fire_latest)
    news = [period for period in closed if _text(period.start) > settled]
    there = ticks.launched(context, wanted.sensor, [_run_key(wanted, period) for period in news])
    open_ones = [each for each in news if _run_key(wanted, each) not in there and not _is_before(wanted, each)]
    requests = [request for each in open_ones if (request := _request(context, wanted, each)) is not None]
    cursor = ticks.written({"settled": _settled(settled, news, open_ones)})
    if requests:
        return dg.SensorResult(run_requests=requests[: ticks.REQUESTS], cursor=cursor)
    return dg.SensorResult(skip_reason="No other usage period has closed.", cursor=cursor)


def _remembered(
    memory: Mapping[str, object] | None, closed: Sequence[orchestration.ClosedPeriod], *, fire_latest: bool
) -> str:
    """Return the start of the last period that needs no request."""
    if memory is None:
        known = closed[:-1] if fire_latest else closed
        return _text(known[-1].start) if known else ""
    told = memory.get("settled")
    return told if isinstance(told, str) else ""


def _settled(before: str, news: list[orchestration.ClosedPeriod], open_ones: list[orchestration.ClosedPeriod]) -> str:
    """Return the start of the last period before the first one that is still to be requested."""
    first = _text(open_ones[0].start) if open_ones else None
    return max([before, *(_text(period.start) for period in news if first is None or _text(period.start) < first)])


def _request(
    context: dg.SensorEvaluationContext, wanted: _Wanted, period: orchestration.ClosedPeriod
) -> dg.RunRequest | None:
    partition = _partition(wanted.partitions_def, period)
    if not ticks.can_be_run(context, wanted.key, partition):
        context.log.warning(
            f"{wanted.key.to_user_string()} has no partition {partition!r} now; the next tick asks again. "
            "With end_offset=1 a month has its partition from its first day on."
        )
        return None
    return dg.RunRequest(run_key=_run_key(wanted, period), asset_selection=[wanted.key], partition_key=partition)


def _partition(partitions: dg.PartitionsDefinition[str] | None, period: orchestration.ClosedPeriod) -> str | None:
    """Return the partition that lands a period's month."""
    if partitions is None:
        return None
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return period.month
    return partitions.get_partition_key_for_timestamp(_month(partitions, period).timestamp())


def _is_before(wanted: _Wanted, period: orchestration.ClosedPeriod) -> bool:
    """Return whether a period is before the asset's first partition."""
    partitions = wanted.partitions_def
    return isinstance(partitions, dg.TimeWindowPartitionsDefinition) and _month(partitions, period) < partitions.start


def _month(partitions: dg.TimeWindowPartitionsDefinition, period: orchestration.ClosedPeriod) -> datetime:
    """Return the first moment of a period's month in the time zone of the partitions."""
    return datetime(period.start.year, period.start.month, 1, tzinfo=ZoneInfo(partitions.timezone))


def _run_key(wanted: _Wanted, period: orchestration.ClosedPeriod) -> str:
    return f"{wanted.report}/{period.month}"


def _text(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds")
