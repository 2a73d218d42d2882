"""The sensor that reports loads of other programs in a dataset to Dagster: a shell, Airflow, another Dagster."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.remedies import in_dagster_terms
from dagster_weblake.sensors import ticks
from dagster_weblake.sensors.ticks import One
from weblake import orchestration
from weblake.errors import InvalidOption, WeblakeError

if TYPE_CHECKING:
    from dagster_weblake.resource import WeblakeResource
    from weblake import Receipt

#: Materializations that one tick reports: each reads a few rows for its preview.
EVENTS = 25
#: Tolerance for clock differences between machines: how long before the load landed its materialization may be dated.
CLOCK_SLACK_S = 3600.0
#: The period that a sensor without a readable cursor reports; what was reported in it is in the event log.
LOOK_BACK_S = 25 * 3600.0
_PAGE = 200
KINDS = ("batch_scrape", "crawl", "scrape", "parse")


def build_loads_elsewhere_sensor(
    assets: One | Mapping[str, One],
    *,
    to: str | None = None,
    where: Callable[[Receipt], bool] | None = None,
    partition: Callable[[Receipt], str | None] | None = None,
    fire_earlier: bool = False,
    name: str | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    resource_key: str = "weblake",
) -> dg.SensorDefinition:
    """Return a sensor that reports loads as materializations which landed in a dataset without this Dagster.

    It runs nothing and buys nothing: assets downstream are notified of new data. The metadata is that of a load which
    an asset landed. Left out is a load whose run this Dagster knows, whose load id some materialization of the asset
    has, or which another load has replaced since.

    Each load is reported once: the reported loads are in the cursor, and in the asset's own materializations, so that a
    daemon that is killed in between repeats none. A sensor without a readable cursor reports the loads of the last 25
    hours, and no older ones.

    Args:
        assets: The asset that stands for the dataset's documents; or one for each kind of load (batch_scrape, crawl,
            scrape, parse), in which case loads of other kinds are left out.
        to: The dataset's root, if it is neither the resource's nor in the asset's definition.
        where: A filter of loads, by their receipts; all by default.
        partition: Returns the asset's partition of a load; none by default. A load without one is left out if the asset
            has partitions.
        fire_earlier: Whether loads that had landed before the first tick count too, all of them.
        name: The sensor's name; by default `<asset>_loads_elsewhere`, or `weblake_loads_elsewhere` for several.
        minimum_interval_seconds: Seconds between two ticks at least.
        default_status: RUNNING by default.
        resource_key: The key of the WeblakeResource.

    Raises:
        InvalidOption: There is no such kind of load, or the assets have several roots.
    """
    by_kind = dict(assets) if isinstance(assets, Mapping) else dict.fromkeys(KINDS, assets)
    unknown = [kind for kind in by_kind if kind not in KINDS]
    if unknown or not by_kind:
        raise InvalidOption(f"There is no kind of load {unknown}.", hint=f"Kinds: {', '.join(KINDS)}.")
    found = {kind: ticks.the_one(asset) for kind, asset in by_kind.items()}
    roots = {ticks.root_of(spec, to) for _, spec in found.values()}
    if len(roots) != 1:
        raise InvalidOption("These assets have several roots.", hint="Make a sensor for each root.")
    keys = {kind: key for kind, (key, _) in found.items()}
    known: dict[str, orchestration.LedgerNews] = {}
    wanted = _Wanted(keys, roots.pop(), where, partition, fire_earlier)

    return ticks.sensor(
        ticks.name_of(name, dict.fromkeys(keys.values()), "loads_elsewhere"),
        lambda context, resource: _Tick(context, resource, wanted, known).run(),
        "Reports loads that landed in the dataset without this Dagster.",
        resource_key=resource_key,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The loads that are reported, and their assets."""

    keys: Mapping[str, dg.AssetKey]
    to: str | None
    where: Callable[[Receipt], bool] | None
    partition: Callable[[Receipt], str | None] | None
    fire_earlier: bool


