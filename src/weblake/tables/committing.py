"""Commits to a table what has landed and what was retired since its last sync; each load exactly once.

    loads that wait for the table -> their records -> the table's log: which are in it -> one commit -> on record

The log of the table is the truth: before each attempt the table is read again, and a load that its log names is not
added again. The records under `_weblake/committed` remember it after the log's entries have expired. A process may end
between any two steps: the next sync finds what is done. Any number of syncs may run at the same time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from weblake.compat import read_time
from weblake.dataset import layout, ledger_listing, parallel
from weblake.dataset.ledger_listing import DONE, INTENT
from weblake.dataset.registered_tables import (
    ADDED,
    REMOVED,
    KeptFiles,
    RegisteredTable,
    TableRecords,
    kept_loads,
    mark_uncommitted,
)
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.remedies import Remedy
from weblake.tables.formats import CommitConflict, LakeTable, LoadFile, TableResult

T = TypeVar("T")
#: Loads of one commit, with their entries.
_Batch = Mapping[str, frozenset[str]]

#: Loads of one commit.
LOADS_PER_COMMIT = 1000
#: Bytes of the files that one commit adds if it has to copy their rows: deltalake holds these in memory, several times.
COPIED_PER_COMMIT = 64 << 20
#: Loads of a batch from which on the records of all loads are listed, 1,000 with a request, and not read one by one.
LISTED_FROM = 100
#: Attempts of one commit, while other programs commit at the same time.
TRIES = 30
#: Attempts that fail although no other program has changed the table: the catalog or the storage fails.
UNCHANGED_TRIES = 8
#: Longest pause between two attempts, in seconds.
PAUSE_S = 2.0


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


@dataclass(frozen=True, slots=True)
class _Load:
    """A load that may have to be added or taken out."""

    file: LoadFile
    retired: bool
    #: The entries of the load under `_weblake/uncommitted`.
    entries: frozenset[str]


def sync_table(dataset: Dataset, table: RegisteredTable, lake: LakeTable, *, everything: bool = False) -> SyncResult:
    """Commit the loads that one table lacks, take out the retired ones, and return what was done.

    `everything`: look at each load of the ledger, and not only at those that have an entry.

    Raises:
        StorageRefused: The table is another one than the registered one; a record of a load cannot be read, and all
            other loads are committed; or other programs committed at each of TRIES attempts.
    """
    records = TableRecords(dataset.ledger)
    check_same(table, lake)
    first = not records.is_complete(table)
    added: list[LoadFile] = []
    removed: list[str] = []
    entries = {load_id: frozenset(found) for load_id, found in records.uncommitted(table).items()}
    batches = _batches_with_entry(dataset, table, lake, entries)
    if first or everything:
        batches = chain(batches, _batches_without_entry(dataset, table, entries))
    unreadable: dict[str, StorageRefused] = {}
    for batch in batches:
        new, gone = _commit(dataset, records, table, lake, batch, unreadable)
        added += new
        removed += gone
    for error in unreadable.values():  # the other loads are committed
        raise error
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


def delete_kept_files(dataset: Dataset, opened: Sequence[tuple[RegisteredTable, LakeTable]] = ()) -> int:
    """Delete the files of retired loads that no table names any more, after their days; return how many.

    The tables are read after the list of files: one that was registered meanwhile keeps the files that it names. So
    does one of the opened tables whose current version names a file that it has taken out: another program has
    restored an older version.
    """
    records, storage = TableRecords(dataset.ledger), dataset.storage
    loads = sorted(kept_loads(storage))
    tables = [table for table in records.tables() if table.table in layout.LOAD_TABLES] if loads else []
    now = datetime.now(timezone.utc)

    def past(load_id: str) -> KeptFiles | None:
        kept = records.kept(load_id)
        return kept if kept is not None and all(_is_past(records, table, kept, now) for table in tables) else None

    deletable = [(load_id, kept) for load_id, kept in _each(dataset, loads, past) if kept is not None]
    named = {
        f"{table.table}/{name}"
        for table, lake in (opened if deletable else ())
        if table.table in layout.LOAD_TABLES
        for name in lake.file_names()
    }
    deleted = 0
    for load_id, kept in deletable:
        if not named.isdisjoint(f"{name.partition('/')[0]}/{name.rpartition('/')[2]}" for name in kept.files):
            continue
        for name in kept.files:
            storage.delete(name)
            deleted += 1
        records.forget_kept(load_id)
    return deleted


def _is_past(records: TableRecords, table: RegisteredTable, kept: KeptFiles, now: datetime) -> bool:
    """Return whether a table took a load out longer ago than it keeps files, or was registered after that.

    A table that was registered later may have added the load all the same: it was removed and is registered again, or
    the clock of the machine that registered it is ahead.
    """
    if read_time(table.at) > read_time(kept.at) and records.committed(table, kept.load_id, ADDED) is None:
        return True
    days = timedelta(days=table.keep_days)
    if timedelta(0) <= now - read_time(kept.at) < days:  # no table has taken it out before: one request less
        return False
    gone = records.committed(table, kept.load_id, REMOVED)
    return gone is not None and now - read_time(gone.at) >= days


def _batches_with_entry(dataset: Dataset, table: RegisteredTable, lake: LakeTable, entries: _Batch) -> Iterator[_Batch]:
    """Divide the loads that have an entry into batches, one for each commit.

    A replaced load and the one in its place are in the same batch. If the table's own maintenance has merged files, a
    commit of such a pair copies the rows that it adds: these batches have few bytes, and come after the other loads.
    """
    replaced = [load_id for load_id, found in entries.items() if REMOVED in found]
    copies = bool(replaced) and lake.has_merged_files()
    if not copies and len(entries) <= LOADS_PER_COMMIT:
        replaced = []  # all are in one commit anyway
    current = dict(_each(dataset, replaced, partial(_current, dataset)))
    together: dict[str, list[str]] = {load_id: [] for load_id in entries}
    for load_id in entries:
        together.setdefault(current.get(load_id, load_id), []).append(load_id)
    pairs = set(current.values())
    bytes_of = dict(_each(dataset, sorted(pairs), partial(_bytes_of, dataset, table))) if copies else {}
    for kind in ([each for each in together if each not in pairs], [each for each in together if each in pairs]):
        batch, size = dict[str, frozenset[str]](), 0
        for load_id in kind:
            size += bytes_of.get(load_id, 0)
            if batch and (size > COPIED_PER_COMMIT or len(batch) + len(together[load_id]) > LOADS_PER_COMMIT):
                yield batch
                batch, size = {}, bytes_of.get(load_id, 0)
            batch |= {each: entries[each] for each in together[load_id]}
        if batch:
            yield batch


def _current(dataset: Dataset, load_id: str) -> str:
    """Return the load that is in the place of a replaced one; itself if a record cannot be read."""
    try:
        return dataset.ledger.standing(load_id)
    except StorageRefused:
        return load_id


def _bytes_of(dataset: Dataset, table: RegisteredTable, load_id: str) -> int:
    """Return the size of a load's file in the table; 0 if it has none, or its record cannot be read."""
    try:
        done = dataset.ledger.done(load_id)
    except StorageRefused:
        return 0
    return 0 if done is None else file_of(table, load_id, Receipt.from_dict(done.receipt)).bytes


