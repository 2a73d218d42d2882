"""Tests of landed data as the input of an asset: its type, and its rows by load, partition, month and day."""

import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from asset_inputs import Lake, client, docs_of, failure, instance, lake, reader, run

import weblake
from dagster_weblake import reading
from weblake import orchestration
from weblake.api.models import UsagePeriod

pytestmark = pytest.mark.system

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


def test_an_input_has_the_type_of_its_annotation(instance: dg.DagsterInstance, lake: Lake) -> None:
    seen: list[list[Any]] = [[] for _ in FORMS]
    told: list[dict[str, object]] = []
    columns = ["url", "markdown", "status_code", "load_date"]
    below = [
        reader(annotation, seen[n], name=f"below_{n}", metadata={"columns": columns})
        for n, (annotation, _) in enumerate(FORMS)
    ]
    lake.land("other")
    assert run(instance, lake.root, docs_of(lake, told), *below).success
    for (annotation, table), (value,) in zip(FORMS, seen, strict=True):
        found = table(value)
        assert found.column_names == columns
        assert found.to_pylist() == lake.rows(told[0], columns=columns).to_pylist()
        assert found.num_rows == 2
        expected: object = pa.Table if annotation in (None, Any) else annotation
        assert isinstance(value, expected), annotation  # type: ignore[arg-type]


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


def test_the_newest_load_is_read_or_all_loads_on_request(instance: dg.DagsterInstance, lake: Lake) -> None:
    told: list[dict[str, object]] = []
    docs = docs_of(lake, told)
    for _ in range(3):
        run(instance, lake.root, docs)
    lake.land("other")
    newest: list[pa.Table] = []
    every: list[pa.Table] = []
    whole: list[pa.Table] = []
    for seen, loads in ((newest, "latest"), (every, "all"), (whole, "table")):
        run(instance, lake.root, docs.to_source_asset(), reader(pa.Table, seen, metadata={"loads": loads}))
    assert newest[0].equals(lake.rows(told[2]))
    assert sorted(set(every[0]["load_id"].to_pylist())) == sorted(str(each["weblake/load_id"]) for each in told)
    assert every[0].num_rows == 6
    assert whole[0].num_rows == 7


def test_the_newest_version_of_each_page_is_read_on_request(instance: dg.DagsterInstance, lake: Lake) -> None:
    told: list[dict[str, object]] = []
    docs = docs_of(lake, told)
    for _ in range(2):
        run(instance, lake.root, docs)
        lake._pages = 1  # the second load has a page of the first
    lake.land("other")
    for kind, table in ((pa.Table, lambda value: value), (pl.LazyFrame, lambda value: value.collect().to_arrow())):
        for metadata, pages in (({"version": "latest"}, 3), ({"version": "latest", "loads": "latest"}, 2)):
            seen: list[Any] = []
            run(instance, lake.root, docs.to_source_asset(), reader(kind, seen, metadata=metadata))
            newest = {row["page_key"]: row["load_id"] for row in table(seen[0]).to_pylist()}
            assert (len(newest), table(seen[0]).num_rows) == (pages, pages)
            assert list(newest.values()).count(told[1]["weblake/load_id"]) == 2
    text, _ = failure(instance, lake.root, docs.to_source_asset(), reader(pa.Table, [], metadata={"version": "old"}))
    assert "version: 'old'" in text


def test_a_replaced_load_is_read_from_its_replacement(instance: dg.DagsterInstance, lake: Lake) -> None:
    days = dg.StaticPartitionsDefinition(["a", "b"])
    told: list[dict[str, object]] = []
    docs = docs_of(lake, told, partitions_def=days)
    for partition in ("a", "b"):
        run(instance, lake.root, docs, partition_key=partition)
    # Two runs more that landed, and whose events were lost with them.
    lake.land("docs", "a", count=3)
    newest = lake.land("docs", "a", count=4)
    retired = {each.receipt.load_id: each.replaced_by for each in orchestration.history(lake.dataset)}
    assert retired[str(told[0]["weblake/load_id"])] not in (None, newest["weblake/load_id"])
    seen: list[pa.Table] = []
    run(instance, lake.root, docs, reader(pa.Table, seen, partitions_def=days), partition_key="a", selection=["below"])
    assert seen[0].equals(lake.rows(newest))
    assert seen[0].num_rows == 4


@pytest.mark.parametrize("table", [pa.Table, pl.LazyFrame])
def test_a_load_that_is_replaced_while_it_is_read_is_read_from_its_replacement(
    instance: dg.DagsterInstance, lake: Lake, monkeypatch: pytest.MonkeyPatch, table: type
) -> None:
    sites = dg.StaticPartitionsDefinition(["a", "b"])
    docs = docs_of(lake, [], partitions_def=sites)
    for partition in ("a", "b"):
        run(instance, lake.root, docs, partition_key=partition)
    select = reading.rows_of
    selections: list[object] = []

    def rows_of(*given: Any) -> Any:
        selections.append(rows := select(*given))
        if len(selections) == 1:
            lake.land("docs", "a", count=5)  # another run
        return rows

    monkeypatch.setattr(reading, "rows_of", rows_of)
    seen: list[Any] = []
    below = reader(table, seen, partitions_def=sites)
    run(instance, lake.root, docs, below, partition_key="a", selection=["below"])
    assert len(seen[0].collect() if table is pl.LazyFrame else seen[0]) == 5
    assert len(selections) == 2


