"""Tables that other programs change: expiry, an older version, other partitions, another table of the same name."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow.parquet as pq
import pytest
from catalogue import proves
from command_in_process import run_command
from crash_steps import Crash
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from table_lab import FORMATS, add, iceberg_table, kind_of, land, options_of, rows, sync
from task_lab import URLS, TaskLab

import weblake
from weblake import tables
from weblake.dataset.registered_tables import TableRecords
from weblake.errors import StorageRefused
from weblake.storage.local import LocalStorage
from weblake.tables import committing, delta, iceberg, synchronization
from weblake_service.page_failure import PageFailure

pytestmark = pytest.mark.usefixtures("short_pauses")


def status_of(lab: TaskLab, format: str) -> tables.TableStatus:
    return tables.status(lab.root, format=format, table_options=options_of(lab, format))[0]


def sync_and_die(lab: TaskLab, format: str) -> None:
    """A sync that ends after its commit, before its first record."""
    real = LocalStorage.create

    def crash(self: LocalStorage, name: str, data: bytes) -> bool:
        if "_weblake/committed" in name:
            raise Crash
        return real(self, name, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStorage, "create", crash)
        with pytest.raises(Crash):
            sync(lab, format)


def forget(lab: TaskLab, format: str) -> None:
    """Have the table's log forget its first commit."""
    if format == "delta":
        # deltalake 1.6.6 names transactions after this time all the same; other writers' checkpoints leave them out.
        DeltaTable(lab.root / "documents").alter.set_table_properties({delta.EXPIRY: "interval 1 day"})
        return
    table = iceberg_table(lab)
    table.append(table.schema().as_arrow().empty_table())
    table.refresh()
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()


@proves(
    "2.10",
    at="src/weblake/tables/committing.py",
    line="found[ADDED] |= lake.with_rows(sorted(files - found[ADDED] - found[REMOVED]))",
    becomes="pass",
    case="iceberg-True",
)
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_an_expired_commit_that_a_killed_sync_did_not_record(
    lab: TaskLab, format: str, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the log nor a record names the load: the rows of the table do."""
    load_id = land(lab, "run-1", "a")
    add(lab, format)
    sync_and_die(lab, format)
    forget(lab, format)
    current = land(lab, "run-2", "a") if replaced else load_id
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda *_: None)
    sync(lab, format)
    assert rows(lab, format) == {current: 3}


@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_that_a_killed_sync_did_not_record_before_those_of_others(lab: TaskLab, format: str) -> None:
    """Only an earlier commit of the log names the load."""
    load_id = land(lab, "run-1", "a")
    add(lab, format)
    sync_and_die(lab, format)
    if format == "delta":
        DeltaTable(lab.root / "documents").alter.set_table_properties({"delta.appendOnly": "false"})
    else:
        iceberg_table(lab).append(iceberg_table(lab).schema().as_arrow().empty_table())
    assert sync(lab, format).added == ()
    assert rows(lab, format) == {load_id: 3}


def test_an_expired_commit_to_a_table_that_does_not_count_its_commits(lab: TaskLab) -> None:
    """An Iceberg table of format version 1, which another program has created."""
    load_id = land(lab, "run-1", "a")
    (file,) = lab.root.glob("documents/*=*/*.parquet")
    catalog = load_catalog("lake", **options_of(lab, "iceberg") or {})
    catalog.create_namespace("web")
    schema = pq.read_schema(file).remove_metadata()
    catalog.create_table("web.documents", schema=schema, properties={"format-version": "1"})
    add(lab, "iceberg")
    sync_and_die(lab, "iceberg")
    forget(lab, "iceberg")
    assert iceberg_table(lab).format_version == 1
    assert sync(lab, "iceberg").added == ()
    assert rows(lab, "iceberg") == {load_id: 3}


@pytest.mark.parametrize("listed_from", [1, 100], ids=["listed", "one by one"])
def test_the_records_remember_what_the_log_has_forgotten(
    lab: TaskLab, listed_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was added and what was taken out; of many loads, the records are listed."""
    other = land(lab, "run-0", "b")
    replaced = land(lab, "run-1", "a")
    add(lab, "delta", keep_days=0)
    sync(lab, "delta")
    land(lab, "run-2", "a")
    version = sync(lab, "delta").version
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda *_: None)
    monkeypatch.setattr(committing, "LISTED_FROM", listed_from)
    done = sync(lab, "delta", everything=True)
    assert (done.added, done.removed, done.version) == ((), (), version)
    new = land(lab, "run-3", "a")
    sync(lab, "delta")
    assert rows(lab, "delta") == {other: 3, new: 3}
    assert replaced not in lab.visible


