"""Which tables a dataset can have, and what their registration and their removal leave behind."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from catalogue import proves
from command_in_process import run_command
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from table_lab import add, land, options_of, rows, sync
from task_lab import TaskLab, task_lab

from weblake import tables
from weblake.dataset.root import open_dataset
from weblake.errors import InvalidOption, StorageRefused
from weblake.tables import delta


def test_a_table_whose_log_was_deleted_is_removed_and_added_again(lab: TaskLab) -> None:
    """The remedy of the error. If it is only added, the first registration stays and each sync fails."""
    load_id = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    shutil.rmtree(lab.root / "delta")
    with pytest.raises(StorageRefused, match="has no Delta Lake log") as caught:
        sync(lab, "delta")
    assert caught.value.hint == "Remove it with weblake.tables.remove, and add it again with weblake.tables.add."
    tables.remove(lab.root, "delta")
    add(lab, "delta")
    sync(lab, "delta")
    assert rows(lab, "delta") == {load_id: 3}


def test_a_dataset_in_memory_cannot_have_a_table() -> None:
    with pytest.raises(StorageRefused, match="in the memory of one process and gone when that ends"):
        tables.add("memory://no-table", "delta")


@proves(
    "2.10",
    at="src/weblake/tables/registration.py",
    line="if any(each.uuid == lake.uuid and each.table != table for each in tables):",
    becomes="if table not in layout.LOAD_TABLES:",
)
def test_one_iceberg_table_cannot_have_the_loads_of_two(lab: TaskLab) -> None:
    """Its log would name a load of both as added once one of them has added it."""
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    with pytest.raises(InvalidOption, match=r"web\.documents has the rows of another table"):
        add(lab, "iceberg", table="page_errors")
    sync(lab, "iceberg")
    assert rows(lab, "iceberg") == {load_id: 3}


@proves(
    "2.10",
    at="src/weblake/tables/registration.py",
    line="if not known and lake.dataset not in (None, dataset.url):",
    becomes="if not known and lake.dataset not in (None, lake.dataset):",
)
def test_one_iceberg_table_cannot_have_the_loads_of_two_datasets(lab: TaskLab, tmp_path: Path) -> None:
    """The same task of the same run has the same load id in both: one would be taken for the other."""
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    sync(lab, "iceberg")
    first = lab.dataset
    lab.dataset = open_dataset(tmp_path / "other")
    assert land(lab, "run-1", "a") == load_id
    with pytest.raises(InvalidOption, match=rf"web\.documents is a table of the dataset {re.escape(first.url)}"):
        add(lab, "iceberg")
    assert tables.list_tables(lab.root) == []


def test_a_dataset_under_another_path_keeps_its_iceberg_table(lab: TaskLab, tmp_path: Path) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    link = tmp_path / "link"
    link.symlink_to(lab.root)
    options = options_of(lab, "iceberg")
    named = {"catalog": "lake", "identifier": "web.documents"}
    assert tables.add(link, "iceberg", table_options=options, **named) == tables.list_tables(lab.root)[0]
    sync(lab, "iceberg")
    tables.remove(lab.root, "iceberg", "web.documents")
    tables.add(link, "iceberg", table_options=options, **named)
    (done,) = tables.sync(link, table_options=options)
    assert done.added == ()
    assert rows(lab, "iceberg") == {load_id: 3}


def test_a_removal_names_the_catalog_if_two_have_a_table_of_the_identifier(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    options = dict(options_of(lab, "iceberg") or {})
    for catalog in ("lake", "other"):
        options["warehouse"] = f"file://{lab.root.parent}/{catalog}"
        tables.add(lab.root, "iceberg", catalog=catalog, identifier="web.documents", table_options=options)
    for name in (None, "web.documents"):
        with pytest.raises(InvalidOption, match=r"2 iceberg tables .*: web\.documents in catalog lake, .* other\."):
            tables.remove(lab.root, "iceberg", name)
    with pytest.raises(InvalidOption, match="has no such table"):
        tables.remove(lab.root, "iceberg", "web.documents", catalog="third")
    remove = ["table", "remove", str(lab.root), "iceberg", "--name", "web.documents", "--catalog", "other"]
    assert run_command(remove, {})[0] == 0
    assert [each.catalog for each in tables.list_tables(lab.root)] == ["lake"]
    tables.remove(lab.root, "iceberg")  # the only one of its format
    assert tables.list_tables(lab.root) == []


def test_an_iceberg_table_that_is_registered_by_two_processes_at_once(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lab, "run-1", "a")
    options = options_of(lab, "iceberg")
    tables.add(lab.root, "iceberg", catalog="lake", identifier="web.other", table_options=options)
    ready = Barrier(2, timeout=20)
    real = SqlCatalog.table_exists
    asked: list[Any] = []

    def at_the_same_time(self: SqlCatalog, identifier: Any) -> bool:
        found = real(self, identifier)
        if len(asked) < 2:
            asked.append(found)
            ready.wait()
        return found

    monkeypatch.setattr(SqlCatalog, "table_exists", at_the_same_time)

    def register(_: int) -> tables.RegisteredTable:
        return tables.add(
            lab.root, "iceberg", catalog="lake", identifier="web.documents", table_options=options_of(lab, "iceberg")
        )

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(register, range(2))
    assert asked == [False, False]
    assert first == second


def test_a_delta_table_that_another_process_creates_at_the_same_time(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake finds no table, and its creation fails because there is one by then."""
    land(lab, "run-1", "a")
    real = DeltaTable.create

    def second(*args: Any, **more: Any) -> None:
        real(*args, **more)
        real(*args, **{**more, "mode": "error"})

    monkeypatch.setattr(DeltaTable, "create", second)
    add(lab, "delta")
    assert sync(lab, "delta").rows == 3


