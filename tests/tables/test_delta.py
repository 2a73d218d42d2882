"""Delta Lake tables: each load is committed exactly once, and a replacement is one commit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from catalogue import proves
from command_in_process import run_command
from deletion_vectors import delete_first_row
from deltalake import DeltaTable, TableFeatures
from deltalake import Field as DeltaField
from deltalake.schema import PrimitiveType
from table_lab import land_run, loads_by_reference
from task_lab import CLEAR, RETRY, URLS, TaskLab, task_lab

import weblake
from weblake import tables
from weblake.dataset.ledger import Ledger
from weblake.errors import InvalidOption, StorageRefused
from weblake.receipt import Receipt
from weblake.storage.local import LocalStorage
from weblake.tables import delta, delta_protocol, delta_statistics
from weblake.tables.formats import CommitConflict, LoadFile

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        lab.keys = {"day": "2026-11-21"}
        yield lab


def loads_in(lab: TaskLab) -> list[str]:
    """The load ids of the table's rows, one for each row."""
    return sorted(DeltaTable(lab.root / "documents").to_pyarrow_table(columns=["load_id"]).column(0).to_pylist())


def test_what_has_landed_is_added_once(lab: TaskLab) -> None:
    first = lab.land(RETRY).receipt
    table = tables.add(lab.root, "delta")
    assert tables.add(lab.root, "delta") == table
    (done,) = tables.sync(lab.root)
    assert (done.added, done.removed, done.rows) == ((first.load_id,), (), 3)
    (again,) = tables.sync(lab.root)
    assert (again.added, again.removed, again.version) == ((), (), done.version)
    lab.run, lab.keys = "run-2", {"day": "2026-11-22"}
    second = lab.land(RETRY).receipt
    (status,) = tables.status(lab.root)
    assert (status.missing, status.different, status.in_step) == ((second.load_id,), (), False)
    (done,) = tables.sync(lab.root)
    assert (done.added, done.rows, done.table_rows) == ((second.load_id,), 3, 6)
    assert loads_in(lab) == sorted([first.load_id] * 3 + [second.load_id] * 3)
    assert tables.status(lab.root)[0].in_step


def test_a_load_whose_rows_another_program_deleted_is_named_as_taken_out(lab: TaskLab) -> None:
    receipt = lab.land(RETRY).receipt
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    DeltaTable(lab.root / "documents").delete(f"load_id = '{receipt.load_id}'")
    (part,) = receipt.files
    table = delta.open_table(lab.dataset.storage, "documents")
    table.commit([], [LoadFile(receipt.load_id, part.path, part.rows, part.bytes, lab.keys or {})])
    assert table.removed([receipt.load_id]) == {receipt.load_id}


def replace_a_load_with_a_deletion_vector(lab: TaskLab) -> Receipt:
    """Land a load whose file has a deletion vector in a new table, and then its replacement, which is not synced."""
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    delete_first_row(lab.root / "documents")
    lab.run = "run-2"
    return lab.land(RETRY).receipt


@proves(
    "2.10",
    at="src/weblake/tables/delta.py",
    line="marked = self._with_deletion_vector() if there else set()",
    becomes="marked: set[str] = set()",
)
def test_a_replaced_load_with_a_deletion_vector_is_taken_out(lab: TaskLab) -> None:
    """Another program has deleted a row of the load's file without rewriting the file."""
    second = replace_a_load_with_a_deletion_vector(lab)
    assert sum(delta.open_table(lab.dataset.storage, "documents").loads().values()) == 2
    tables.sync(lab.root)
    (status,) = tables.status(lab.root)
    assert (status.in_step, status.rows) == (True, 3)
    rows = polars.scan_delta(lab.root / "documents").select("load_id").collect()
    assert rows["load_id"].to_list() == [second.load_id] * 3


def test_only_a_replacement_is_copied_into_a_table_with_deletion_vectors(lab: TaskLab) -> None:
    """deltalake holds the rows that it copies in memory."""
    second = replace_a_load_with_a_deletion_vector(lab)
    lab.run, lab.keys = "run-3", {"day": "2026-11-22"}
    other = lab.land(RETRY).receipt
    (done,) = tables.sync(lab.root)
    assert set(done.added) == {second.load_id, other.load_id}
    by_reference = loads_by_reference(DeltaTable(lab.root / "documents"))
    assert by_reference.intersection(done.added) == {other.load_id}
    assert tables.status(lab.root)[0].in_step


