"""Delta Lake tables: their place, their own maintenance, and what other programs may do to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from command_in_process import run_command
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import SchemaMismatchError
from table_lab import add, lake, land, rows, sync
from task_lab import TaskLab

import weblake
from weblake import tables
from weblake.errors import StorageRefused
from weblake.tables import delta

pytestmark = pytest.mark.usefixtures("short_pauses")


def delta_table(lab: TaskLab) -> DeltaTable:
    return DeltaTable(lab.root / "delta" / "documents")


def same_loads(lab: TaskLab) -> bool:
    """Whether the dataset and the table have the same loads, and the status says so."""
    landed = set(weblake.read(lab.root).to_table().column("load_id").to_pylist())
    return landed == set(rows(lab, "delta")) and tables.status(lab.root)[0].in_step


@pytest.mark.smoke
@pytest.mark.parametrize("day", ["2026-11-21", "a b/ü%", "50%"])
def test_a_table_has_the_rows_of_the_dataset_in_a_place_of_its_own(lab: TaskLab, day: str) -> None:
    load_id = land(lab, "run-1", day)
    add(lab, "delta")
    done = sync(lab, "delta")
    assert (done.added, done.removed, done.rows, done.table_rows) == ((load_id,), (), 3, 3)
    assert done.location == str(lab.root / "delta" / "documents")
    assert delta_table(lab).metadata().partition_columns == ["day"]
    read = weblake.read(lab.root).to_polars()
    found = polars.from_arrow(delta_table(lab).to_pyarrow_table()).select(read.columns)
    assert found.sort("position").drop("metadata").equals(read.sort("position").drop("metadata"))
    assert not list(lab.root.glob("documents/**/_delta_log"))
    assert [path.name[:16] for path in lab.root.glob("documents/**/*.parquet")] == [load_id]


@pytest.mark.smoke
def test_maintenance_without_retention_neither_doubles_nor_loses(lab: TaskLab) -> None:
    """Afterwards the dataset and the table have the same loads; then one that is in a merged file is replaced."""
    land(lab, "run-1", "a")
    for number in range(3):
        land(lab, f"other-{number}", f"b-{number}")
    add(lab, "delta")
    sync(lab, "delta")
    land(lab, "run-2", "a")
    sync(lab, "delta")
    for _ in range(2):
        table = delta_table(lab)
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        assert same_loads(lab)
        assert sync(lab, "delta", everything=True).added == ()
        last = land(lab, "run-3", "a")
        sync(lab, "delta")
        assert same_loads(lab)
    assert rows(lab, "delta")[last] == 3


def test_maintenance_during_the_commit_of_a_replacement(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit that takes out rows fails, because another program has moved them; the next attempt finds them."""
    for day in "ab":
        land(lab, f"run-1{day}", day)
        add(lab, "delta")
        sync(lab, "delta")
    land(lab, "run-2a", "a")
    real = delta.DeltaLakeTable.commit

    def meanwhile(self: Any, *args: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "commit", real)
        delta_table(lab).optimize.z_order(["url"])
        real(self, *args)

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", meanwhile)
    sync(lab, "delta")
    assert same_loads(lab)
    assert set(rows(lab, "delta").values()) == {3}


def test_what_another_program_deletes_or_restores_stays_and_is_no_difference(lab: TaskLab) -> None:
    first, second = land(lab, "run-1", "a"), land(lab, "run-2", "b")
    add(lab, "delta")
    sync(lab, "delta")
    delta_table(lab).delete(f"load_id = '{first}' OR (load_id = '{second}' AND position = 0)")
    assert sync(lab, "delta", everything=True).added == ()
    (status,) = tables.status(lab.root)
    assert (status.in_step, set(status.deleted), rows(lab, "delta")) == (True, {first, second}, {second: 2})
    third = land(lab, "run-3", "b")
    sync(lab, "delta")
    delta_table(lab).restore(1)
    assert sync(lab, "delta", everything=True).added == ()
    (status,) = tables.status(lab.root)
    assert (status.in_step, status.restored, status.deleted) == (True, (second,), (third,))


def test_an_append_only_table_gets_the_loads_that_replace_nothing(lab: TaskLab) -> None:
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    new, other = land(lab, "run-2", "a"), land(lab, "run-3", "b")
    delta_table(lab).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(StorageRefused, match="does not take the rows"):
        sync(lab, "delta")
    assert rows(lab, "delta") == {old: 3, other: 3}
    delta_table(lab).alter.set_table_properties({"delta.appendOnly": "false"})
    sync(lab, "delta")
    assert rows(lab, "delta") == {new: 3, other: 3}


