"""Tests of landed data as the input of an asset: types, roots, and refusals."""

# Without deferred annotations: Dagster reads those of `context` as they stand.
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from asset_inputs import Lake, client, docs_of, failure, instance, lake, reader, run
from gated_site import GatedSite

import weblake
from dagster_weblake.reading.io_manager import WeblakeParquetIOManager

__all__ = ["client", "instance", "lake"]

FORMS: list[tuple[object, Callable[[Any], pa.Table]]] = [
    (None, lambda value: value),
    (Any, lambda value: value),
    (pa.Table, lambda value: value),
    (ds.Dataset, lambda value: value.to_table()),
    (pa.RecordBatchReader, lambda value: value.read_all()),
    (pd.DataFrame, lambda value: pa.Table.from_pandas(value, preserve_index=False)),
    (pl.DataFrame, lambda value: value.to_arrow()),
    (pl.LazyFrame, lambda value: value.collect().to_arrow()),
    (weblake.Reading, lambda value: value.to_table()),
]


@pytest.mark.parametrize(("annotation", "table"), FORMS, ids=lambda each: getattr(each, "__qualname__", str(each)))
def test_an_input_has_the_type_of_its_annotation(
    instance: dg.DagsterInstance, lake: Lake, annotation: object, table: Callable[[Any], pa.Table]
) -> None:
    seen: list[Any] = []
    told: list[dict[str, object]] = []
    columns = ["url", "markdown", "status_code", "load_date"]
    below = reader(annotation, seen, metadata={"columns": columns})
    lake.land("other")
    assert run(instance, lake.root, docs_of(lake, told), below).success
    found = table(seen[0])
    assert found.column_names == columns
    assert found.to_pylist() == lake.rows(told[0], columns=columns).to_pylist()
    assert found.num_rows == 2
    expected: object = pa.Table if annotation in (None, Any) else annotation
    assert isinstance(seen[0], expected)  # type: ignore[arg-type]


def test_the_table_that_was_read_equals_the_one_that_landed(instance: dg.DagsterInstance, lake: Lake) -> None:
    seen: list[pa.Table] = []
    told: list[dict[str, object]] = []
    result = run(instance, lake.root, docs_of(lake, told), reader(pa.Table, seen))
    assert seen[0].equals(lake.rows(told[0]))
    assert seen[0].schema.names[-1] == "load_date"
    logged = [event.message for event in instance.all_logs(result.run_id)]
    assert any("Loaded the table documents" in text and "2 rows as Table" in text for text in logged)


def test_page_errors_are_read_as_a_table(instance: dg.DagsterInstance, lake: Lake) -> None:
    told: list[dict[str, object]] = []

    @dg.asset(name="docs", metadata={"weblake/table": "documents"})
    def docs() -> dg.MaterializeResult[Any]:
        told.append(lake.land(urls=["http://127.0.0.1:9/refused"]))
        return dg.MaterializeResult(metadata=told[-1])

    seen: list[pa.Table] = []
    result = run(instance, lake.root, docs, reader(pa.Table, seen, metadata={"table": "page_errors"}))
    assert seen[0].equals(lake.rows(told[0], "page_errors"))
    assert seen[0]["url"].to_pylist() == ["http://127.0.0.1:9/refused"]
    assert result.asset_observations_for_node("below") == []


