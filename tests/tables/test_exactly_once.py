"""Each load is in the table once: after a crash between any two steps, a lost reply, and with several syncs at once."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from catalogue import proves
from crash_steps import Crash, CrashSteps
from deltalake import DeltaTable
from deltalake.exceptions import SchemaMismatchError
from killed_syncs import sync_and_kill
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    ServiceUnavailableError,
    ValidationException,
)
from sqlalchemy.exc import OperationalError
from table_lab import (
    FORMATS,
    add,
    kind_of,
    land,
    land_run,
    loads_by_reference,
    lose_replies,
    options_of,
    row_counts,
    rows,
    sync,
)
from task_lab import CLEAR, RETRY, URLS, TaskLab

from weblake import tables
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import utc_now
from weblake.dataset.registered_tables import ADDED, mark_uncommitted
from weblake.dataset.root import open_dataset
from weblake.errors import FeatureMissing, StorageRefused
from weblake.receipt import LandedFile, Receipt
from weblake.storage.local import LocalStorage
from weblake.tables import attempts, batches, delta, formats, iceberg
from weblake.tables.formats import CommitConflict, LoadFile
from weblake_service.page_failure import PageFailure


@pytest.mark.parametrize("format", ["delta", pytest.param("iceberg", marks=pytest.mark.system)])
def test_a_crash_between_any_two_steps(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a sync are its changes of the root and its commit; each is the last one of a process once."""
    land(lab, "run-1", "a")
    add(lab, format, keep_days=0)
    sync(lab, format)
    crash, steps = CrashSteps(), 0
    monkeypatch.setattr(LocalStorage, "create", crash.before(LocalStorage.create))
    monkeypatch.setattr(LocalStorage, "delete", crash.before(LocalStorage.delete))
    monkeypatch.setattr(kind_of(format), "commit", crash.around(kind_of(format).commit))
    for crash_at in range(1, 40):
        crash.left = 0  # landings are not what is to crash
        current = [land(lab, f"run-{crash_at}-{day}", day) for day in ("a", "b")]
        crash.left = crash_at
        try:
            sync(lab, format)
        except Crash:
            steps += 1
        else:
            break
        crash.left = 0
        sync(lab, format)
        assert rows(lab, format) == dict.fromkeys(current, 3), f"after a crash at step {crash_at}"
        assert lab.visible == sorted(current)
        assert lab.dataset.storage.list("_weblake/uncommitted") == []
    assert steps >= 8, "the commit, the records and the entries of four loads, and the files of two"