def test_a_replacement_in_a_merged_file_of_a_table_with_a_column_of_another_program(lab: TaskLab) -> None:
    lab.keys = None
    stays = lab.land(RETRY).receipt
    lab.run = "run-2"
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    table = DeltaTable(lab.root / "documents")
    table.alter.add_columns(DeltaField("note", PrimitiveType("string")))
    assert table.optimize.compact()["numFilesAdded"] == 1
    new = lab.land(CLEAR).receipt
    tables.sync(lab.root)
    found = DeltaTable(lab.root / "documents").to_pyarrow_table(columns=["load_id", "note"]).to_pylist()
    assert sorted(row["load_id"] for row in found) == sorted([stays.load_id, new.load_id] * 3)
    assert {row["note"] for row in found} == {None}


@pytest.mark.parametrize("merged", [0, 1])
def test_loads_of_a_merged_file_and_of_a_file_of_their_own_are_replaced_in_one_commit(
    lab: TaskLab, merged: int
) -> None:
    lab.keys = None
    other = land_run(lab, 2)
    land_run(lab, merged)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
    land_run(lab, 1 - merged)
    (before,) = tables.sync(lab.root)
    new = [land_run(lab, number, CLEAR) for number in range(2)]
    (done,) = tables.sync(lab.root)
    assert done.version == before.version + 1
    assert loads_in(lab) == sorted([other, *new] * 3)


def test_a_checkpoint_follows_a_commit_of_many_loads(lab: TaskLab) -> None:
    """The lookup of each load reads the log since the last checkpoint."""
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    table = delta.open_table(lab.dataset.storage, "documents")
    loads = [LoadFile(f"{number:016x}", None, 0, 0, {}) for number in range(100)]
    table.commit(loads[:99], [])
    assert not list(lab.root.glob("documents/_delta_log/*.checkpoint.parquet"))
    table.commit(loads, [])
    assert list(lab.root.glob("documents/_delta_log/*.checkpoint.parquet"))
    assert table.added(load.load_id for load in loads) == {load.load_id for load in loads}


@pytest.mark.system
def test_each_hundredth_version_is_a_checkpoint(lab: TaskLab) -> None:
    """So the log of a table with thousands of loads is opened as fast as a new one; the loads in it are remembered."""
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    table = delta.open_table(lab.dataset.storage, "documents")
    loads = [f"{number:016x}" for number in range(101)]
    for load_id in loads:
        table.commit([LoadFile(load_id, None, 0, 0, {})], [])
    assert list(lab.root.glob("documents/_delta_log/*.checkpoint.parquet"))
    assert table.added(loads) == set(loads)


