"""Which tables a dataset can have, and what their registration and their removal leave behind."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from catalogue import proves
from command_in_process import run_command
from crash_steps import crash
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from table_lab import FORMATS, add, land, options_of, rows, sync
from task_lab import RETRY, TaskLab

from weblake import tables
from weblake.dataset.registered_tables import TableRecords
from weblake.dataset.root import open_dataset
from weblake.errors import InvalidOption, StorageRefused
from weblake.loads import retirement
from weblake.tables import registration


def test_a_table_whose_log_was_deleted_is_removed_and_added_again(lab: TaskLab) -> None:
    """The remedy of the error. If it is only added, the first registration stays and each sync fails."""
    load_id = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    shutil.rmtree(lab.root / "documents" / "_delta_log")
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
    line="other = next((each for each in tables if each.uuid == lake.uuid and each.table != table), None)",
    becomes="other: RegisteredTable | None = None",
)
def test_one_iceberg_table_cannot_have_the_loads_of_two(lab: TaskLab) -> None:
    """Its log would name a load of both as added once one of them has added it."""
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    with pytest.raises(InvalidOption, match=r"web\.documents is the table of documents"):
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
    with pytest.raises(InvalidOption, match=rf"web\.documents is the table of the dataset {re.escape(first.url)}"):
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
    """Otherwise the older one would go, with the files of replaced loads that only it needs."""
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


@pytest.mark.parametrize(("format", "name"), [("delta", "a%20b"), ("iceberg", "a#b"), ("iceberg", "a?b")])
def test_a_root_whose_path_the_library_would_change_is_refused(
    lab: TaskLab, format: str, name: str, tmp_path: Path
) -> None:
    lab.dataset = open_dataset(tmp_path / name)
    land(lab, "run-1", "a")
    with pytest.raises(StorageRefused, match=f"has .: the library of {format} would look elsewhere"):
        add(lab, format)
    other = "iceberg" if format == "delta" else "delta"
    add(lab, other)
    assert sync(lab, other).rows == 3
    assert tables.status(lab.root, table_options=options_of(lab, other))[0].in_step


@proves(
    "2.10",
    at="src/weblake/loads/retirement.py",
    line="current = registered_tables.table_ids(storage)",
    becomes="current = list(tables) or registered_tables.table_ids(storage)",
)
def test_a_table_that_is_removed_while_a_load_is_replaced(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing has listed the tables before, and the removal has deleted kept files before."""
    land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    real = retirement._keep

    def meanwhile(*args: Any) -> None:
        monkeypatch.setattr(retirement, "_keep", real)
        tables.remove(lab.root, "delta")
        real(*args)

    monkeypatch.setattr(retirement, "_keep", meanwhile)
    new = land(lab, "run-2", "a")
    assert lab.visible == [new]
    assert lab.dataset.storage.list("_weblake/kept") == []
    lab.land(RETRY)
    add(lab, "delta")
    sync(lab, "delta")
    assert rows(lab, "delta") == {new: 3}


def test_a_removal_that_was_killed_is_finished_by_the_next_one(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed before it had deleted the file of a replaced load, which no later sync or landing would delete."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    new = land(lab, "run-2", "a")
    sync(lab, "delta")
    with monkeypatch.context() as patch:
        patch.setattr(registration, "delete_kept_files", crash)
        with pytest.raises(KeyboardInterrupt):
            tables.remove(lab.root, "delta")
    assert lab.visible == sorted([old, new])
    with pytest.raises(InvalidOption, match="has no Delta Lake or Iceberg table"):
        tables.remove(lab.root, "delta")
    assert lab.visible == [new]
    assert lab.dataset.storage.list("_weblake/kept") == []


@proves(
    "2.10",
    at="src/weblake/dataset/registered_tables.py",
    line='return self._committed(table, f"all.{load_id_of(table.table_id, table.at)}")',
    becomes='return self._committed(table, "all")',
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_table_that_is_removed_and_added_again_during_its_first_sync(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that was replaced in between has no entry, and its file is gone: the next sync looks at all loads."""
    land(lab, "run-1", "a")
    add(lab, format)
    real, newest = TableRecords.record_complete, []

    def meanwhile(self: TableRecords, table: tables.RegisteredTable) -> None:
        monkeypatch.setattr(TableRecords, "record_complete", real)
        tables.remove(lab.root, format, table.name)
        newest.append(land(lab, "run-2", "a"))
        add(lab, format)
        real(self, table)

    monkeypatch.setattr(TableRecords, "record_complete", meanwhile)
    sync(lab, format)
    sync(lab, format)
    assert lab.visible == newest
    assert rows(lab, format) == {newest[0]: 3}