@dataclass(slots=True)
class _Tick:
    context: dg.SensorEvaluationContext
    resource: WeblakeResource
    wanted: _Wanted
    #: The records of the ledger that this process has read, kept between ticks.
    known: dict[str, orchestration.LedgerNews]
    until: float = field(default_factory=ticks.deadline)
    #: Load ids that materializations of an asset have, as far as they were read.
    reported: dict[dg.AssetKey, set[str]] = field(default_factory=dict)

    def run(self) -> dg.SensorResult:
        memory = ticks.remembered(self.context)
        seen = orchestration.WatcherState.read(memory or {})
        if memory is not None and "watermark" not in memory and not self.wanted.fire_earlier:
            seen.watermark = round((time.time() - LOOK_BACK_S) * 1000)
        try:
            with in_dagster_terms():
                dataset = self.resource.dataset(self.wanted.to)
                news = self.known.setdefault(dataset.url, orchestration.LedgerNews(dataset))
                if not news.refresh(self.until, warn=self.context.log.warning):
                    return self._skipped("The ledger is long; the next tick goes on reading it.")
                return self._report(dataset, news, seen, first=memory is None)
        except WeblakeError as error:
            self.context.log.warning(f"The dataset cannot be read; the next tick does: {error}")
            return self._skipped(f"Trouble: {error}")

    def _report(
        self,
        dataset: orchestration.Dataset,
        news: orchestration.LedgerNews,
        seen: orchestration.WatcherState,
        *,
        first: bool,
    ) -> dg.SensorResult:
        if not news.count:
            return self._skipped("Nothing has landed yet.", seen if first else None)
        # Loads up to the watermark are done; only later loads are remembered one by one.
        landed = (orchestration.ListedJob(load_id, at, None) for load_id, at in news.landed_loads(after=seen.watermark))
        if first and not self.wanted.fire_earlier:
            newest = heapq.nlargest(orchestration.MAX_OVER + 1, landed, key=_age)
            seen.settle(newest, {load.job_id: {} for load in newest})
            return self._skipped(f"{news.count} loads had landed before this sensor began.", seen)
        loads = sorted(landed, key=_age)
        events: list[dg.AssetMaterialization] = []
        for load in loads:
            if seen.knows(load):
                continue
            if len(events) >= EVENTS or ticks.left(self.until) == 0:
                break
            event = self._event(dataset, load)
            events += [event] if event is not None else []
            seen.settle([load], {load.job_id: {}})
        if not events:
            return self._skipped("No other load has landed.", seen)
        return dg.SensorResult(asset_events=events, cursor=ticks.written(seen.write()))

    def _event(self, dataset: orchestration.Dataset, load: orchestration.ListedJob) -> dg.AssetMaterialization | None:
        state = orchestration.LoadState(dataset, load.job_id)
        landing = state.landed
        if landing is None or state.is_replaced:
            return None
        receipt = landing.receipt
        key = self.wanted.keys.get(receipt.kind)
        if key is None or receipt.stored == 0 or (self.wanted.where is not None and not self.wanted.where(receipt)):
            return None
        if self._is_ours(dataset, key, load):
            return None
        partition = None if self.wanted.partition is None else self.wanted.partition(receipt)
        if not ticks.can_be_run(self.context, key, partition):
            self.context.log.warning(
                f"Load {load.job_id} is not reported: {key.to_user_string()} has no partition {partition!r}."
            )
            return None
        values = metadata.load_metadata(dataset, landing, partitioned=partition is not None)
        return dg.AssetMaterialization(
            key, partition=partition, metadata=values, description="Landed without this Dagster."
        )

    def _is_ours(self, dataset: orchestration.Dataset, key: dg.AssetKey, load: orchestration.ListedJob) -> bool:
        """Return whether this Dagster has landed or reported a load: by the run on record, or by the event log."""
        intent = orchestration.LoadState(dataset, load.job_id).intent
        if intent is not None and intent.run is not None and self.context.instance.has_run(intent.run):
            return True
        if key not in self.reported:
            self.reported[key] = set(_reported_since(self.context.instance, key, load.created / 1000 - CLOCK_SLACK_S))
        return load.job_id in self.reported[key]

    def _skipped(self, why: str, seen: orchestration.WatcherState | None = None) -> dg.SensorResult:
        cursor = self.context.cursor if seen is None else ticks.written(seen.write())
        return dg.SensorResult(skip_reason=why, cursor=cursor)


def _reported_since(instance: dg.DagsterInstance, key: dg.AssetKey, since: float) -> Sequence[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        wanted = dg.AssetRecordsFilter(key, after_timestamp=since)
        page = instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
        for record in page.records:
            load_id = metadata.load_named_by(record)
            found += [load_id] if load_id is not None else []
        if not page.has_more:
            return found
        cursor = page.cursor


def _age(load: orchestration.ListedJob) -> tuple[int, str]:
    return load.created, load.job_id