def test_syncs_that_are_all_killed_during_their_records_come_to_an_end(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is killed at its third record or entry, and continues where the one before it was killed."""
    loads = {land(lab, f"run-{day}", day) for day in "abcdef"}
    add(lab, "delta")
    crash = CrashSteps()
    monkeypatch.setattr(LocalStorage, "create", crash.before(LocalStorage.create))
    monkeypatch.setattr(LocalStorage, "delete", crash.before(LocalStorage.delete))
    killed = 0
    while killed < 2 * len(loads):
        crash.left = 3
        try:
            sync(lab, "delta")
        except Crash:
            killed += 1
        else:
            break
    crash.left = 0
    assert 2 <= killed < 2 * len(loads)
    assert rows(lab, "delta") == dict.fromkeys(loads, 3)
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@proves(
    "2.10",
    at="src/weblake/tables/committing.py",
    line="found = {ADDED: lake.added(ids), REMOVED: lake.removed(ids)}",
    becomes="found: dict[str, set[str]] = {ADDED: set(), REMOVED: set()}",
    case="iceberg",
)
@pytest.mark.smoke
@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_whose_reply_is_lost(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, format)
    lost = lose_replies(kind_of(format), "commit", monkeypatch)
    sync(lab, format)
    assert len(lost) == 1
    assert rows(lab, format) == {load_id: 3}


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("format", FORMATS)
def test_a_replacement_whose_reply_is_lost_is_committed_once(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lab, "run-1", "a")
    add(lab, format)
    sync(lab, format)
    new = land(lab, "run-2", "a")
    lost = lose_replies(kind_of(format), "commit", monkeypatch)
    assert [sync(lab, format).version] == lost
    assert rows(lab, format) == {new: 3}


@proves("2.10", at="src/weblake/tables/iceberg.py", line="keep_commits(found)", becomes="pass")
@pytest.mark.usefixtures("short_pauses")
def test_a_commit_that_the_client_of_the_catalog_repeats_after_a_lost_reply(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repetition fails, as if another program were first: pyiceberg then deletes the files of the commit.

    So it is with Glue, whose client (botocore) repeats a request up to ten times.
    """
    land(lab, "run-1", "a")
    add(lab, "iceberg")
    sync(lab, "iceberg")
    new = land(lab, "run-2", "a")
    real, refused = SqlCatalog.commit_table, list[CommitFailedException]()

    def commit_table(self: SqlCatalog, *args: Any) -> Any:
        real(self, *args)
        try:
            return real(self, *args)
        except CommitFailedException as error:
            refused.append(error)
            raise

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    done = sync(lab, "iceberg")
    assert len(refused) == 1
    assert rows(lab, "iceberg") == {new: 3}
    assert (done.added, done.rows) == ((new,), 3)


@pytest.mark.usefixtures("short_pauses")
def test_a_load_that_is_retired_between_two_attempts_is_not_added(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt reads the records again, after the table."""
    add_first(lab)
    land(lab, "run-1", "a")
    real, newer = delta.DeltaLakeTable.commit, []

    def is_overtaken(self: Any, *args: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "commit", real)
        newer.append(land(lab, "run-2", "a"))
        raise CommitConflict("another program has committed first")

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", is_overtaken)
    assert sync(lab, "delta").added == ()
    assert sync(lab, "delta").added == tuple(newer)
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@proves(
    "2.10",
    at="src/weblake/tables/delta.py",
    line="if self._open(create=False).version() != self.version:",
    becomes="if not self.version:",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_load_that_another_sync_has_added_since_the_table_was_read(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced since: on record as added, and in no file of the version that was read."""
    kept = land(lab, "run-1", "a")
    add(lab, format, keep_days=0)
    sync(lab, format)
    first, other = land(lab, "run-2", "b"), land(lab, "run-4", "c")
    real, newest = kind_of(format).refresh, []

    def is_overtaken(self: Any) -> None:
        real(self)
        monkeypatch.setattr(kind_of(format), "refresh", real)
        with monkeypatch.context() as only_one:
            only_one.setattr(batches, "with_entry", lambda *_: iter([{first: frozenset({ADDED})}]))
            sync(lab, format)
        newest.append(land(lab, "run-3", "b"))

    monkeypatch.setattr(kind_of(format), "refresh", is_overtaken)
    sync(lab, format)
    sync(lab, format)
    assert rows(lab, format) == dict.fromkeys([kept, other, *newest], 3)
    assert lab.visible == sorted([kept, other, *newest]), "no file but those of the loads is left"


@proves(
    "2.10",
    at="src/weblake/tables/batches.py",
    line="        together.setdefault(current.get(load_id, load_id), []).append(load_id)",
    becomes="        together.setdefault(load_id, []).append(load_id)",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_replacement_is_one_commit_in_a_backlog_of_many_commits(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = "abcd"
    for slot in slots:
        land(lab, f"run-1{slot}", slot)
    add(lab, format)
    sync(lab, format)
    for slot in slots:
        land(lab, f"run-2{slot}", slot)
    monkeypatch.setattr(batches, "LOADS_PER_COMMIT", 3)
    counts = row_counts(lab, format, monkeypatch)
    sync(lab, format)
    assert counts == [3 * len(slots)] * 4


def test_the_first_sync_commits_a_backlog_of_several_commits(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loads landed before the table was registered, so they have no entries."""
    loads = [land(lab, f"run-{day}", day) for day in "abc"]
    add(lab, "delta")
    monkeypatch.setattr(batches, "LOADS_PER_COMMIT", 1)
    sync(lab, "delta")
    assert rows(lab, "delta") == dict.fromkeys(loads, 3)


def test_more_replacements_than_a_condition_of_iceberg_can_name(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_MAX_IN_SET", 1)
    for slot in "ab":
        land(lab, f"run-1{slot}", slot)
    add(lab, "iceberg")
    sync(lab, "iceberg")
    new = [land(lab, f"run-2{slot}", slot) for slot in "ab"]
    sync(lab, "iceberg")
    assert rows(lab, "iceberg") == dict.fromkeys(new, 3)


def test_a_load_with_both_entries_is_replaced_in_one_commit(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that was killed after its records has left the entry of its addition."""
    older = [land(lab, f"run-1{slot}", slot) for slot in "ab"]
    add(lab, "delta")
    sync(lab, "delta")
    (table,) = tables.list_tables(lab.root)
    for load_id in older:
        mark_uncommitted(lab.dataset.storage, [table.table_id], load_id, ADDED)
    for slot in "ab":
        land(lab, f"run-2{slot}", slot)
    monkeypatch.setattr(batches, "LOADS_PER_COMMIT", 1)
    counts = row_counts(lab, "delta", monkeypatch)
    sync(lab, "delta")
    assert counts == [6, 6]
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


def test_only_replacements_are_copied_into_a_merged_delta_table(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake holds the rows that it copies in memory: a backlog of a thousand loads does not fit in."""
    for number in range(4):
        land_run(lab, number)
    add(lab, "delta")
    sync(lab, "delta")
    assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
    not_merged = land_run(lab, 6)
    sync(lab, "delta")
    replacing = [land_run(lab, number, CLEAR) for number in range(3)]
    new = [*replacing, land_run(lab, 4), land_run(lab, 5)]
    largest = max(file.stat().st_size for file in lab.root.glob("documents/*=*/*.parquet"))
    monkeypatch.setattr(batches, "COPIED_PER_COMMIT", largest * 3 // 2)
    before = DeltaTable(lab.root / "documents").version()
    sync(lab, "delta")
    table = DeltaTable(lab.root / "documents")
    assert table.version() == before + 4, "the new loads by reference, then one commit for each replacement"
    for version in (before + 1, before + 4):
        table.load_as_version(version)
        by_reference = loads_by_reference(table)
        assert by_reference.intersection([*new, not_merged]) == {*new[3:], not_merged}
    assert [rows(lab, "delta")[load_id] for load_id in new] == [3] * 5
    assert sum(rows(lab, "delta").values()) == 3 * 7


def test_a_file_that_is_kept_costs_a_sync_one_request(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many as loads that were replaced in the last week, and each sync looks at all of them."""
    land(lab, "run-0", "a")
    add(lab, "delta")
    replaced = [land(lab, f"run-{n}", "a") for n in range(1, 4)]
    sync(lab, "delta")
    land(lab, "run-4", "a")
    sync(lab, "delta")
    asked: list[str] = []
    real = LocalStorage.read

    def read(self: LocalStorage, name: str) -> bytes | None:
        asked.append(name)
        return real(self, name)

    monkeypatch.setattr(LocalStorage, "read", read)
    assert sync(lab, "delta").deleted_files == 0
    assert {f"_weblake/kept/{load_id}.json" for load_id in replaced} <= set(asked)
    assert [name for name in asked if name.startswith("_weblake/committed")] == []


class Refused(Exception):
    """An error of a catalog or a library that nothing else tells about."""


@pytest.mark.parametrize(
    ("format", "error", "calls"),
    [
        ("delta", SchemaMismatchError("the columns differ"), 1),
        ("delta", OSError("no route to the storage"), 8),
        ("iceberg", ForbiddenError("no right to commit"), 1),
        ("iceberg", Refused("unknown"), 1),
        ("iceberg", ServiceUnavailableError("come again"), 8),
        ("iceberg", OSError("no route to the catalog"), 8),
    ],
)
def test_a_commit_that_always_fails(
    lab: TaskLab, format: str, error: Exception, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be a conflict is told at once, and what may be one after few attempts: no program has committed."""
    land(lab, "run-1", "a")
    add(lab, format)
    monkeypatch.setattr(attempts, "PAUSE_S", 0.0)
    called = []

    def fails(*args: Any, **more: Any) -> None:
        called.append(args)
        raise error

    with monkeypatch.context() as patched:
        library = DeltaTable if format == "delta" else SqlCatalog
        patched.setattr(library, "create_write_transaction" if format == "delta" else "commit_table", fails)
        with pytest.raises(StorageRefused, match=str(error)) as caught:
            sync(lab, format)
    assert caught.value.hint
    assert len(called) == calls
    assert sync(lab, format).rows == 3


def test_each_error_after_which_a_table_may_have_changed_is_a_conflict(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    table = iceberg.open_table(lab.dataset.storage, "documents", "lake", "web.documents", options_of(lab, "iceberg"))
    for error in (
        ServerError("the catalog failed"),
        CommitFailedException("another program was first"),
        CommitStateUnknownException("the connection was closed"),
        ValidationException("another program was first"),
        OperationalError("INSERT", None, OSError("the database is locked")),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "commit_table", Mock(side_effect=error))
            with pytest.raises(CommitConflict):
                table.commit([LoadFile(load_id, None, 0, 0, {})], [])
        table.refresh()


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_missing_is_named(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lab, "run-1", "a")
    add(lab, format)
    monkeypatch.setattr(attempts, "PAUSE_S", 0.0)
    (file,) = lab.root.glob("documents/*=*/*.parquet")
    file.unlink()
    with pytest.raises(StorageRefused, match=r"has no file documents/day=a/.+ any more") as caught:
        sync(lab, format)
    assert "Restore it from a backup" in str(caught.value)


def test_a_file_that_is_missing_is_named_beside_loads_without_a_file(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.web.failures[URLS[0]] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    land(lab, "run-1", "a")
    lab.web.failures.clear()
    land(lab, "run-2", "b")
    add(lab, "delta", table="page_errors")
    monkeypatch.setattr(attempts, "PAUSE_S", 0.0)
    (file,) = lab.root.glob("page_errors/*=*/*.parquet")
    file.unlink()
    with pytest.raises(StorageRefused, match=r"has no file page_errors/day=a/.+ any more"):
        sync(lab, "delta")


@pytest.mark.parametrize("format", FORMATS)
def test_a_record_that_cannot_be_read_stops_its_own_load_only(lab: TaskLab, format: str) -> None:
    damaged, other = land(lab, "run-1", "a"), land(lab, "run-2", "b")
    add(lab, format)
    record = lab.root / "_weblake" / "ledger" / f"{damaged}.done.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:-1])
    for _ in range(2):
        with pytest.raises(StorageRefused, match=f"{damaged}.done.json of .+ cannot be read"):
            sync(lab, format)
        assert rows(lab, format) == {other: 3}
    with pytest.raises(StorageRefused, match=f"{damaged}.done.json of .+ cannot be read"):
        tables.status(lab.root, table_options=options_of(lab, format))
    record.write_bytes(whole)
    assert sync(lab, format).added == (damaged,)
    assert rows(lab, format) == {damaged: 3, other: 3}


def test_a_damaged_record_stops_its_own_load_only_in_a_merged_table(lab: TaskLab) -> None:
    """There, the records of loads are read before the batches, too: which of them replace others, and their bytes."""
    for number in range(2):
        lab.run = f"run-{number}"
        lab.land(RETRY)
    add(lab, "delta")
    sync(lab, "delta")
    assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
    new = []
    for number in range(2):  # each replaces a load
        lab.run = f"run-{number}"
        new.append(lab.land(CLEAR).receipt.load_id)
    (lab.root / "_weblake" / "ledger" / f"{new[0]}.done.json").write_bytes(b"{")
    with pytest.raises(StorageRefused, match=rf"{new[0]}\.done\.json of .+ cannot be read"):
        sync(lab, "delta")
    assert rows(lab, "delta")[new[1]] == 3


def test_a_table_that_fails_does_not_keep_the_others_from_their_loads(lab: TaskLab) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    add(lab, "delta")
    with pytest.raises(StorageRefused, match="The Iceberg catalog 'lake' cannot be used"):
        tables.sync(lab.root)
    assert rows(lab, "delta") == {load_id: 3}


def test_each_table_that_fails_is_named(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    add(lab, "iceberg")
    add(lab, "delta")
    shutil.rmtree(lab.root / "documents" / "_delta_log")
    with pytest.raises(StorageRefused) as refused:
        tables.sync(lab.root)
    assert "The Iceberg catalog 'lake' cannot be used" in str(refused.value)
    assert f"Another table is not up to date either: {lab.root / 'documents'} has no Delta" in str(refused.value)


@pytest.mark.smoke
@pytest.mark.parametrize("format", FORMATS)
def test_another_sync_commits_first(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits between our look at the table and our commit: the same load, and another one."""
    ours = land(lab, "run-1", "a")
    add(lab, format)
    table = kind_of(format)
    real = table.commit

    def is_late(self: Any, *args: Any) -> None:
        monkeypatch.setattr(table, "commit", real)
        land(lab, "run-2", "b")
        sync(lab, format)
        real(self, *args)

    monkeypatch.setattr(table, "commit", is_late)
    sync(lab, format)
    found = rows(lab, format)
    assert found[ours] == 3
    assert set(found.values()) == {3}
    assert len(found) == 2


def test_a_library_that_is_missing_does_not_keep_the_other_tables_from_their_loads(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    add(lab, "delta")
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(FeatureMissing, match="needs pyiceberg"):
        tables.sync(lab.root)
    assert rows(lab, "delta") == {load_id: 3}


@pytest.mark.parametrize("keep_days", [0, 7])
def test_a_load_that_is_retired_while_it_is_added(
    lab: TaskLab, keep_days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log names it as taken out, so it is never there beside its replacement, whether its file is or not."""
    older = land(lab, "run-1", "a")
    add(lab, "delta", keep_days=keep_days)
    real = delta.DeltaLakeTable.commit
    newer = []

    def meanwhile(self: Any, *args: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "commit", real)
        newer.append(land(lab, "run-2", "a"))
        sync(lab, "delta")
        real(self, *args)

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", meanwhile)
    assert sync(lab, "delta").added == ()
    assert rows(lab, "delta") == {newer[0]: 3}
    assert lab.visible == sorted(newer if keep_days == 0 else [older, *newer])


def test_a_load_that_is_retired_right_after_it_was_added_is_taken_out_by_the_same_sync(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files may be gone when the next sync runs, and readers of the table would fail until then."""
    older = {land(lab, f"run-1{day}", day) for day in "ab"}
    add(lab, "delta", keep_days=0)
    counts = row_counts(lab, "delta", monkeypatch)
    real = delta.DeltaLakeTable.commit
    newer = []

    def committed_first(self: Any, *args: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "commit", real)
        real(self, *args)
        newer.extend(land(lab, f"run-2{day}", day) for day in "ab")

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", committed_first)
    done = sync(lab, "delta")
    assert (set(done.added), set(done.removed)) == (older | set(newer), older)
    assert counts == [6, 6], "the loads in their place are added in the same commit"
    assert rows(lab, "delta") == dict.fromkeys(newer, 3)
    assert sync(lab, "delta").added == ()
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


def test_the_entry_of_a_retirement_that_is_not_on_record_yet_stays(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A landing creates the entry first: a sync that removed it would leave the rows of the old load in the table."""
    land(lab, "run-1", "a")
    add(lab, "delta")
    real = Ledger.record_retirement

    def synced_first(*args: Any, **more: Any) -> None:
        sync(lab, "delta")
        real(*args, **more)

    monkeypatch.setattr(Ledger, "record_retirement", synced_first)
    newer = land(lab, "run-2", "a")
    sync(lab, "delta")
    assert rows(lab, "delta") == {newer: 3}


def test_a_sync_that_is_killed_before_it_takes_out_a_load_leaves_an_entry(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing that retires the load has listed the tables before this one was there, and is killed as well."""
    add_first(lab)
    load_id = land(lab, "run-1", "a")
    real = delta.DeltaLakeTable.commit

    def killed(self: Any, added: Any, removed: Any) -> None:
        if removed:
            raise Crash
        real(self, added, removed)
        lab.dataset.ledger.record_retirement(load_id, {}, at=utc_now(), by="f" * 16, version=1)

    with monkeypatch.context() as patched:
        patched.setattr(delta.DeltaLakeTable, "commit", killed)
        with pytest.raises(Crash):
            sync(lab, "delta")
    assert load_id in rows(lab, "delta")
    assert sync(lab, "delta").removed == (load_id,)


def add_first(lab: TaskLab) -> None:
    """Add a table, and commit the loads that landed before it."""
    land(lab, "run-0", "0")
    add(lab, "delta")
    sync(lab, "delta")


@pytest.mark.system
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_on_object_storage(
    lab: TaskLab, s3_root: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings come from the environment, as those of the dataset do."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    named: dict[str, Any] = {}
    options = None
    if format == "iceberg":  # the endpoint is that of the environment
        named = {"catalog": "lake", "identifier": "web.documents"}
        options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{s3_root}-warehouse"}
        options |= {"s3.region": "us-east-1"}
    lab.dataset = open_dataset(s3_root)
    first = land(lab, "run-1", "a b/ü%")
    tables.add(s3_root, format, keep_days=0, table_options=options, **named)
    (done,) = tables.sync(s3_root, table_options=options)
    assert done.added == (first,)
    second = land(lab, "run-2", "a b/ü%")
    (done,) = tables.sync(s3_root, table_options=options)
    assert (done.added, done.removed, done.deleted_files) == ((second,), (first,), 1)
    (status,) = tables.status(s3_root, table_options=options)
    assert (status.in_step, status.rows) == (True, 3)


@pytest.mark.system
@pytest.mark.parametrize("format", FORMATS)
def test_three_processes_that_are_killed(lab: TaskLab, format: str) -> None:
    """Processes sync without end, and one after the other is killed and replaced, while loads land."""
    land(lab, "run-0", "day-0")
    add(lab, format, keep_days=0)
    sync_and_kill(
        lab.root,
        options_of(lab, format),
        errors=lab.root.parent / "errors",
        land=lambda number: land(lab, f"run-{number}", f"day-{number % 5}"),
        done=lambda: not lab.dataset.storage.list("_weblake/uncommitted"),
    )
    sync(lab, format, everything=True)
    found = rows(lab, format)
    assert Counter(found.values()) == {3: 5}
    (status,) = tables.status(lab.root, table_options=options_of(lab, format))
    assert status.in_step, json.dumps(status.to_dict())


@proves(
    "2.10",
    at="src/weblake/tables/kept_files.py",
    line="return gone is not None and now - read_time(gone.at) >= days",
    becomes="return gone is not None",
    case="days ago",
)
@pytest.mark.parametrize("retired", [timedelta(days=-3), timedelta(hours=1)], ids=["days ago", "by a clock ahead"])
def test_files_are_kept_for_their_days_after_the_table_has_taken_them_out(lab: TaskLab, retired: timedelta) -> None:
    """And not after their retirement, which a table may learn late. Tables of usage never name them."""
    land(lab, "run-1", "a")
    tables.add(lab.root, "delta", table="usage_periods")
    add(lab, "delta", keep_days=1)
    sync(lab, "delta", name="documents")
    land(lab, "run-2", "a")
    date_record(lab, "kept/*.json", retired)
    assert sync(lab, "delta", name="documents").deleted_files == 0
    date_record(lab, "committed/*/*.removed.json", timedelta(hours=-23))
    assert sync(lab, "delta", name="documents").deleted_files == 0
    assert len(lab.visible) == 2
    date_record(lab, "committed/*/*.removed.json", timedelta(hours=-25))
    assert sync(lab, "delta", name="documents").deleted_files == 1
    assert len(lab.visible) == 1


def date_record(lab: TaskLab, pattern: str, from_now: timedelta) -> None:
    """Write another time into a record."""
    (record,) = (lab.root / "_weblake").glob(pattern)
    at = (datetime.now(timezone.utc) + from_now).isoformat()
    record.write_text(json.dumps(json.loads(record.read_text()) | {"at": at}))


def test_a_table_that_is_registered_again_keeps_its_files_until_it_has_taken_them_out(lab: TaskLab) -> None:
    """Its registration is younger than the retirement of a load that it has."""
    old = land(lab, "run-1", "a")
    add(lab, "delta", keep_days=0)
    add(lab, "iceberg", keep_days=0)
    for format in FORMATS:
        tables.sync(lab.root, format=format, table_options=options_of(lab, format))
    tables.remove(lab.root, "delta")
    new = land(lab, "run-2", "a")
    add(lab, "delta", keep_days=0)
    tables.sync(lab.root, format="iceberg", table_options=options_of(lab, "iceberg"))
    assert lab.visible == sorted([old, new])
    assert rows(lab, "delta") == {old: 3}
    tables.sync(lab.root, format="delta")
    assert rows(lab, "delta") == {new: 3}
    assert lab.visible == [new]


def test_a_table_that_was_created_again_is_refused(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    shutil.rmtree(lab.root / "documents" / "_delta_log")
    delta.open_table(open_dataset(lab.root).storage, "documents", create=True)
    for call in (tables.sync, tables.status, partial(tables.add, format="delta")):
        with pytest.raises(StorageRefused, match="is another one than the registered one"):
            call(lab.root)
    tables.remove(lab.root, "delta")
    add(lab, "delta")
    assert sync(lab, "delta").rows == 3


@pytest.mark.parametrize(("conflicts", "tries"), [("commit", 30), ("columns", 0)])
def test_attempts_at_a_table_that_others_change_all_the_time_come_to_an_end(
    monkeypatch: pytest.MonkeyPatch, conflicts: str, tries: int
) -> None:
    monkeypatch.setattr(attempts, "PAUSE_S", 0.0)
    lake: Any = SimpleNamespace(version=0, uuid="1", location="here")

    def refresh() -> None:
        lake.version += 1
        if conflicts == "columns":
            raise CommitConflict("another program has changed the columns.")

    lake.refresh = refresh
    of_commit = attempts.Attempts(SimpleNamespace(format="delta", name="documents", uuid="1"), lake)  # type: ignore[arg-type]
    tried: list[int] = []

    def commit() -> None:
        for attempt in of_commit:
            tried.append(attempt)
            of_commit.failed = "another program has committed first"

    with pytest.raises(StorageRefused, match=r"documents in 30 attempts: another program has [a-z ]+\.") as caught:
        commit()
    assert (len(tried), lake.version) == (tries, 30)
    assert "sync again later" in str(caught.value)


def test_a_load_without_a_file_in_the_table_adds_no_rows() -> None:
    table: Any = SimpleNamespace(table="documents")
    receipt = Receipt("1", "crawl", "j", files=(LandedFile("page_errors/load_date=2026-11-21/1.parquet", 3, 900),))
    assert formats.file_of(table, "1", receipt) == LoadFile("1", None, 0, 0, {})
    errors: Any = SimpleNamespace(table="page_errors")
    found = formats.file_of(errors, "1", receipt)
    assert (found.rows, found.bytes, found.keys) == (3, 900, {"load_date": "2026-11-21"})
