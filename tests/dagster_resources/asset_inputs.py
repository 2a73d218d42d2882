"""Assets that land real loads and assets that read them, for the tests of the IO manager."""

# Without deferred annotations: Dagster reads those of `context` as they stand.
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from gated_site import GatedSite

import weblake
from dagster_weblake.reading import WeblakeParquetIOManager
from weblake import orchestration
from weblake.testing import WeblakeService

Facts = Mapping[str, Any]


class Lake:
    """A root in which assets land for real, as those of the package do: in a slot for each asset partition."""

    def __init__(self, root: str, client: weblake.Client, site: GatedSite) -> None:
        self.root, self.client, self.site = root, client, site
        self.dataset = orchestration.open_dataset(root)
        self._pages = 0

    def land(self, asset: str = "docs", partition: str | None = None, count: int = 1, **more: Any) -> dict[str, object]:
        """Lands pages that nobody has landed before, and returns what a materialization says of them."""
        urls = self.site.pages(count, self._pages) + more.get("urls", [])
        self._pages += count
        load_request = orchestration.batch_request(urls, orchestration.Naming())
        task = orchestration.Task(("dagster", asset), uuid.uuid4().hex, uuid.uuid4().hex, partition)
        terms = orchestration.Terms()
        placed = orchestration.place(self.client, self.dataset, load_request, task, terms)
        found = orchestration.land(self.client, self.dataset, placed, terms)
        return {"weblake/load_id": found.receipt.load_id, "weblake/root": self.dataset.storage.url}

    def rows(self, facts: Facts, table: str = "documents", columns: list[str] | None = None) -> pa.Table:
        return weblake.read(self.root, table, loads=[facts["weblake/load_id"]], columns=columns).to_table()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def client(weblake_service: WeblakeService) -> Iterator[weblake.Client]:
    with weblake_service.client() as made:
        yield made


@pytest.fixture
def lake(local_root: str, client: weblake.Client, site: GatedSite) -> Lake:
    return Lake(local_root, client, site)


def docs_of(lake: Lake, told: list[dict[str, object]], **how: Any) -> dg.AssetsDefinition:
    """An asset that lands a page for each partition that it is run for, and says so as the package's assets do."""
    metadata = {"weblake/table": "documents"}

    @dg.asset(name="docs", metadata=metadata, **how)
    def docs(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        told.append(lake.land("docs", context.partition_key if context.has_partition_key else None, count=2))
        return dg.MaterializeResult(metadata=told[-1])

    return docs


def reader(
    annotation: object, seen: list[Any], source: str = "docs", name: str = "below", **how: Any
) -> dg.AssetsDefinition:
    """An asset downstream that keeps what its input was."""
    metadata = how.pop("metadata", None)
    mapping = how.pop("partition_mapping", None)

    def below(docs: Any) -> None:
        seen.append(docs)

    if annotation is None:
        del below.__annotations__["docs"]
    else:
        below.__annotations__["docs"] = annotation
    ins = {"docs": dg.AssetIn(key=source, metadata=metadata, partition_mapping=mapping)}
    return dg.asset(name=name, ins=ins, **how)(below)


def run(instance: dg.DagsterInstance, root: str, *assets: Any, options: Any = None, **how: Any) -> Any:
    manager = WeblakeParquetIOManager(root=root, storage_options=options)
    return dg.materialize(list(assets), instance=instance, resources={"io_manager": manager}, **how)


def failure(instance: dg.DagsterInstance, root: str, *assets: Any, **how: Any) -> tuple[str, Any]:
    """Return the error of a run: Dagster's message, and the message of weblake."""
    result = run(instance, root, *assets, raise_on_error=False, **how)
    (event,) = result.get_step_failure_events()
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data.user_failure_data.description, event.step_failure_data.user_failure_data