def _batches_without_entry(dataset: Dataset, table: RegisteredTable, entries: _Batch) -> Iterator[_Batch]:
    """Yield the landed loads that have no entry, in batches.

    A load that has not landed by then gets an entry: its landing may have begun before the table was registered, and
    would not create one.
    """
    waiting = _landed_without_entry(dataset, table, entries)
    while batch := dict.fromkeys(islice(waiting, LOADS_PER_COMMIT), frozenset[str]()):
        yield batch


def _landed_without_entry(dataset: Dataset, table: RegisteredTable, entries: _Batch) -> Iterator[str]:
    for number, has in ledger_listing.steps(dataset.ledger).items():
        load_id = ledger_listing.id_of(number)
        if load_id in entries:
            continue
        if has & DONE:
            yield load_id
        elif has & INTENT:
            mark_uncommitted(dataset.storage, [table.table_id], load_id, ADDED)


def _commit(
    dataset: Dataset,
    records: TableRecords,
    table: RegisteredTable,
    lake: LakeTable,
    batch: _Batch,
    unreadable: dict[str, StorageRefused],
) -> tuple[list[LoadFile], list[str]]:
    """Commit a batch of loads; return the files that were added and the loads that were taken out by this process.

    A load with an unreadable record is left out, with its error in `unreadable`.
    """
    mine: tuple[list[LoadFile], list[str]] = ([], [])
    attempts = Attempts(table, lake)
    for _ in attempts:
        # After the table: a load that is retired later is taken out later.
        loads = _read(dataset, table, batch, unreadable)
        in_table, out = _in_log(dataset, records, table, lake, loads)
        before = {ADDED: frozenset(in_table), REMOVED: frozenset(out)}
        add = [load.file for load in loads if not load.retired and load.file.load_id not in in_table | out]
        remove = [
            load.file if load.file.load_id in in_table else replace(load.file, path=None)
            for load in loads
            if load.retired
            and load.file.load_id not in out
            and (REMOVED in load.entries or load.file.load_id in in_table)
        ]
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
        in_table |= {file.load_id for file in add}
        out |= {file.load_id for file in remove}
        _record(records, table, lake, loads, {ADDED: in_table, REMOVED: out}, before)
        # A load that was retired while it was added: its files may be gone already.
        batch = _retired_meanwhile(dataset, table, add)
        if not batch:
            return mine
    raise AssertionError("the last attempt returns or raises")