def test_a_load_is_looked_up_in_the_log_once_for_each_attempt(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """On S3, deltalake sends a request for each version since the last checkpoint."""
    load_id = lab.land(RETRY).receipt.load_id
    tables.add(lab.root, "delta")
    asked = []
    real = DeltaTable.transaction_version

    def counted(self: DeltaTable, name: str) -> int | None:
        asked.append(name)
        return real(self, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    tables.sync(lab.root)
    assert asked == [f"weblake:{load_id}"]


@pytest.mark.parametrize("first", [8, 64 << 10])
def test_the_statistics_are_read_from_the_end_of_a_file(
    lab: TaskLab, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one request; with two if the metadata are longer than what is read first."""
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    read = []
    real = LocalStorage.read_range

    def counted(self: LocalStorage, name: str, start: int, end: int) -> bytes:
        read.append((start, end))
        return real(self, name, start, end)

    monkeypatch.setattr(LocalStorage, "read_range", counted)
    monkeypatch.setattr(delta_statistics, "_FOOTER", first)
    tables.sync(lab.root)
    assert len(read) == (2 if first == 8 else 1)
    (action,) = pa.table(DeltaTable(lab.root / "documents").get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.url"]) == (3, "http://pages.test/0")


def test_a_damaged_file_is_refused(lab: TaskLab) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    (file,) = lab.root.glob("documents/*=*/*.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageRefused, match="is not the Parquet file that landed"):
        tables.sync(lab.root)


def test_a_table_with_a_feature_that_deltalake_lacks_is_refused(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """By deltalake, if it is older than the list of features that weblake supports."""
    monkeypatch.setattr(delta_protocol, "_SUPPORTED", delta_protocol._SUPPORTED | {"rowTracking", "domainMetadata"})
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    table = DeltaTable(lab.root / "documents")
    table.alter.add_feature(TableFeatures.RowTracking, allow_protocol_versions_increase=True)
    with pytest.raises(StorageRefused, match=r"does not take the files .*Unsupported table features required"):
        tables.sync(lab.root)


def test_a_commit_that_no_other_program_hinders_is_tried_eight_times(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta")

    def fails(*_: object) -> None:
        raise CommitConflict("No space left on device")

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", fails)
    with pytest.raises(StorageRefused, match="in 8 attempts: No space left on device") as caught:
        tables.sync(lab.root)
    assert "No other program has changed it" in str(caught.value)


@pytest.mark.smoke
def test_a_replacement_is_one_commit(lab: TaskLab) -> None:
    first = lab.land(RETRY).receipt
    tables.add(lab.root, "delta", keep_days=0)
    (before,) = tables.sync(lab.root)
    lab.run = "run-2"
    second = lab.land(RETRY).receipt
    assert lab.visible == sorted([first.load_id, second.load_id])  # a plain glob meets the old file, too
    assert weblake.read(lab.root).to_table().column("load_id").unique().to_pylist() == [second.load_id]
    (status,) = tables.status(lab.root)
    assert (status.missing, status.retired, status.unknown) == ((second.load_id,), (first.load_id,), ())
    (done,) = tables.sync(lab.root)
    assert (done.added, done.removed, done.version) == ((second.load_id,), (first.load_id,), before.version + 1)
    assert loads_in(lab) == [second.load_id] * 3
    assert done.deleted_files == 1
    assert lab.visible == [second.load_id]
    assert tables.status(lab.root)[0].in_step
    assert tables.sync(lab.root)[0].deleted_files == 0


def test_a_sync_of_everything_finds_a_load_whose_entry_is_lost(lab: TaskLab) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    lab.run = "run-2"
    landed = lab.land(RETRY).receipt
    for name in lab.dataset.storage.list("_weblake/uncommitted"):
        lab.dataset.storage.delete(name)
    assert [tables.sync(lab.root, everything=each)[0].added for each in (False, True)] == [(), (landed.load_id,)]


@proves(
    "2.10",
    at="src/weblake/loads/retirement.py",
    line="for name in () if current else files:",
    becomes="for name in files:",
)
def test_the_files_of_a_replaced_load_stay_for_older_versions(lab: TaskLab) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    (before,) = tables.sync(lab.root)
    lab.run = "run-2"
    lab.land(RETRY)
    (after,) = tables.sync(lab.root)
    assert after.deleted_files == 0
    lab.land(RETRY)  # finds that it has landed, and that what it replaced is retired
    assert lab.dataset.storage.list("_weblake/uncommitted") == []
    older = DeltaTable(lab.root / "documents", version=before.version).to_pyarrow_table()
    assert older.num_rows == 3
    table = DeltaTable(lab.root / "documents")
    assert table.vacuum(retention_hours=1, dry_run=True, enforce_retention_duration=False) == [], "it was just replaced"
    (added,) = pa.table(table.get_add_actions())["modification_time"].to_pylist()
    assert abs(added / 1000 - time.time()) < 3600
    tables.remove(lab.root, "delta")
    assert len(lab.visible) == 1


@pytest.mark.parametrize("day", ["2026-11-21", "a b/ü%&=+;"])
def test_readers_find_the_files_of_any_path_key(lab: TaskLab, day: str) -> None:
    lab.keys = {"day": day}
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    frame = polars.scan_delta(str(lab.root / "documents")).collect()
    assert frame["day"].to_list() == [day] * 3
    assert frame["markdown"].null_count() == 0
    read = weblake.read(lab.root).to_polars().drop("day")
    assert frame.select(read.columns).equals(read)
    lab.run = "run-2"
    second = lab.land(RETRY).receipt
    tables.sync(lab.root)
    assert loads_in(lab) == [second.load_id] * 3
    (file,) = DeltaTable(lab.root / "documents").file_uris()
    assert Path(file).name == Path(second.files[0].path).name, "the file was replaced and no row was rewritten"


@pytest.mark.smoke
def test_maintenance_neither_doubles_nor_loses(lab: TaskLab) -> None:
    """Merging of files, a checkpoint and vacuum by the table format; then one of the merged loads is replaced."""
    lab.keys = None  # the loads of a slot without a partition value stand beside each other
    first = lab.land(RETRY).receipt
    lab.run = "run-2"
    second = lab.land(RETRY).receipt
    tables.add(lab.root, "delta", keep_days=0)
    tables.sync(lab.root)
    table = DeltaTable(lab.root / "documents")
    assert table.optimize.compact()["numFilesAdded"] == 1
    table.create_checkpoint()
    (done,) = tables.sync(lab.root, everything=True)
    assert (done.added, done.removed) == ((), ())
    assert loads_in(lab) == sorted([first.load_id] * 3 + [second.load_id] * 3)
    third = lab.land(CLEAR).receipt  # a user cleared the task of the second run
    (done,) = tables.sync(lab.root)
    assert (done.added, done.removed) == ((third.load_id,), (second.load_id,))
    assert loads_in(lab) == sorted([first.load_id] * 3 + [third.load_id] * 3)
    assert done.version == DeltaTable(lab.root / "documents").version()
    assert tables.status(lab.root)[0].in_step
    read = weblake.read(lab.root).to_table()  # neither the log's checkpoint nor the merged file is read
    assert sorted(read.column("load_id").to_pylist()) == loads_in(lab)


def test_a_replaced_load_whose_file_is_gone_is_taken_out_of_a_table_with_merged_files(lab: TaskLab) -> None:
    """The removal of the table from the dataset has deleted the file, which the table still names."""
    lab.keys = None
    lab.land(RETRY)
    lab.run = "run-2"
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
    lab.run = "run-3"
    lab.land(RETRY)
    tables.sync(lab.root)
    third = lab.land(CLEAR).receipt
    lab.run = "run-2"
    second = lab.land(CLEAR).receipt
    tables.remove(lab.root, "delta")
    tables.add(lab.root, "delta")
    (done,) = tables.sync(lab.root)
    assert sorted(done.added) == sorted([second.load_id, third.load_id])
    (status,) = tables.status(lab.root)
    assert (status.in_step, status.loads, status.rows) == (True, 3, 9)


@proves(
    "2.10",
    at="src/weblake/tables/delta.py",
    line="max_commit_retries=0 if there else None",
    becomes="max_commit_retries=None",
)
def test_maintenance_during_the_commit_of_a_replacement(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are merged between our look at the table and our commit, which takes one of them out."""
    lab.keys = None
    first = lab.land(RETRY).receipt
    lab.run = "run-2"
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    third = lab.land(CLEAR).receipt
    real = delta.DeltaLakeTable._write

    def is_late(self: delta.DeltaLakeTable, *args: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "_write", real)
        assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
        real(self, *args)

    monkeypatch.setattr(delta.DeltaLakeTable, "_write", is_late)
    tables.sync(lab.root)
    assert loads_in(lab) == sorted([first.load_id] * 3 + [third.load_id] * 3)


@proves(
    "2.10",
    at="src/weblake/loads/retirement.py",
    line="_keep(dataset, entry.load_id, files, [table for table in current if table not in tables])",
    becomes="pass",
)
def test_a_table_that_is_added_and_synced_while_a_load_is_replaced(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing has listed the tables before; the table has added the old load before its retirement."""
    lab.land(RETRY)
    real = Ledger.record_done

    def meanwhile(self: Ledger, *args: Any, **more: Any) -> Any:
        monkeypatch.setattr(Ledger, "record_done", real)
        tables.add(lab.root, "delta", keep_days=0)
        assert tables.sync(lab.root)[0].rows == 3
        return real(self, *args, **more)

    monkeypatch.setattr(Ledger, "record_done", meanwhile)
    lab.run = "run-2"
    second = lab.land(RETRY).receipt
    assert len(loads_in(lab)) == 3  # of the old load, whose file is there
    tables.sync(lab.root)
    assert loads_in(lab) == [second.load_id] * 3
    assert lab.visible == [second.load_id]
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


def test_a_retired_load_is_not_added_when_it_is_offered_again(lab: TaskLab) -> None:
    first = lab.land(RETRY).receipt
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    lab.run = "run-2"
    second = lab.land(RETRY).receipt
    tables.sync(lab.root)
    for what in ("added", "removed"):
        lab.dataset.storage.create(f"_weblake/uncommitted/{_table_id(lab)}/{first.load_id}.{what}", b"")
        (done,) = tables.sync(lab.root)
        assert (done.added, done.removed) == ((), ())
    assert loads_in(lab) == [second.load_id] * 3
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@proves(
    "2.10",
    at="src/weblake/tables/committing.py",
    line="and (REMOVED in load.entries or load.file.load_id in in_table)",
    becomes="and load.file.load_id in in_table",
)
def test_a_load_that_was_retired_before_its_sync_is_never_added(lab: TaskLab) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta", keep_days=0)
    tables.sync(lab.root)
    for run in ("run-2", "run-3"):
        lab.run = run
        last = lab.land(RETRY).receipt
    (done,) = tables.sync(lab.root)
    assert (done.added, len(done.removed)) == ((last.load_id,), 2)
    assert loads_in(lab) == [last.load_id] * 3
    assert lab.visible == [last.load_id]


def test_a_load_that_was_retired_before_the_table_was_added_is_not_among_the_removed(lab: TaskLab) -> None:
    lab.land(RETRY)
    lab.run = "run-2"
    last = lab.land(RETRY).receipt
    tables.add(lab.root, "delta")
    (done,) = tables.sync(lab.root)
    assert (done.added, done.removed) == ((last.load_id,), ())


def test_the_entry_of_a_load_that_was_retired_without_the_table_is_removed(lab: TaskLab) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    lab.run = "run-2"
    lab.land(RETRY)
    tables.remove(lab.root, "delta")
    lab.run = "run-3"
    last = lab.land(RETRY).receipt
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    assert loads_in(lab) == [last.load_id] * 3
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


def _table_id(lab: TaskLab) -> str:
    (table,) = tables.list_tables(lab.root)
    return table.table_id


def test_wrong_arguments_are_refused_with_a_remedy(lab: TaskLab, tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match="holds no dataset"):
        tables.add(tmp_path / "empty", "delta")
    lab.land(RETRY)
    for wrong in (
        {"format": "hudi"},
        {"format": "iceberg"},
        {"format": "delta", "catalog": "lake", "identifier": "web.documents"},
        {"format": "iceberg", "catalog": "lake", "identifier": "documents"},
        {"format": "iceberg", "catalog": "lake", "identifier": ".documents"},
        {"format": "delta", "table": "nothing"},
        {"format": "delta", "keep_days": -1},
        {"format": "delta", "keep_days": float("inf")},
        {"format": "delta", "keep_days": float("nan")},
    ):
        with pytest.raises(InvalidOption) as caught:
            tables.add(lab.root, **wrong)  # type: ignore[arg-type]
        assert caught.value.hint
    with pytest.raises(InvalidOption, match="no Delta Lake or Iceberg table"):
        tables.sync(lab.root)
    tables.add(lab.root, "delta", keep_days=3)
    with pytest.raises(InvalidOption, match="is registered with keep_days 3"):
        tables.add(lab.root, "delta", keep_days=7)
    assert tables.add(lab.root, "delta").keep_days == tables.add(lab.root, "delta", keep_days=3).keep_days == 3
    for call in (tables.sync, tables.status):
        with pytest.raises(InvalidOption, match="no such table"):
            call(lab.root, format="iceberg")
    with pytest.raises(InvalidOption, match="no such table"):
        tables.remove(lab.root, "iceberg")


def test_the_command_line(lab: TaskLab) -> None:
    def table(command: str, *more: str) -> tuple[int, str, str]:
        return run_command(["table", command, str(lab.root), *more], {})

    first = lab.land(RETRY).receipt
    assert "weblake table sync" in table("add", "delta")[1]
    listed = json.loads(table("list", "--json")[1])["tables"]
    assert [(each["format"], each["table"], each["keep_days"]) for each in listed] == [("delta", "documents", 7.0)]
    code, out, _ = table("status")
    assert (code, f"1 loads not added yet: {first.load_id}" in out) == (1, True)
    assert "1 loads added (3 rows)" in table("sync")[1]
    code, out, _ = table("status", "--json")
    assert (code, json.loads(out)["tables"][0]["in_step"]) == (0, True)
    assert json.loads(table("sync", "--all", "--json")[1])["tables"][0]["added"] == []
    assert table("remove", "delta")[0] == 0
    code, _, err = table("sync")
    assert (code, "weblake table add" in err) == (2, True)


def test_readers_skip_files_by_the_statistics_of_the_log(lab: TaskLab) -> None:
    lab.urls = ["http://pages.test/a"]
    first = lab.land(RETRY).receipt
    lab.run, lab.keys, lab.urls = "run-2", {"day": "2026-11-22"}, ["http://pages.test/z"]
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    dataset = DeltaTable(lab.root / "documents").to_pyarrow_dataset()
    (loaded_at,) = dataset.to_table(columns=["loaded_at"], filter=ds.field("load_id") == first.load_id).column(0)

    def files(condition: ds.Expression) -> int:
        return len(list(dataset.get_fragments(condition)))

    assert files(ds.field("markdown").is_valid()) == 2
    assert files(ds.field("load_id") == first.load_id) == 1
    assert files(ds.field("url") == "http://pages.test/z") == 1
    assert files(ds.field("status_code") == 404) == 0
    assert files(ds.field("loaded_at") <= loaded_at) == 1
    table = DeltaTable(lab.root / "documents")
    table.optimize.z_order(["url"])  # the statistics of the table's own maintenance
    assert "max.loaded_at" in pa.table(table.get_add_actions(flatten=True)).column_names
    assert "max.markdown" not in pa.table(table.get_add_actions(flatten=True)).column_names


def test_the_options_of_the_storage_are_given_to_deltalake(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.land(RETRY)
    given: list[dict[str, Any]] = []

    class Table:
        def __init__(self, location: str, **options: Any) -> None:
            given.append(options)

        @staticmethod
        def create(location: str, schema: object, **options: Any) -> None:
            given.append({"storage_options": options["storage_options"]})

    monkeypatch.setattr("deltalake.DeltaTable", Table)
    for options, passed in (({"region": "x"}, {"region": "x"}), ({}, None)):
        delta.open_table(lab.dataset.storage, "documents", options, create=True)
        assert given == [{"storage_options": passed}] * 2
        given.clear()


@pytest.mark.parametrize("method", ["count", "deletion_vectors", "get_add_actions", "transaction_version"])
def test_a_log_that_cannot_be_read_to_its_end_is_told(
    lab: TaskLab, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any request for a part of the log may fail: 403, 503, and what a proxy makes of them."""
    second = replace_a_load_with_a_deletion_vector(lab)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("403 Forbidden")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, method, fails)
        with pytest.raises(StorageRefused, match="cannot be read: 403 Forbidden"):
            tables.sync(lab.root)
    tables.sync(lab.root)
    assert delta.open_table(lab.dataset.storage, "documents").loads() == {second.load_id: 3}


def test_a_table_that_cannot_be_created_is_told(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.land(RETRY)
    monkeypatch.setattr(DeltaTable, "create", Mock(side_effect=OSError("Read-only file system")))
    with pytest.raises(StorageRefused, match="cannot be created: Read-only file system"):
        tables.add(lab.root, "delta")


def test_the_status_names_a_file_that_the_table_lacks(lab: TaskLab) -> None:
    lab.land(RETRY)
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    (file,) = lab.root.glob("documents/*=*/*.parquet")
    file.unlink()
    with pytest.raises(StorageRefused, match=f"(?s)names a file that is missing.+{file.name}"):
        tables.status(lab.root)


def test_the_status_names_a_load_of_which_the_table_lacks_rows(lab: TaskLab) -> None:
    load_id = lab.land(RETRY).receipt.load_id
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    DeltaTable(lab.root / "documents").delete(f"source_url = '{URLS[0]}'")
    (status,) = tables.status(lab.root)
    assert (status.rows, status.different, status.missing, status.in_step) == (2, (load_id,), (), False)


def test_the_log_names_added_and_removed_loads(lab: TaskLab) -> None:
    first = lab.land(RETRY).receipt.load_id
    tables.add(lab.root, "delta")
    tables.sync(lab.root)
    lab.run = "run-2"
    second = lab.land(RETRY).receipt.load_id
    tables.sync(lab.root)
    table = delta.open_table(lab.dataset.storage, "documents", None, create=False)
    assert table.added([first, second, "0" * 16]) == {first, second}
    assert table.removed([first, second, "0" * 16]) == {first}
