"""Sensors evaluated in this process, with an instance on disk, and their requests run as the daemon would."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import dagster as dg
from in_process import Bench

from weblake.testing import WeblakeService

T = TypeVar("T")
DEADLINE_S = 60.0


@dataclass
class Ticker:
    """A sensor that is switched on: it keeps the cursor, as Dagster does."""

    bench: Bench
    sensor: dg.SensorDefinition
    assets: Sequence[dg.AssetsDefinition]
    cursor: str | None = None
    #: What the last tick logged.
    log: list[str] = field(default_factory=list)

    @property
    def definitions(self) -> dg.Definitions:
        return dg.Definitions(
            assets=self.assets,
            sensors=[self.sensor],
            resources={"weblake": self.bench.resource},
            executor=dg.in_process_executor,
        )

    def tick(self) -> Tick:
        """One tick."""
        self.log.clear()
        with dg.build_sensor_context(
            instance=self.bench.instance,
            instance_ref=self.bench.instance.get_ref(),
            cursor=self.cursor,
            definitions=self.definitions,
            resources={"weblake": self.bench.resource},
            sensor_name=self.sensor.name,
        ) as context:
            context.log.handle = lambda record: self.log.append(record.getMessage())  # type: ignore[method-assign]
            data = self.sensor.evaluate_tick(context)
        self.cursor = data.cursor
        assert len(data.cursor or "") < 64_000
        return Tick(list(data.run_requests or []), data.skip_message)

    def until(self, done: Callable[[Tick], bool]) -> Tick:
        """Ticks until one is as wanted."""
        return until(self.tick, done)

    def restarted(self, sensor: dg.SensorDefinition) -> Ticker:
        """The same after the code was loaded anew."""
        return Ticker(self.bench, sensor, self.assets, self.cursor)

    def run(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Runs what was requested, with the tags of the daemon."""
        tags = {**request.tags, "dagster/run_key": str(request.run_key), "dagster/sensor_name": self.sensor.name}
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.bench.instance,
            asset_selection=list(request.asset_selection or []),
            partition_key=request.partition_key,
            run_config=dict(request.run_config),
            tags=tags,
            raise_on_error=False,
        )


@dataclass
class Tick:
    """The result of a tick."""

    requests: list[dg.RunRequest]
    said: str | None

    @property
    def keys(self) -> list[str | None]:
        return [request.run_key for request in self.requests]


def until(look: Callable[[], T], done: Callable[[T], bool]) -> T:
    """Looks again and again until what is seen is as wanted."""
    give_up = time.monotonic() + DEADLINE_S
    while not done(found := look()):
        assert time.monotonic() < give_up, f"not within {DEADLINE_S:.0f} s: {found}"
        time.sleep(0.1)
    return found


def ended(service: WeblakeService, *job_ids: str) -> None:
    """Waits until these batches are over."""
    with service.client() as client:
        for job_id in job_ids:
            until(lambda: client.get_batch_scrape(job_id).status, lambda s: s in ("completed", "cancelled"))  # noqa: B023


def start(service: WeblakeService, urls: Iterable[str]) -> str:
    """Starts a batch elsewhere; returns its id."""
    with service.client() as client:
        # A page that is held must not end by itself before a test lets it go, however busy the machine is.
        job_id = client.start_batch_scrape(list(urls), timeout=240_000).id
    assert job_id
    return job_id


def counted(cursor: str | None, name: str) -> int:
    """Return the total length of the lists with this name in a cursor."""
    return sum(len(ids) for ids in json.loads(cursor or "{}").get(name, {}).values())