@pytest.mark.parametrize("name", ["a%20b", "a#b ü", "a?b"])
def test_a_root_with_characters_of_urls(tmp_path: Path, name: str) -> None:
    """deltalake takes %20 for a space."""
    (tmp_path / name).mkdir()
    with task_lab(tmp_path / name) as lab:
        load_id = land(lab, "run-1", "a")
        if "%" not in name:
            add(lab, "delta")
        else:
            with pytest.raises(StorageRefused, match="has %: deltalake would look elsewhere"):
                add(lab, "delta")
            tables.add(lab.root, "delta", location=str(tmp_path / "elsewhere"))
        sync(lab, "delta")
        assert rows(lab, "delta") == {load_id: 3}


@pytest.mark.parametrize("place", ["", "documents", "documents/pages", "_weblake/tables/delta", "/"])
def test_a_table_in_the_folders_of_the_dataset_is_refused(lab: TaskLab, place: str) -> None:
    """VACUUM deletes each file below a table's location that no version names."""
    land(lab, "run-1", "a")
    with pytest.raises(InvalidOption, match="has files of the dataset below it"):
        tables.add(lab.root, "delta", location=str(lab.root / place))
    assert not list(lab.root.rglob("_delta_log"))
    tables.add(lab.root, "delta", location=str(lab.root / "other"))


def test_a_table_that_was_created_again_is_refused(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    shutil.rmtree(lab.root / "delta")
    delta.open_table(str(lab.root / "delta" / "documents"), "documents", ("day",), "another", create=True)
    for call in (tables.sync, tables.status, partial(tables.add, format="delta")):
        with pytest.raises(StorageRefused, match="is another one than the registered one"):
            call(lab.root)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"format": "hudi"}, "There is no table format 'hudi'"),
        ({"format": "delta", "table": "activity"}, "can have the rows of 'activity'"),
        ({"format": "delta", "identifier": "web.documents"}, "has a catalog and an identifier"),
        ({"format": "iceberg", "catalog": "lake"}, "has a catalog and an identifier"),
        ({"format": "iceberg", "catalog": "lake", "identifier": "documents"}, "not the name of an Iceberg table"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(lab: TaskLab, given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told) as caught:
        tables.add(lab.root, **given)
    assert caught.value.hint