@pytest.mark.system
def test_documents_on_object_storage(
    instance: dg.DagsterInstance,
    s3_root: str,
    client: weblake.Client,
    site: GatedSite,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    lake = Lake(s3_root, client, site)
    told: list[dict[str, object]] = []
    docs = docs_of(lake, told)
    run(instance, s3_root, docs)
    expected = lake.rows(told[0])
    secret = uuid.uuid4().hex
    monkeypatch.setenv("CANARY_SECRET", secret)
    options = {"key": secret, "secret": dg.EnvVar("CANARY_SECRET"), "endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    seen: list[Any] = []
    for form in (pa.Table, pl.LazyFrame, ds.Dataset):
        result = run(instance, s3_root, docs.to_source_asset(), reader(form, seen), options=options)
        record = instance.get_run_by_id(result.run_id)
        assert secret not in repr([record, instance.all_logs(result.run_id)])
    assert seen[0].equals(expected)
    assert seen[1].select("url").collect()["url"].to_list() == expected["url"].to_pylist()
    assert seen[2].to_table().equals(expected)
    assert secret not in repr(WeblakeParquetIOManager(root=s3_root, storage_options=options))


def test_the_root_in_the_metadata_of_an_asset_is_used(instance: dg.DagsterInstance, lake: Lake, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    told: list[dict[str, object]] = []
    docs = docs_of(lake, told)
    text, _ = failure(instance, elsewhere, docs, reader(pa.Table, []))
    assert f"Load {told[0]['weblake/load_id']} of Asset docs has not landed in {elsewhere}" in text
    assert "weblake/root" in text
    seen: list[pa.Table] = []
    of_asset = docs.map_asset_specs(lambda spec: spec.merge_attributes(metadata={"weblake/to": lake.root}))
    run(instance, elsewhere, of_asset, reader(pa.Table, seen))
    assert [each.equals(lake.rows(facts)) for each, facts in zip(seen, told[1:], strict=True)] == [True]


def test_an_asset_that_was_never_materialized_is_named(instance: dg.DagsterInstance, lake: Lake) -> None:
    lake.land("other")
    docs = docs_of(lake, [])
    text, data = failure(instance, lake.root, docs, reader(pa.Table, []), selection=["below"])
    assert "Asset docs was never materialized" in text
    assert "Materialize it first" in data.metadata["weblake/what_to_do"].value


@pytest.mark.parametrize(
    ("annotation", "metadata", "message"),
    [
        (dict, {}, r"annotated with <class 'dict'>.*polars\.LazyFrame, weblake\.Reading"),
        (pl.Series, {}, "cannot be loaded as"),
        (pa.Table, {"table": "pages"}, "There is no table 'pages'. Tables: documents"),
        (pa.Table, {"columns": ["nonsense"]}, "no column 'nonsense'"),
        (pa.Table, {"columns": 3}, "`columns` is not a list"),
        (pa.Table, {"loads": "newest"}, "loads: 'newest'.*latest, all or table"),
    ],
)
def test_an_invalid_input_fails_without_a_retry(
    instance: dg.DagsterInstance, lake: Lake, annotation: object, metadata: dict[str, object], message: str
) -> None:
    below = reader(annotation, [], metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=2))
    result = run(instance, lake.root, docs_of(lake, []), below, raise_on_error=False)
    (event,) = result.get_step_failure_events()
    assert re.search(message, event.step_failure_data.user_failure_data.description, re.DOTALL)
    assert not [each for each in result.all_events if each.event_type_value == "STEP_UP_FOR_RETRY"]


def test_an_output_is_refused_without_a_retry(instance: dg.DagsterInstance, lake: Lake) -> None:
    made: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def frame() -> pd.DataFrame:
        made.append(1)
        return pd.DataFrame({"a": [1]})

    @dg.asset
    def nothing() -> None: ...

    @dg.asset
    def unsaid():  # type: ignore[no-untyped-def]
        return None

    assert run(instance, lake.root, nothing, unsaid).success
    text, _ = failure(instance, lake.root, frame)
    assert "only reads, and asset frame is a DataFrame" in text
    assert "io_manager_key" in text
    assert made == [1]


def test_an_asset_is_loaded_outside_a_run(instance: dg.DagsterInstance, lake: Lake) -> None:
    told: list[dict[str, object]] = []
    sites = dg.StaticPartitionsDefinition(["a", "b"])
    manager = WeblakeParquetIOManager(root=lake.root)
    defs = dg.Definitions([docs_of(lake, told, partitions_def=sites)], resources={"io_manager": manager})
    for partition in ("a", "b"):
        run(instance, lake.root, *defs.assets or (), partition_key=partition)
    with defs.get_asset_value_loader(instance) as loader:
        loaded = loader.load_asset_value("docs", python_type=pl.DataFrame, partition_key="b")
        wanted = {"columns": ["load_id"]}
        table = loader.load_asset_value("docs", partition_key="a", input_definition_metadata=wanted)
    assert isinstance(loaded, pl.DataFrame)
    assert loaded["load_id"].unique().to_list() == [told[1]["weblake/load_id"]]
    assert isinstance(table, pa.Table)
    assert table.column_names == ["load_id"]


@pytest.mark.system
def test_the_io_manager_loads_no_library_of_tables_before_it_is_needed() -> None:
    code = """
import importlib.util, sys, types
package = types.ModuleType("dagster_weblake")  # its other rooms have tests of their own
package.__path__ = importlib.util.find_spec("dagster_weblake").submodule_search_locations
sys.modules["dagster_weblake"] = package
from dagster_weblake.reading.io_manager import WeblakeParquetIOManager
WeblakeParquetIOManager(root="x")
print(sorted({"pyarrow", "pandas", "polars"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