def test_partitions_come_as_one_table(instance: dg.DagsterInstance, lake: Lake) -> None:
    sites = dg.StaticPartitionsDefinition(["a", "b", "c"])
    told: list[dict[str, object]] = []
    docs = docs_of(lake, told, partitions_def=sites)
    for partition in ("a", "b", "a", "c"):
        run(instance, lake.root, docs, partition_key=partition)
    seen: list[pa.Table] = []
    one = reader(pa.Table, seen, partitions_def=sites)
    run(instance, lake.root, docs, one, partition_key="a", selection=["below"])
    assert seen[0].equals(lake.rows(told[2]))
    everything = reader(pl.LazyFrame, seen, partition_mapping=dg.AllPartitionMapping())
    run(instance, lake.root, docs, everything, selection=["below"])
    loads = seen[1].select("load_id").unique().collect()["load_id"].to_list()
    assert sorted(loads) == sorted(str(each["weblake/load_id"]) for each in told[1:])
    assert seen[1].select(pl.len()).collect().item() == 6
    some = reader(
        pa.Table, seen, partition_mapping=dg.SpecificPartitionsPartitionMapping(["b", "c"]), metadata={"loads": "all"}
    )
    run(instance, lake.root, docs, some, selection=["below"])
    assert seen[2].num_rows == 4


def usage_asset(name: str, metadata: dict[str, object], **how: Any) -> dg.AssetsDefinition:
    @dg.asset(name=name, metadata=metadata, **how)
    def usage() -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(metadata={"dagster/row_count": 1})

    return usage


def land_usage(lake: Lake, *months: int) -> None:
    for name in ("credits", "tokens"):
        periods = tuple(
            UsagePeriod(
                start_date=f"2026-{month:02}-01T00:00:00Z",
                end_date=f"2026-{month + 1:02}-01T00:00:00Z",
                total_credits=float(month),
            )
            for month in months
        )
        orchestration.land_report(orchestration.Report(name, periods, datetime.now(timezone.utc)), lake.dataset)


def test_months_of_usage_are_read_by_their_partitions(instance: dg.DagsterInstance, lake: Lake) -> None:
    land_usage(lake, 8, 9, 10)
    months = dg.MonthlyPartitionsDefinition("2026-08-01", end_offset=1)
    metadata: dict[str, object] = {"weblake/table": "usage_periods", "weblake/report": "credits"}
    usage = usage_asset("docs", metadata, partitions_def=months)
    for partition in ("2026-08-01", "2026-09-01"):
        run(instance, lake.root, usage, partition_key=partition)
    seen: list[pa.Table] = []
    below = reader(pa.Table, seen, partitions_def=months)
    run(instance, lake.root, usage, below, partition_key="2026-09-01", selection=["below"])
    assert seen[0].select(["report", "period", "total_credits"]).to_pylist() == [
        {"report": "credits", "period": "2026-09", "total_credits": 9.0}
    ]
    text, _ = failure(instance, lake.root, usage, below, partition_key="2026-10-01", selection=["below"])
    assert "never materialized for 2026-10-01" in text
    unpartitioned = usage_asset("docs", metadata)
    with dg.DagsterInstance.ephemeral() as fresh:
        run(fresh, lake.root, unpartitioned, reader(pa.Table, seen))
    assert seen[1]["period"].to_pylist() == ["2026-08", "2026-09", "2026-10"]
    assert set(seen[1]["report"].to_pylist()) == {"credits"}


def test_data_landed_outside_dagster_is_read_completely(instance: dg.DagsterInstance, lake: Lake) -> None:
    first, second = (weblake.land_batch(lake.site.pages(1, n), to=lake.root, client=lake.client) for n in (0, 1))
    seen: list[pa.Table] = []
    below = reader(pa.Table, seen)
    instance.report_runless_asset_event(dg.AssetMaterialization("docs", metadata={"note": "by hand"}))
    text, _ = failure(instance, lake.root, dg.AssetSpec("docs"), below)
    assert 'landed outside Dagster, give its spec metadata {"weblake/loads": "table"}' in text
    outside = dg.AssetSpec("docs", metadata={"weblake/table": "documents", "weblake/loads": "table"})
    run(instance, lake.root, outside, below)
    assert [set(each["load_id"].to_pylist()) for each in seen] == [{first.load_id, second.load_id}]
