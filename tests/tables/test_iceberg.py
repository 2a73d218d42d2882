"""Iceberg tables: each load is committed exactly once, and a replacement is one change of the metadata."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest import mock

import polars
import pyiceberg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from task_lab import RETRY, TaskLab, task_lab

import weblake
from weblake import tables
from weblake.arrow import schemas
from weblake.errors import FeatureMissing
from weblake.tables import iceberg
from weblake.tables.formats import Change
from weblake.tables.registration import open_lake_table

pytestmark = pytest.mark.system

IDENTIFIER = "web.documents"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a catalog in SQLite, set in the environment as a user does it."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    return "lake"


@pytest.fixture
def options(tmp_path: Path) -> Mapping[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        lab.keys = {"day": "a b/ü%"}
        yield lab


def loads_in(options: Mapping[str, str]) -> list[str]:
    """The load ids of the table's rows, one for each row."""
    table = load_catalog("lake", **options).load_table(IDENTIFIER)
    return sorted(table.scan(selected_fields=("load_id",)).to_arrow().column(0).to_pylist())


@pytest.mark.smoke
def test_a_replacement_is_one_change(lab: TaskLab, options: Mapping[str, str]) -> None:
    first = lab.land(RETRY).receipt
    table = tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    assert table.name == IDENTIFIER
    (done,) = tables.sync(lab.root, table_options=options)
    assert (done.added, done.removed, done.rows) == ((first.load_id,), (), 3)
    lab.run = "run-2"
    second = lab.land(RETRY).receipt
    (done,) = tables.sync(lab.root, table_options=options)
    assert (done.added, done.removed) == ((second.load_id,), (first.load_id,))
    assert (done.rows, done.table_rows) == (3, 3)
    assert loads_in(options) == [second.load_id] * 3
    (again,) = tables.sync(lab.root, table_options=options, everything=True)
    assert (again.added, again.removed, again.version) == ((), (), done.version)
    assert tables.status(lab.root, table_options=options)[0].in_step


def test_polars_reads_the_rows_of_the_dataset(lab: TaskLab, options: Mapping[str, str]) -> None:
    """Not marked smoke: Polars 2.0.0, which Airflow 3.1's constraints have, does not read files without field ids."""
    lab.land(RETRY)
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    tables.sync(lab.root, table_options=options)
    rows = polars.scan_iceberg(load_catalog("lake", **options).load_table(IDENTIFIER)).collect()
    read = weblake.read(lab.root).to_polars()
    assert rows.sort("position").select(read.columns).drop("metadata").equals(read.sort("position").drop("metadata"))


@pytest.mark.parametrize("deleted", [False, True], ids=["rows stay", "rows deleted"])
def test_a_load_whose_snapshot_has_expired_is_not_added_again(
    lab: TaskLab, options: Mapping[str, str], deleted: bool
) -> None:
    """By our records, also if another program has deleted its rows; by its rows, if a killed sync left no record."""
    first = lab.land(RETRY).receipt
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    tables.sync(lab.root, table_options=options)
    lab.run, lab.keys = "run-2", {"day": "other"}
    lab.land(RETRY)
    tables.sync(lab.root, table_options=options)
    table = load_catalog("lake", **options).load_table(IDENTIFIER)
    if deleted:
        table.delete(f"load_id = '{first.load_id}'")
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    if not deleted:
        shutil.rmtree(lab.root / "_weblake" / "committed")
    (done,) = tables.sync(lab.root, table_options=options)
    assert done.added == ()
    assert loads_in(options).count(first.load_id) == (0 if deleted else 3)
    assert tables.status(lab.root, table_options=options)[0].in_step


def test_retries_of_a_table_stay_off(lab: TaskLab, options: Mapping[str, str]) -> None:
    """pyiceberg's own retries double a load: see the control."""
    lab.land(RETRY)
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    table = load_catalog("lake", **options).load_table(IDENTIFIER)
    with table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    tables.sync(lab.root, table_options=options)
    assert table.refresh().properties["commit.retry.num-retries"] == "0"
    lab.run = "run-2"
    lab.land(RETRY)
    real = SqlCatalog.commit_table
    with mock.patch.object(SqlCatalog, "commit_table", autospec=True, side_effect=real) as commits:
        tables.sync(lab.root, table_options=options)
    assert commits.call_count == 1


@pytest.mark.skipif(pyiceberg.__version__ < "0.12", reason="pyiceberg 0.11 does not repeat a commit")
def test_control_default_retries_double(lab: TaskLab, options: Mapping[str, str], tmp_path: Path) -> None:
    """Why weblake has retries of its own: with pyiceberg's, three workers that look first add the same load thrice.

    Each worker reads the table, finds that no snapshot names the load, waits until the others are as far, and commits.
    """
    load_id = lab.land(RETRY).receipt.load_id
    rows = weblake.read(lab.root).to_table().select(["load_id"])
    catalog = load_catalog("lake", **options)
    catalog.create_namespace("web")
    catalog.create_table("web.control", schema=rows.schema)
    ready = Barrier(3, timeout=20)

    def work(_: int) -> None:
        table = load_catalog("lake", **options).load_table("web.control")
        named = {snapshot.summary.additional_properties.get("load_id") for snapshot in table.snapshots()}
        assert load_id not in named
        ready.wait()
        table.append(rows, snapshot_properties={"load_id": load_id})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    found = catalog.load_table("web.control").scan(selected_fields=("load_id",)).to_arrow()
    assert found.column("load_id").to_pylist() == [load_id] * 9  # of 3


