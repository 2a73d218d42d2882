"""A sync while a replacement is unfinished: the new load is on record, and the retirement of the old one is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from catalogue import proves
from crash_steps import Crash
from deltalake import DeltaTable
from table_lab import FORMATS, add, land, land_run, loads_by_reference, options_of, row_counts, rows, sync
from task_lab import CLEAR, TaskLab

from weblake import tables
from weblake.dataset.ledger import Ledger
from weblake.dataset.registered_tables import ADDED, TableRecords
from weblake.errors import StorageRefused
from weblake.loads import recovery
from weblake.tables import batches

pytestmark = pytest.mark.usefixtures("short_pauses")


def before_the_retirement(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Have the next landing do something between its own done record and the retirement of the older load."""
    real = recovery.retire

    def retire(*args: Any, **more: Any) -> None:
        monkeypatch.setattr(recovery, "retire", real)
        do()
        real(*args, **more)

    monkeypatch.setattr(recovery, "retire", retire)


def land_and_die(lab: TaskLab, run: str, day: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Land a load, and end before the older one is retired."""

    def crash() -> None:
        raise Crash

    before_the_retirement(monkeypatch, crash)
    with pytest.raises(Crash):
        land(lab, run, day)


@proves(
    "2.10",
    at="src/weblake/tables/committing.py",
    line="replaced = waiting_loads.replaced_by(loads, in_table | out)",
    becomes="replaced: set[str] = set()",
    case="delta-synced",
)
@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_sync_before_the_retirement_replaces_the_load(
    lab: TaskLab, format: str, synced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the table has the old load, or would get it in the same sync: readers never see both."""
    other = land(lab, "run-0", "b")
    add(lab, format, keep_days=0)
    sync(lab, format)
    old = land(lab, "run-1", "a")
    if synced:
        sync(lab, format)
    found: list[Any] = []

    def sync_twice() -> None:
        found.append(sync(lab, format))
        found.append(sync(lab, format, everything=True))
        found.append(rows(lab, format))
        found.extend(tables.status(lab.root, table_options=options_of(lab, format)))

    before_the_retirement(monkeypatch, sync_twice)
    new = land(lab, "run-2", "a")
    first, again, there, status = found
    assert there == {new: 3, other: 3}
    assert (first.added, first.removed) == ((new,), (old,))
    assert (again.added, again.removed, again.version) == ((), (), first.version)
    assert (status.in_step, status.loads) == (True, 2)
    assert sync(lab, format).deleted_files == 1
    assert rows(lab, format) == {new: 3, other: 3}
    assert lab.visible == sorted([new, other])
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_landing_that_is_killed_before_the_retirement(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next load of the slot finishes it; the table has the newest load after each sync."""
    old = land(lab, "run-1", "a")
    add(lab, format, keep_days=0)
    sync(lab, format)
    land_and_die(lab, "run-2", "a", monkeypatch)
    (second,) = sync(lab, format).added
    assert rows(lab, format) == {second: 3}
    assert lab.visible == sorted([old, second]), "the landing did not retire it, so its file stays"
    third = land(lab, "run-3", "a")
    sync(lab, format)
    assert rows(lab, format) == {third: 3}
    assert lab.visible == [third]


@proves(
    "2.10",
    at="src/weblake/tables/committing.py",
    line="loads = [*loads, *current]",
    becomes="pass",
    case="2-delta",
)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("replacements", [1, 2])
def test_a_replacement_after_the_loads_were_listed_is_one_commit(
    lab: TaskLab, format: str, replacements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of all loads has the old load only, and its batch is read after the replacement."""
    land(lab, "run-0", "b")
    old = land(lab, "run-1", "a")
    add(lab, format)
    sync(lab, format)
    real = batches.without_entry
    newer: list[str] = []

    def without_entry(*args: Any) -> Iterator[batches.Batch]:
        for batch in real(*args):
            newer.extend(land(lab, f"run-2{number}", "a") for number in range(replacements))
            yield batch

    monkeypatch.setattr(batches, "without_entry", without_entry)
    counts = row_counts(lab, format, monkeypatch)
    done = sync(lab, format, everything=True)
    assert (done.added, set(done.removed)) == ((newer[-1],), {old, *newer[:-1]})
    assert counts == [6]
    assert newer[-1] in rows(lab, format)
    monkeypatch.setattr(batches, "without_entry", real)
    assert sync(lab, format).added == ()
    assert tables.status(lab.root, table_options=options_of(lab, format))[0].in_step
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@pytest.mark.parametrize("first", ["old", "new"])
def test_a_replacement_in_two_commits_is_never_there_twice(
    lab: TaskLab, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No entry tells that the loads belong together, so they may be in different commits of a large backlog."""
    land(lab, "run-0", "b")
    add(lab, "delta")
    sync(lab, "delta")
    old = land(lab, "run-1", "a")
    land_and_die(lab, "run-2", "a", monkeypatch)

    def in_order(self: TableRecords, table: tables.RegisteredTable) -> dict[str, set[str]]:
        found = uncommitted(self, table)
        return {
            load_id: found[load_id] for load_id in sorted(found, key=lambda each: (each == old) != (first == "old"))
        }

    uncommitted = TableRecords.uncommitted
    monkeypatch.setattr(TableRecords, "uncommitted", in_order)
    monkeypatch.setattr(batches, "LOADS_PER_COMMIT", 1)
    counts = row_counts(lab, "delta", monkeypatch)
    sync(lab, "delta")
    assert set(counts) == {6}
    assert old not in rows(lab, "delta")


def test_a_replaced_load_that_is_on_record_after_its_replacement_is_not_added(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its landing is slow: a newer one of the slot has overtaken it, and has not retired it yet."""
    other = land(lab, "run-0", "b")
    add(lab, "delta")
    sync(lab, "delta")
    real, found = Ledger.record_done, list[Any]()

    def is_slow(self: Ledger, *args: Any, **more: Any) -> Any:
        def record_and_sync() -> None:
            found.append(sync(lab, "delta"))
            found.append(real(self, *args, **more))
            found.append(sync(lab, "delta"))
            found.append(rows(lab, "delta"))

        monkeypatch.setattr(Ledger, "record_done", real)
        before_the_retirement(monkeypatch, record_and_sync)
        newer.append(land(lab, "run-2", "a"))
        return found[1]

    newer: list[str] = []
    monkeypatch.setattr(Ledger, "record_done", is_slow)
    land(lab, "run-1", "a")
    assert (found[0].added, found[2].added) == ((newer[0],), ())
    assert found[3] == {newer[0]: 3, other: 3}
    sync(lab, "delta")
    assert rows(lab, "delta") == {newer[0]: 3, other: 3}
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


def test_a_slot_that_is_replaced_twice_after_the_list_of_entries(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync knows neither entry of a retirement: the load in between tells what the newest one replaces, too."""
    land(lab, "run-1", "a")
    add(lab, "delta", keep_days=0)
    sync(lab, "delta")
    land(lab, "run-2", "a")
    newest = land(lab, "run-3", "a")
    real = TableRecords.uncommitted

    def without_retirements(self: TableRecords, table: tables.RegisteredTable) -> dict[str, set[str]]:
        return {load_id: {ADDED} for load_id, found in real(self, table).items() if ADDED in found}

    with monkeypatch.context() as patched:
        patched.setattr(TableRecords, "uncommitted", without_retirements)
        assert sync(lab, "delta").added == (newest,)
    assert rows(lab, "delta") == {newest: 3}
    sync(lab, "delta")
    assert lab.visible == [newest]
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


def test_a_damaged_record_of_the_old_load_is_told(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not keep the new load from the table, as a damaged record of any other load does not."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    land_and_die(lab, "run-2", "a", monkeypatch)
    record = lab.root / "_weblake" / "ledger" / f"{old}.done.json"
    whole = record.read_bytes()
    record.write_bytes(b"{")
    with pytest.raises(StorageRefused, match=rf"{old}\.done\.json of .+ cannot be read"):
        sync(lab, "delta")
    assert len(rows(lab, "delta")) == 2
    record.write_bytes(whole)
    new = land(lab, "run-3", "a")
    sync(lab, "delta")
    assert rows(lab, "delta") == {new: 3}


def test_a_damaged_record_of_a_retirement_is_told_and_the_load_is_replaced(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is in a backlog of several commits, where the record tells which loads belong together."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    new = land(lab, "run-2", "a")
    (lab.root / "_weblake" / "ledger" / f"{old}.retired.json").write_bytes(b"{")
    monkeypatch.setattr(batches, "LOADS_PER_COMMIT", 1)
    with pytest.raises(StorageRefused, match=rf"{old}\.retired\.json of .+ cannot be read"):
        sync(lab, "delta")
    assert rows(lab, "delta") == {new: 3}


def test_an_append_only_table_waits_for_both(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    table = DeltaTable(lab.root / "documents")
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    land_and_die(lab, "run-2", "a", monkeypatch)
    for _ in range(2):
        with pytest.raises(StorageRefused, match=f"is append-only .+ the rows of {old} were replaced"):
            sync(lab, "delta")
        assert rows(lab, "delta") == {old: 3}
    DeltaTable(lab.root / "documents").alter.set_table_properties({"delta.appendOnly": "false"})
    done = sync(lab, "delta")
    assert done.removed == (old,)
    assert rows(lab, "delta") == dict.fromkeys(done.added, 3)


def test_other_loads_are_not_copied_into_a_merged_delta_table(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a merged file are taken out by a copy, and deltalake holds in memory what it copies."""
    for number in range(2):
        land_run(lab, number)
    add(lab, "delta")
    sync(lab, "delta")
    assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
    others = {land_run(lab, number) for number in (2, 3)}
    synced: list[tables.SyncResult] = []
    before_the_retirement(monkeypatch, lambda: synced.append(sync(lab, "delta")))
    new = land_run(lab, 0, CLEAR)
    assert set(synced[0].added) == {new, *others}
    by_reference = loads_by_reference(DeltaTable(lab.root / "documents"))
    assert others <= by_reference
    assert new not in by_reference
    assert list(rows(lab, "delta").values()) == [3] * 4