def test_a_constraint_of_another_program_is_checked(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    add(lab, "delta")
    delta_table(lab).alter.add_constraint({"status": "status_code = 404"})
    with pytest.raises(StorageRefused, match=r"does not take the rows .+ failed validation check"):
        sync(lab, "delta")
    delta_table(lab).alter.drop_constraint("status")
    assert sync(lab, "delta").rows == 3


def test_columns_partitions_and_rows_of_another_program_stay(lab: TaskLab, tmp_path: Path) -> None:
    """The table was made by another program, at a location of its own, with other partitions and one more column."""
    place = str(tmp_path / "elsewhere")
    land(lab, "run-1", "a")
    columns = weblake.read(lab.root).to_table().schema
    own = pa.table({"load_id": pa.array(["own"]), "note": pa.array(["mine"])})
    write_deltalake(place, columns.empty_table(), partition_by=["job_kind"])
    write_deltalake(place, own, mode="append", schema_mode="merge")
    registered = tables.add(lab.root, "delta", location=place)
    assert registered.name == place
    first = tables.sync(lab.root)[0]
    assert (first.location, first.rows, first.table_rows) == (place, 3, 4)
    land(lab, "run-2", "a")
    tables.sync(lab.root, name=place)
    found = DeltaTable(place)
    assert (found.metadata().partition_columns, found.count()) == (["job_kind"], 4)
    assert tables.status(lab.root)[0].unknown == ("own",)
    assert tables.remove(lab.root, "delta", place) == registered


def test_a_checkpoint_follows_a_commit_of_many_loads(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "_CHECKPOINT_FROM", 2)
    for day in "ab":
        land(lab, f"run-{day}", day)
    add(lab, "delta")
    sync(lab, "delta")
    assert list(lab.root.glob("delta/documents/_delta_log/*.checkpoint.parquet"))


def test_the_log_names_added_and_removed_loads(lab: TaskLab) -> None:
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    new = land(lab, "run-2", "a")
    sync(lab, "delta")
    table = delta_table(lab)
    assert [table.transaction_version(f"weblake:{load_id}") for load_id in (old, new)] == [2, 1]
    assert lake(lab, "delta").committed([old, new, "0" * 16]) == {old: "removed", new: "added"}


def test_errors_of_deltalake_are_told(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lab, "run-1", "a")
    add(lab, "delta")
    for error, told in (
        (SchemaMismatchError("the columns differ"), "does not take the rows of the dataset: the columns differ"),
        (OSError("no route to the storage"), "in 8 attempts: no route to the storage"),
    ):
        with monkeypatch.context() as patched:

            def fails(*_: object, raised: Exception = error, **__: object) -> None:
                raise raised

            patched.setattr("deltalake.write_deltalake", fails)
            with pytest.raises(StorageRefused, match=told) as caught:
                sync(lab, "delta")
            assert caught.value.hint
    (lab.root / "delta/documents/_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(StorageRefused, match="cannot be read"):
        sync(lab, "delta")


def test_readers_skip_files_by_the_statistics_of_the_log(lab: TaskLab) -> None:
    first = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    (found,) = pa.table(delta_table(lab).get_add_actions(flatten=True)).to_pylist()
    assert found["min.load_id"] == found["max.load_id"] == first
    assert found["min.url"] == "http://pages.test/0"
    assert {"max.loaded_at", "max.status_code", "max.position", "max.source_url", "max.page_key"} <= found.keys()
    assert "max.markdown" not in found


def test_the_command_line(lab: TaskLab) -> None:
    def table(command: str, *more: str) -> tuple[int, str, str]:
        return run_command(["table", command, str(lab.root), *more], {})

    load_id = land(lab, "run-1", "a")
    assert "weblake table sync" in table("add", "delta")[1]
    listed = json.loads(table("list", "--json")[1])["tables"]
    assert [(each["format"], each["table"], each["location"]) for each in listed] == [("delta", "documents", None)]
    code, out, _ = table("status")
    assert (code, f"1 loads not added yet: {load_id}" in out) == (1, True)
    assert "1 loads added (3 rows)" in table("sync")[1]
    code, out, _ = table("status", "--json")
    assert (code, json.loads(out)["tables"][0]["in_step"]) == (0, True)
    assert json.loads(table("sync", "--all", "--json")[1])["tables"][0]["added"] == []
    delta_table(lab).delete()
    code, out, _ = table("status")
    assert (code, "up to date" in out, "rows deleted from the table by another program" in out) == (0, True, True)
    assert table("remove", "delta")[0] == 0
    code, _, err = table("sync")
    assert (code, "weblake table add" in err) == (2, True)