def test_readers_skip_files_by_the_statistics_of_the_manifests(lab: TaskLab, options: Mapping[str, str]) -> None:
    lab.urls = ["http://pages.test/a"]
    first = lab.land(RETRY).receipt
    lab.run, lab.keys, lab.urls = "run-2", {"day": "other"}, ["http://pages.test/z"]
    lab.land(RETRY)
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    tables.sync(lab.root, table_options=options)
    table = load_catalog("lake", **options).load_table(IDENTIFIER)
    of_first = table.scan(row_filter=f"load_id == '{first.load_id}'", selected_fields=("loaded_at",)).to_arrow()
    (loaded_at,) = of_first.column(0).to_pylist()

    def files(condition: str) -> int:
        return len(list(table.scan(row_filter=condition).plan_files()))

    assert files("status_code == 200") == 2
    assert files(f"load_id == '{first.load_id}'") == 1
    assert files("url == 'http://pages.test/z'") == 1
    assert files("status_code == 404") == 0
    assert files(f"loaded_at <= '{loaded_at.isoformat()}'") == 1


def test_a_sync_that_takes_out_many_loads_reads_no_file_of_another_load(
    lab: TaskLab, options: Mapping[str, str]
) -> None:
    """pyiceberg reads the files of all loads for a set of more than 200 values."""
    lab.land(RETRY)
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    tables.sync(lab.root, table_options=options)
    (registered,) = tables.list_tables(lab.root)
    table = open_lake_table(lab.dataset, registered, options)
    gone = [f"{number:016x}" for number in range(401)]
    shutil.rmtree(lab.root.parent / "warehouse" / "web" / "documents" / "data")
    schema = schemas.with_keys("documents", ["day"])
    table.commit(Change(lab.dataset.storage, schema, [], gone, gone))
    table.refresh()
    assert table.committed(gone) == dict.fromkeys(gone, "removed")


def test_a_commit_of_several_parts(lab: TaskLab, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a commit do not have to fit into memory."""
    monkeypatch.setattr(iceberg, "_PART_BYTES", 1)
    for number in range(3):
        lab.run, lab.keys = f"run-{number}", {"day": str(number)}
        lab.land(RETRY)
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    with mock.patch.object(SqlCatalog, "commit_table", autospec=True, side_effect=SqlCatalog.commit_table) as commits:
        (done,) = tables.sync(lab.root, table_options=options)
    assert (len(done.added), done.rows, done.table_rows, commits.call_count) == (3, 9, 9, 1)


@pytest.mark.smoke
def test_a_rewrite_of_the_files_neither_doubles_nor_loses(lab: TaskLab, options: Mapping[str, str]) -> None:
    """As `rewrite_data_files` of Spark does it: other files in place of all; then one of the loads is replaced."""
    lab.land(RETRY)
    lab.run, lab.keys = "run-2", {"day": "other"}
    second = lab.land(RETRY).receipt
    tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
    tables.sync(lab.root, table_options=options)
    table = load_catalog("lake", **options).load_table(IDENTIFIER)
    table.overwrite(table.scan().to_arrow())
    for snapshot in table.metadata.snapshots[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    (done,) = tables.sync(lab.root, table_options=options, everything=True)
    assert (done.added, done.removed) == ((), ())
    lab.keys, lab.run = {"day": "a b/ü%"}, "run-3"
    third = lab.land(RETRY).receipt
    (done,) = tables.sync(lab.root, table_options=options)
    assert done.added == (third.load_id,)
    assert loads_in(options) == sorted([second.load_id] * 3 + [third.load_id] * 3)
    assert tables.status(lab.root, table_options=options)[0].in_step


def test_the_endpoint_of_the_environment_counts_unless_the_catalog_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """test_synchronization.py uses it on a server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert iceberg._with_endpoint("lake", {"type": "sql"}) == {"type": "sql", "s3.endpoint": "http://127.0.0.1:1"}
    given = {"s3.endpoint": "http://127.0.0.1:2"}
    assert iceberg._with_endpoint("lake", given) == given
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT", "http://127.0.0.1:3")
    assert iceberg._with_endpoint("lake", {}) == {}


def test_a_package_that_a_catalog_lacks_is_named(
    lab: TaskLab, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.land(RETRY)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(FeatureMissing, match=r"'lake' needs a package that is not installed.*pyiceberg\[sql-"):
        tables.add(lab.root, "iceberg", catalog="lake", identifier=IDENTIFIER, table_options=options)