@dataclass(slots=True)
class Attempts:
    """The attempts of one commit: each reads the table again, after a random pause that grows.

    A commit fails because another program was first, or because the catalog or the storage fails; the errors of the
    libraries do not tell these apart, the version of the table does. So there are few attempts at an unchanged table.

    Raises:
        StorageRefused: From the iteration: all attempts have failed, or the table cannot be read, or was dropped and
            created again since the sync began.
    """

    table: RegisteredTable
    lake: LakeTable
    #: Why the last attempt has failed.
    failed: str = ""

    def __iter__(self) -> Iterator[int]:
        version: int | None = None
        unchanged = 0
        for attempt in range(TRIES):
            if attempt:
                time.sleep(random.random() * min(PAUSE_S, 0.05 * 2**attempt))  # noqa: S311 - jitter, no secret
            try:
                self.lake.refresh()
            except CommitConflict as conflict:
                self.failed = str(conflict)
                continue
            check_same(self.table, self.lake)
            unchanged = unchanged + 1 if self.lake.version == version else 0
            version = self.lake.version
            if unchanged >= UNCHANGED_TRIES:
                raise self._refused(
                    unchanged, "No other program has changed it: check its settings, its catalog and its storage."
                )
            yield attempt
        raise self._refused(TRIES, "Other programs write to the table: sync again later.")

    def _refused(self, tries: int, hint: str) -> StorageRefused:
        return StorageRefused(
            f"Nothing could be committed to the {self.table.format} table {self.table.name} in {tries} attempts: "
            f"{self.failed.rstrip('.')}.",
            hint=f"{hint} Nothing is lost or doubled.",
        )


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
    dataset: Dataset, records: TableRecords, table: RegisteredTable, lake: LakeTable, loads: Sequence[_Load]
) -> tuple[set[str], set[str]]:
    """Return the loads that the table has added, and those that it has taken out.

    By its log, or by our records; by its rows where the log has forgotten what a killed sync did not record.
    """
    ids = [load.file.load_id for load in loads]
    found = {ADDED: lake.added(ids), REMOVED: lake.removed(ids)}
    for what, known in found.items():
        unknown = [load_id for load_id in ids if load_id not in known]
        if len(unknown) >= LISTED_FROM:
            known |= records.all_committed(table, what).intersection(unknown)
            continue
        on_record = _each(dataset, unknown, partial(_is_committed, records, table, what))
        known.update(load_id for load_id, there in on_record if there)
    files = {load.file.load_id for load in loads if load.file.path is not None}
    found[ADDED] |= lake.with_rows(sorted(files - found[ADDED] - found[REMOVED]))
    return found[ADDED], found[REMOVED]


def _record(
    records: TableRecords,
    table: RegisteredTable,
    lake: LakeTable,
    loads: Sequence[_Load],
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
    for load_id, gone in _each(dataset, [file.load_id for file in added], dataset.ledger.retired):
        if gone is not None:
            mark_uncommitted(dataset.storage, [table.table_id], load_id, REMOVED)
            found[load_id] = frozenset({REMOVED})
    return found


def _read(
    dataset: Dataset,
    table: RegisteredTable,
    batch: _Batch,
    unreadable: dict[str, StorageRefused],
) -> list[_Load]:
    """Return the loads of a batch that have landed and whose records can be read."""

    def read(load_id: str) -> _Load | None:
        try:
            done = dataset.ledger.done(load_id)
            retired = done is not None and dataset.ledger.retired(load_id) is not None
        except StorageRefused as error:
            unreadable[load_id] = error
            return None
        if done is None:
            return None
        return _Load(file_of(table, load_id, Receipt.from_dict(done.receipt)), retired, batch[load_id])

    return [load for _, load in _each(dataset, batch, read) if load is not None]


def file_of(table: RegisteredTable, load_id: str, receipt: Receipt) -> LoadFile:
    """Return the file of a landed load in the dataset's table that a registered table is about."""
    for file in receipt.files:
        if file.path.startswith(f"{table.table}/"):
            return LoadFile(load_id, file.path, file.rows, file.bytes, layout.keys_of(file.path))
    return LoadFile(load_id, None, 0, 0, {})


def _each(dataset: Dataset, load_ids: Iterable[str], read: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    ids = list(load_ids)
    return zip(ids, parallel.in_order(ids, read, threads=parallel.readers(dataset.storage)), strict=True)


def check_same(table: RegisteredTable, lake: LakeTable) -> None:
    """Refuse a table that has the place or the name of the registered one and is another one.

    Raises:
        StorageRefused: The table was dropped and created again.
    """
    if lake.uuid != table.uuid:
        raise StorageRefused(
            f"The {table.format} table {table.name} at {lake.location} is another one than the registered one.",
            hint=Remedy(
                "It was dropped and created again: remove it with {remove_table}, and add it with {add_table}."
            ),
        )
