"""Assets materialised in this process, and the results that tests inspect."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import duckdb

from dagster_weblake import WeblakeResource
from weblake.testing import WeblakeService


@dataclass
class Bench:
    """An instance on disk, the embedded service, and a dataset."""

    instance: dg.DagsterInstance
    service: WeblakeService
    root: Path

    @property
    def resource(self) -> WeblakeResource:
        return WeblakeResource(base_url=self.service.url, api_key=self.service.key, root=str(self.root))

    def run(
        self,
        assets: Sequence[object],
        *selection: str,
        partition: str | None = None,
        partitions: tuple[str, str] | None = None,
        resources: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        run_config: object = None,
    ) -> Run:
        """Materialises a selection (all by default), for one partition, or from one to another in a single run."""
        tags = dict(tags or {})
        if partitions is not None:
            tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"] = partitions
        result = dg.materialize(
            assets,  # type: ignore[arg-type]
            selection=list(selection) or None,
            partition_key=partition,
            instance=self.instance,
            resources={"weblake": self.resource, **(resources or {})},
            tags=tags,
            run_config=run_config,  # type: ignore[arg-type]
            raise_on_error=False,
        )
        return Run(result)

    def rows(self, table: str = "documents") -> int:
        found = list(self.root.glob(f"{table}/**/*.parquet"))
        if not found:
            return 0
        with duckdb.connect() as database:
            query = f"select count(*) from read_parquet('{self.root}/{table}/**/*.parquet')"
            return int(database.execute(query).fetchall()[0][0])

    def files(self, table: str = "documents") -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(f"{table}/**/*.parquet"))

    def partitions(self, asset: str) -> list[str | None]:
        """What the instance has of an asset, newest first; also of runs that failed afterwards."""
        found = self.instance.fetch_materializations(dg.AssetKey(asset), limit=1000).records
        return [record.partition_key for record in found]

    @property
    def started(self) -> int:
        """Jobs and pages that were paid for."""
        return sum(count for name, count in self.service.counts().items() if name.endswith("_started"))


@dataclass
class Run:
    """The result of one run."""

    result: dg.ExecuteInProcessResult

    @property
    def success(self) -> bool:
        return self.result.success

    def metadata(self, asset: str, partition: str | None = None) -> dict[str, object]:
        """The values of the last materialisation of an asset (partition) in this run."""
        found = None
        for event in self.result.get_asset_materialization_events():
            materialization = event.step_materialization_data.materialization
            if materialization.asset_key.to_user_string() == asset and materialization.partition == partition:
                found = materialization
        assert found is not None, f"{asset} was not materialised"
        return {name: value.value for name, value in found.metadata.items()}

    def materialized(self) -> list[tuple[str, str | None]]:
        return [
            (event.step_materialization_data.materialization.asset_key.to_user_string(), event.partition)
            for event in self.result.get_asset_materialization_events()
        ]

    def failure(self) -> dg.Failure:
        """Return the error of the one failed step."""
        (event,) = [event for event in self.result.all_events if event.is_step_failure]
        error = event.step_failure_data.error
        assert error is not None
        user = event.step_failure_data.user_failure_data
        description = (user.description if user is not None else None) or error.message
        return dg.Failure(description, metadata=dict(user.metadata) if user is not None else {})

    def retries(self) -> list[float | None]:
        """The pauses before the step's retries."""
        return [
            event.step_retry_data.seconds_to_wait
            for event in self.result.all_events
            if event.event_type_value == "STEP_UP_FOR_RETRY"
        ]


@contextmanager
def bench(service: WeblakeService, folder: Path) -> Iterator[Bench]:
    """A bench in a folder of its own."""
    home = folder / "dagster"
    shutil.copytree(_template_home(), home)
    with _instance(home) as instance:
        yield Bench(instance, service, folder / "lake")


@functools.cache
def _template_home() -> Path:
    """Return a Dagster home with empty databases. To create them takes four times as long as to copy them."""
    home = Path(tempfile.mkdtemp(prefix="weblake-dagster-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with _instance(home) as instance:
        instance.get_runs_count()
        instance.fetch_materializations(dg.AssetKey("none"), limit=1)
    return home


def _instance(home: Path) -> dg.DagsterInstance:
    """Return an instance on disk, with the events of all runs in one database: one per run doubles a run's time."""
    events = {
        "module": "dagster._core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(home / "events")},
    }
    return dg.DagsterInstance.local_temp(
        str(home), overrides={"telemetry": {"enabled": False}, "event_log_storage": events}
    )