@proves(
    "2.10",
    at="src/weblake/tables/kept_files.py",
    line="for table, lake in (opened if deletable else ())",
    becomes="for table, lake in ()",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_an_older_version_that_is_restored_keeps_its_files(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has taken the load out, and its days have passed; its current version names the file again."""
    old = land(lab, "run-1", "a")
    add(lab, format, keep_days=0)
    before = sync(lab, format).version
    new = land(lab, "run-2", "a")
    with monkeypatch.context() as patched:
        patched.setattr(synchronization, "delete_kept_files", lambda *_: 0)
        after = sync(lab, format).version
    restore(lab, format, before)
    assert sync(lab, format).deleted_files == 0
    assert rows(lab, format) == {old: 3}
    found = status_of(lab, format)
    assert (found.restored, found.deleted) == ((old,), (new,))
    assert (found.retired, found.missing, found.in_step) == ((), (), False)
    restore(lab, format, after)
    assert sync(lab, format).deleted_files == 1
    assert rows(lab, format) == {new: 3}
    assert status_of(lab, format).in_step


@pytest.mark.parametrize("remembers", ["the log", "the records"])
def test_rows_that_another_program_has_added_again_are_told(
    lab: TaskLab, remembers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync was killed before its records, or the log has forgotten its commit since: one of both is enough."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    before = sync(lab, "delta").version
    land(lab, "run-2", "a")
    if remembers == "the log":
        sync_and_die(lab, "delta")
    else:
        sync(lab, "delta")
        monkeypatch.setattr(DeltaTable, "transaction_version", lambda *_: None)
    folder = lab.root / "documents"
    write_deltalake(folder, DeltaTable(folder, version=before).to_pyarrow_table(), mode="append")
    found = status_of(lab, "delta")
    assert (found.restored, found.retired, found.deleted, found.missing) == ((old,), (), (), ())
    assert not found.in_step


def test_a_sync_with_a_table_that_fails_deletes_no_file(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may name the file: another program has restored an older version of it."""
    old = land(lab, "run-1", "a")
    for format in FORMATS:
        add(lab, format, keep_days=0)
    options = options_of(lab, "iceberg")
    before = {each.format: each.version for each in tables.sync(lab.root, table_options=options)}
    new = land(lab, "run-2", "a")
    with monkeypatch.context() as patched:
        patched.setattr(synchronization, "delete_kept_files", lambda *_: 0)
        tables.sync(lab.root, table_options=options)
    restore(lab, "iceberg", before["iceberg"])
    with pytest.raises(StorageRefused, match="The Iceberg catalog 'lake' cannot be used"):
        tables.sync(lab.root)
    assert lab.visible == sorted([old, new])
    assert rows(lab, "iceberg") == {old: 3}
    assert rows(lab, "delta") == {new: 3}


@pytest.mark.parametrize("first", ["documents", "page_errors"])
def test_a_restored_version_of_one_table_keeps_all_files_of_its_loads_and_no_others(
    lab: TaskLab, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tables, one names one of two files of a replaced load again."""
    lab.web.failures[URLS[0]] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    restored = land(lab, "run-1", "a")
    for table in sorted(("documents", "page_errors"), key=lambda each: each != first):
        add(lab, "delta", table=table, keep_days=0)
    sync(lab, "delta")
    before = DeltaTable(lab.root / "documents").version()
    other = land(lab, "run-0", "b")
    assert restored < other, "files are deleted in this order"
    sync(lab, "delta")
    newer = {land(lab, f"run-2{day}", day) for day in "ab"}
    with monkeypatch.context() as patched:
        patched.setattr(synchronization, "delete_kept_files", lambda *_: 0)
        sync(lab, "delta")
    DeltaTable(lab.root / "documents").restore(before)

    def files_of(load_id: str) -> list[str]:
        return sorted(path.relative_to(lab.root).parts[0] for path in lab.root.glob(f"*/**/{load_id}*.parquet"))

    assert sync(lab, "delta").deleted_files == 2
    assert (files_of(restored), files_of(other)) == (["documents", "page_errors"], [])
    assert rows(lab, "delta") == {restored: 2}
    assert set(weblake.read(lab.root).to_table().column("load_id").to_pylist()) == newer


@pytest.mark.parametrize("format", FORMATS)
def test_loads_that_another_program_has_deleted_are_told_apart_from_those_that_wait(lab: TaskLab, format: str) -> None:
    """As after CREATE OR REPLACE TABLE of the same table: a sync remembers its loads as committed."""
    gone = land(lab, "run-1", "a")
    add(lab, format)
    sync(lab, format)
    if format == "delta":
        DeltaTable(lab.root / "documents").delete()
    else:
        iceberg_table(lab).delete(f"load_id == '{gone}'")
    waits = land(lab, "run-2", "b")
    found = status_of(lab, format)
    assert (found.deleted, found.missing, found.in_step) == ((gone,), (waits,), False)
    sync(lab, format)
    assert rows(lab, format) == {waits: 3}
    forget(lab, format)
    found = status_of(lab, format)
    assert (found.deleted, found.missing, found.in_step) == ((gone,), (), False)
    if format == "delta":
        code, out, _ = run_command(["table", "status", str(lab.root)], {})
        assert (code, f"1 loads deleted from the table by another program: {gone}" in out) == (1, True)
        assert "Restore the version of the table before the change" in " ".join(out.split())


def restore(lab: TaskLab, format: str, version: int) -> None:
    if format == "delta":
        DeltaTable(lab.root / "documents").restore(version)
    else:
        iceberg_table(lab).manage_snapshots().set_current_snapshot(snapshot_id=version).commit()


def test_a_delta_table_with_other_partitions_is_left_alone(lab: TaskLab) -> None:
    """deltalake 1.6.6 commits files with the partitions that it is given; the table could not be read afterwards."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    folder = lab.root / "documents"
    whole = DeltaTable(folder).to_pyarrow_table()
    before = DeltaTable(folder).version()
    write_deltalake(folder, whole, mode="overwrite", schema_mode="overwrite", partition_by=["job_kind"])
    new = land(lab, "run-2", "b")
    with pytest.raises(StorageRefused, match="partitioned by job_kind, and the dataset by day"):
        sync(lab, "delta")
    assert rows(lab, "delta") == {old: 3}
    restore(lab, "delta", before)
    sync(lab, "delta")
    assert rows(lab, "delta") == {old: 3, new: 3}


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_that_is_created_again_during_a_sync_is_refused(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, format)
    (table,) = tables.list_tables(lab.root)
    real = kind_of(format).refresh

    def meanwhile(self: Any) -> None:
        monkeypatch.setattr(kind_of(format), "refresh", real)
        if format == "delta":
            shutil.rmtree(lab.root / "documents" / "_delta_log")
            delta.open_table(lab.dataset.storage, "documents", create=True)
        else:
            load_catalog("lake", **options_of(lab, format) or {}).drop_table("web.documents")
            options = options_of(lab, format)
            iceberg.open_table(lab.dataset.storage, "documents", "lake", "web.documents", options, create=True)
        real(self)

    monkeypatch.setattr(kind_of(format), "refresh", meanwhile)
    with pytest.raises(StorageRefused, match="is another one than the registered one"):
        sync(lab, format)
    assert rows(lab, format) == {}
    assert TableRecords(lab.dataset.ledger).committed(table, load_id, "added") is None
