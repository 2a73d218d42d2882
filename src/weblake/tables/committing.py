"""Commits to a table what has landed and what was retired since its last sync; each load exactly once.

    loads that wait for the table -> their records -> the table's log: which are in it -> one commit -> on record

The log of the table is the truth: before each attempt the table is read again, and a load that its log names is not
added again. The records under `_weblake/committed` remember it after the log's entries have expired. A process may end
between any two steps: the next sync finds what is done. Any number of syncs may run at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from weblake.dataset import ledger_listing
from weblake.dataset.registered_tables import (
    ADDED,
    REMOVED,
    RegisteredTable,
    TableRecords,
    mark_uncommitted,
)
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.tables import batches, waiting_loads
from weblake.tables.attempts import Attempts
from weblake.tables.changes import append_only_error
from weblake.tables.formats import CommitConflict, LakeTable, LoadFile, TableResult
from weblake.tables.waiting_loads import WaitingLoad

#: Loads of a batch from which on the records of all loads are listed, 1,000 with a request, and not read one by one.
LISTED_FROM = 100


@dataclass(frozen=True, slots=True)
class SyncResult(TableResult):
    """What a sync has committed to one table, and the table afterwards."""

    #: Ids of the loads that this sync has added and taken out. Of usage_periods and activity: the paths of the files
    #: whose content it has added, and of those whose earlier content it has taken out.
    added: tuple[str, ...]
    removed: tuple[str, ...]
    #: Rows of the added loads or files.
    rows: int
    #: Rows of the table after the sync.
    table_rows: int
    #: Files of retired loads that were deleted, because no table needs them any more.
    deleted_files: int = 0


def sync_table(dataset: Dataset, table: RegisteredTable, lake: LakeTable, *, everything: bool = False) -> SyncResult:
    """Commit the loads that one table lacks, take out the retired ones, and return what was done.

    `everything`: look at each load of the ledger, and not only at those that have an entry.

    Raises:
        StorageRefused: The table was changed so that files cannot be added; a record of a load cannot be read, or the
            table is append-only and a load has to be taken out, and all other loads are committed; or other programs
            committed at each of TRIES attempts.
    """
    records = TableRecords(dataset.ledger)
    first = not records.is_complete(table)
    added: list[LoadFile] = []
    removed: list[str] = []
    entries = {load_id: frozenset(found) for load_id, found in records.uncommitted(table).items()}
    divided = batches.with_entry(dataset, table, lake, entries)
    if first or everything:
        divided = chain(divided, batches.without_entry(dataset, table, entries))
    unreadable: dict[str, StorageRefused] = {}
    held: set[str] = set()
    for batch in divided:
        new, gone = _commit(dataset, records, table, lake, batch, unreadable, held)
        added += new
        removed += gone
    for error in unreadable.values():  # the other loads are committed
        raise error
    if held:
        raise append_only_error(lake.location, held)
    if first:
        records.record_complete(table)
    return SyncResult(
        format=table.format,
        table=table.table,
        identifier=table.identifier,
        location=lake.location,
        version=lake.version,
        added=tuple(file.load_id for file in added),
        removed=tuple(removed),
        rows=sum(file.rows for file in added),
        table_rows=lake.count_rows(),
    )


def _commit(
    dataset: Dataset,
    records: TableRecords,
    table: RegisteredTable,
    lake: LakeTable,
    batch: batches.Batch,
    unreadable: dict[str, StorageRefused],
    held: set[str],
) -> tuple[list[LoadFile], list[str]]:
    """Commit a batch of loads; return the files that were added and the loads that were taken out by this process.

    A load with an unreadable record is left out, with its error in `unreadable`. A load whose rows an append-only table
    has is left out, and in `held`, with the load in its place: readers would see both.
    """
    mine: tuple[list[LoadFile], list[str]] = ([], [])
    attempts = Attempts(table, lake)
    for _ in attempts:
        # After the table: a load that is retired later is taken out later.
        loads = waiting_loads.read(dataset, table, batch, unreadable)
        in_table, out = _in_log(dataset, records, table, lake, loads)
        current = waiting_loads.read_current(dataset, table, loads, in_table - out, unreadable)
        loads = [*loads, *current]
        _look_up(dataset, records, table, lake, current, in_table, out)
        replaced = waiting_loads.replaced_by(loads, in_table | out)
        if replaced:
            absent = sorted(replaced.difference(load.file.load_id for load in loads))
            others = waiting_loads.read_replaced(dataset, table, absent, unreadable)
            _look_up(dataset, records, table, lake, others, in_table, out)
            loads = waiting_loads.as_retired([*loads, *others], replaced)
        before = {ADDED: frozenset(in_table), REMOVED: frozenset(out)}
        add = [load.file for load in loads if not load.retired and load.file.load_id not in in_table | out]
        remove = [
            load.file if load.file.load_id in in_table else replace(load.file, path=None)
            for load in loads
            if load.retired
            and load.file.load_id not in out
            and (REMOVED in load.entries or load.file.load_id in in_table)
        ]
        stay = {file.load_id for file in remove if file.path is not None} if lake.append_only else set()
        if stay:
            waiting = waiting_loads.with_later_ones(dataset, stay, loads)
            add = [file for file in add if file.load_id not in waiting]
            remove = [file for file in remove if file.load_id not in stay]
        if add or remove:
            try:
                lake.commit(add, remove)
            except CommitConflict as conflict:
                attempts.failed = str(conflict)
                continue
            except StorageRefused as error:
                if not _deleted_meanwhile(dataset, add):
                    raise
                attempts.failed = error.message
                continue
            mine = (mine[0] + [file for file in add if file.path], mine[1] + [file.load_id for file in remove])
        held |= stay
        in_table |= {file.load_id for file in add}
        out |= {file.load_id for file in remove}
        _record(records, table, lake, loads, {ADDED: in_table, REMOVED: out}, before)
        # A load that was retired while it was added: its files may be gone already.
        batch = _retired_meanwhile(dataset, table, add)
        if not batch:
            return mine
    raise AssertionError("the last attempt returns or raises")


def _deleted_meanwhile(dataset: Dataset, add: Sequence[LoadFile]) -> bool:
    """Return whether another sync has taken out loads that were to be added, and has deleted their files.

    Raises:
        StorageRefused: The file of a load that counts is missing.
    """
    gone = [file for file in add if file.path and not dataset.exists(file.path)]
    for file in gone:
        if dataset.ledger.retired(file.load_id) is None:
            raise StorageRefused(
                f"{dataset.url} has no file {file.path} any more: no table can get load {file.load_id}.",
                hint="Restore it from a backup. VACUUM deletes the files of loads that were not synced yet.",
            )
    return bool(gone)


def _is_committed(records: TableRecords, table: RegisteredTable, what: str, load_id: str) -> bool:
    return records.committed(table, load_id, what) is not None


def _in_log(
    dataset: Dataset, records: TableRecords, table: RegisteredTable, lake: LakeTable, loads: Sequence[WaitingLoad]
) -> tuple[set[str], set[str]]:
    """Return the loads that the table has added, and those that it has taken out.

    By its log, or by our records; by its rows where the log has forgotten what a killed sync did not record.
    """
    ids = [load.file.load_id for load in loads]
    found = {ADDED: lake.added(ids), REMOVED: lake.removed(ids)}
    unknown = {what: [load_id for load_id in ids if load_id not in known] for what, known in found.items()}
    many = any(len(load_ids) >= LISTED_FROM for load_ids in unknown.values())
    listed = records.all_committed(table) if many else None
    for what, load_ids in unknown.items():
        if listed is not None:
            found[what] |= listed[what].intersection(load_ids)
            continue
        on_record = ledger_listing.read_by_id(dataset.ledger, load_ids, partial(_is_committed, records, table, what))
        found[what].update(load_id for load_id, there in on_record if there)
    files = {load.file.load_id for load in loads if load.file.path is not None}
    found[ADDED] |= lake.with_rows(sorted(files - found[ADDED] - found[REMOVED]))
    return found[ADDED], found[REMOVED]


def _look_up(
    dataset: Dataset,
    records: TableRecords,
    table: RegisteredTable,
    lake: LakeTable,
    loads: Sequence[WaitingLoad],
    in_table: set[str],
    out: set[str],
) -> None:
    """Add to `in_table` and `out` those of the loads that the table has added, and that it has taken out."""
    if loads:
        for found, more in zip((in_table, out), _in_log(dataset, records, table, lake, loads), strict=True):
            found |= more


def _record(
    records: TableRecords,
    table: RegisteredTable,
    lake: LakeTable,
    loads: Sequence[WaitingLoad],
    committed: Mapping[str, set[str]],
    before: Mapping[str, frozenset[str]],
) -> None:
    """Record what the table has committed, then remove the entries of these loads.

    What an earlier sync has committed (`before`) it may have recorded, too, before it was killed: that is read first.
    Syncs that are killed one after the other, each during its records, so come to an end.
    """
    ids = {load.file.load_id for load in loads}
    for what, load_ids in committed.items():
        new = sorted(ids & load_ids - before[what])
        records.record_committed(table, new, what, lake.version)
        records.record_committed(table, sorted(ids & before[what]), what, lake.version, look=True)
    in_table, out = committed[ADDED], committed[REMOVED]
    done = {(load_id, ADDED) for load_id in ids & (in_table | out)} | {(load_id, REMOVED) for load_id in ids & out}
    # An entry whose load was retired before the table could add it: nothing has to be added any more.
    done |= {(load.file.load_id, ADDED) for load in loads if load.retired and REMOVED not in load.entries}
    entries = {(load.file.load_id, what) for load in loads for what in load.entries}
    records.forget_uncommitted(table, sorted(done & entries))


def _retired_meanwhile(
    dataset: Dataset, table: RegisteredTable, added: Sequence[LoadFile]
) -> dict[str, frozenset[str]]:
    """Return those of the added loads that are retired now, with an entry to take them out."""
    found = {}
    for load_id, gone in ledger_listing.read_by_id(
        dataset.ledger, [file.load_id for file in added], dataset.ledger.retired
    ):
        if gone is not None:
            mark_uncommitted(dataset.storage, [table.table_id], load_id, REMOVED)
            found[load_id] = frozenset({REMOVED})
    return found
