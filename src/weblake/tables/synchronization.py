"""Bring the tables of a dataset up to date: append the loads that a table lacks, and take out those that were replaced.

    the ledger's names - what the table has committed = loads that wait -> their records -> the table's log -> a commit

The log of the table is the truth: before each commit it is read again, then the records of the loads, and a load that
the log names is not added again. A process may end between any two steps, and any number of syncs may run at the same
time: the log lets one of two commits of the same load succeed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import arrow_files, ledger_listing, parallel
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import FeatureMissing, Remedy, StorageRefused, WeblakeError
from weblake.receipt import Receipt
from weblake.storage import RootPath
from weblake.tables.formats import (
    ADDED,
    REMOVED,
    Change,
    CommitConflict,
    LoadFile,
    TableResult,
    file_of,
    first_line,
)
from weblake.tables.registration import RegisteredTable, TableRecords, check_same, open_lake_table, select_tables

if TYPE_CHECKING:
    from weblake.tables.registration import LakeTable

#: Loads whose records are read together, and bytes of files from which on a commit takes no more loads: deltalake holds
#: about five times as much in memory.
LOADS_PER_COMMIT, BYTES_PER_COMMIT = 1_000, 64 << 20
#: Attempts of one commit, while other programs commit at the same time.
TRIES = 30
#: Attempts that fail although no other program has changed the table: the catalog or the storage fails.
UNCHANGED_TRIES = 8
#: Longest pause between two attempts, in seconds.
PAUSE_S = 2.0
#: Maximum number of loads that an error names.
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class SyncResult(TableResult):
    """What a sync has committed to one table, and the table afterwards."""

    #: Ids of the loads that this sync has added and taken out.
    added: tuple[str, ...]
    removed: tuple[str, ...]
    #: Rows of the added loads.
    rows: int
    #: Rows of the table after the sync.
    table_rows: int


def sync(
    root: RootPath,
    *,
    format: str | None = None,
    name: str | None = None,
    everything: bool = False,
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> list[SyncResult]:
    """Commit to the tables of a dataset what has landed and what was replaced; return what was done, by table.

    A sync can be repeated, killed and run several times at once: each load is added once. A load whose records or file
    cannot be read is left out, and reported at the end.

    Args:
        root: The dataset.
        format: Only tables of this format.
        name: Only the table with this identifier or location, or of this table of the dataset.
        everything: Look up each load in the table's log, and not only those that are not on record as committed: after
            the table was restored from a backup.
        storage_options: As in `add`.
        table_options: As in `add`.

    Raises:
        InvalidOption: The dataset has no such table.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: A table cannot be read or does not take the rows, a load cannot be read, or no attempt of a
            commit has succeeded. The other tables and the other loads are up to date all the same. If several tables
            failed, this is the error of the first, and its hint has the messages of the others.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    wanted = select_tables(dataset, format, name)
    done, failures = sync_each(dataset, wanted, lambda _: table_options, everything=everything)
    told: list[WeblakeError] = []
    for error in failures:
        if not isinstance(error, (StorageRefused, FeatureMissing)):
            raise error
        told.append(error)
    if told:
        first, *others = told
        if others:
            text = " ".join(f"Another table is not up to date either: {error.message}" for error in others)
            first.remedy = first.remedy.followed_by(Remedy("{other_tables}", {"other_tables": text}))
        raise first
    return done


def sync_each(
    dataset: Dataset,
    wanted: Sequence[RegisteredTable],
    options_of: Callable[[RegisteredTable], Mapping[str, str] | None],
    *,
    everything: bool = False,
) -> tuple[list[SyncResult], list[Exception]]:
    """Sync tables, also if one of them fails, and return the results and the errors.

    Args:
        dataset: The dataset.
        wanted: The tables.
        options_of: Returns the settings for deltalake or pyiceberg of a table; an error of it is one of the table.
        everything: As in `sync`.
    """
    done: list[SyncResult] = []
    failures: list[Exception] = []
    for each in wanted:
        try:
            lake = open_lake_table(dataset, each, options_of(each))
            done.append(_Sync(dataset, each, lake).run(everything=everything))
        except Exception as error:  # noqa: BLE001  # the libraries of the formats raise errors of their own
            failures.append(error)
    return done, failures


@dataclass(frozen=True, slots=True)
class _Load:
    """What the records of a load say."""

    #: None if it has not landed, or its records cannot be read.
    file: LoadFile | None = None
    #: The loads that it replaces; their retirement may not be on record yet.
    replaces: tuple[str, ...] = ()
    #: The load that is in its place, itself if none is.
    current: str = ""
    error: StorageRefused | None = None


@dataclass(slots=True)
class _Sync:
    """A sync of one table."""

    dataset: Dataset
    table: RegisteredTable
    lake: LakeTable
    #: The loads that the table has committed, with ADDED or REMOVED.
    known: dict[str, str] = field(default_factory=dict)
    #: The loads with which this sync has finished.
    done: set[str] = field(default_factory=set)
    #: The loads that are left out, with the error of each.
    left_out: dict[str, StorageRefused] = field(default_factory=dict)
    #: Loads whose files could not be read; they are left out unless they turn out to be replaced.
    suspects: dict[str, Exception] = field(default_factory=dict)
    added: list[LoadFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def run(self, *, everything: bool) -> SyncResult:
        """Commit all loads that wait, and return what was done.

        Raises:
            StorageRefused: Loads were left out, and all others are committed; or nothing could be committed.
        """
        if not everything:
            self.known = TableRecords(self.dataset.ledger).committed(self.table)
        waiting = iter(self._waiting())
        while batch := list(islice(waiting, LOADS_PER_COMMIT)):
            while batch := [load_id for load_id in batch if load_id not in self.done]:
                self._commit(batch)
        if self.left_out:
            raise self._left_out_error()
        self.lake.refresh()
        return SyncResult(
            format=self.table.format,
            table=self.table.table,
            identifier=self.table.identifier,
            location=self.lake.location,
            version=self.lake.version,
            added=tuple(file.load_id for file in self.added),
            removed=tuple(self.removed),
            rows=sum(file.rows for file in self.added),
            table_rows=self.lake.count_rows(),
        )

    def _waiting(self) -> list[str]:
        """Return the loads that the table may have to add or to take out; one listing, no record is read."""
        landed, retired = ledger_listing.DONE, ledger_listing.RETIRED
        found = []
        for number, has in ledger_listing.steps(self.dataset.ledger).items():
            load_id = ledger_listing.id_of(number)
            what = self.known.get(load_id)
            if has & landed and (what is None or (what == ADDED and has & retired)):
                found.append(load_id)
        return found

    def _commit(self, batch: Sequence[str]) -> None:
        """Make one commit for a batch of loads, or find that nothing is to commit, or that loads are left out.

        A commit fails because another program was first, or because the catalog or the storage fails; the errors of the
        libraries do not tell these apart, the version of the table does. So few attempts are made at an unchanged
        table.

        Raises:
            StorageRefused: All attempts have failed; or the table cannot be read, or is another one.
        """
        version, unchanged, failed = -2, 0, ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(random.random() * min(PAUSE_S, 0.05 * 2**attempt))  # noqa: S311 - jitter, no secret
            try:
                self.lake.refresh()
            except CommitConflict as conflict:
                failed = str(conflict)
                continue
            check_same(self.table, self.lake)
            unchanged = unchanged + 1 if self.lake.version == version else 0
            version = self.lake.version
            if unchanged >= UNCHANGED_TRIES:
                advice = "No other program has changed it: check its settings, its catalog and its storage."
                raise self._refused(attempt, failed, advice)
            change = self._plan(batch)
            if change is None:
                return
            try:
                self.lake.commit(change)
            except (CommitConflict, StorageRefused) as error:
                if change.unreadable:
                    self.suspects |= change.unreadable
                    return
                if isinstance(error, StorageRefused):
                    self._leave_out([*(file.load_id for file in change.add), *change.remove], error)
                    return
                failed = f"{error}"
                continue
            self._record({file.load_id: ADDED for file in change.add} | dict.fromkeys(change.remove, REMOVED))
            self.added += [file for file in change.add if file.path is not None]
            self.removed += change.present
            return
        raise self._refused(TRIES, failed, "Other programs write to the table: sync again later.")

    def _plan(self, batch: Sequence[str]) -> Change | None:
        """Return the next commit of a batch, or None if the table has all of it.

        Loads that replace nothing in the table come first. A load that is taken out and the one in its place are in one
        commit; if the new one cannot be read, the old one stays.
        """
        loads = self._read(batch)
        gone = {load_id for load_id, load in loads.items() if load.current not in ("", load_id)}
        successor = {load_id: loads[load_id].current for load_id in gone}
        for load_id, load in loads.items():
            if load_id not in gone:
                successor |= dict.fromkeys(load.replaces, load_id)
        gone |= successor.keys()
        self._look_up(loads.keys() | gone)
        for load_id in loads.keys() - gone - self.known.keys() - self.left_out.keys():
            found = loads[load_id].error or self.suspects.get(load_id)
            if found is not None:
                self._leave_out([load_id], self._unreadable(load_id, found))
        add = {
            load_id: load.file
            for load_id, load in loads.items()
            if load.file is not None and load_id not in gone | self.known.keys() | self.left_out.keys()
        }
        replaced: dict[str, list[str]] = {}
        for load_id in sorted(load_id for load_id in gone if self.known.get(load_id) != REMOVED):
            new = successor[load_id]
            while new in successor:
                new = successor[new]
            if self.left_out.keys() & {new, load_id}:
                self.done.add(load_id)
            else:
                replaced.setdefault(new, []).append(load_id)
        in_table = {new for new, old in replaced.items() if self.known.keys() & set(old)}
        chosen = _files_of_one_commit([file for load_id, file in add.items() if load_id not in in_table])
        remove = [load_id for new, old in replaced.items() if new not in in_table for load_id in old]
        if not chosen and not remove:
            units = _files_of_one_commit([add.get(new, LoadFile(new, None, 0, 0)) for new in sorted(in_table)])
            chosen = [file for file in units if file.load_id in add]
            remove = [load_id for file in units for load_id in replaced[file.load_id]]
        if not chosen and not remove:
            self.done.update(batch)
            return None
        schema = self._schema(chosen)
        if schema is None:
            return self._plan(batch)
        present = [load_id for load_id in remove if load_id in self.known]
        return Change(self.dataset.storage, schema, chosen, remove, present)

    def _read(self, batch: Sequence[str]) -> dict[str, _Load]:
        """Return the loads of a batch, those that they replace and those in their place, as their records say."""
        loads: dict[str, _Load] = {}
        missing = set(batch)
        while missing:
            ids = sorted(missing)
            loads |= zip(ids, ledger_listing.read_each(self.dataset.ledger, ids, self._read_one), strict=True)
            partners = {load.current for load in loads.values() if load.current not in self.known} - {""}
            partners |= {old for load in loads.values() for old in load.replaces if self.known.get(old) != REMOVED}
            missing = partners - loads.keys()
        return loads

    def _read_one(self, load_id: str) -> _Load:
        ledger = self.dataset.ledger
        try:
            done = ledger.done(load_id)
            current = ledger.current_load(load_id)
        except StorageRefused as error:
            return _Load(error=error)
        if done is None:
            return _Load(current=current)
        return _Load(file_of(self.table.table, load_id, Receipt.from_dict(done.receipt)), done.retired, current)

    def _look_up(self, load_ids: Iterable[str]) -> None:
        """Note and record what the table's log has of these loads."""
        found = self.lake.committed([load_id for load_id in load_ids if self.known.get(load_id) != REMOVED])
        self._record(
            {load_id: what for load_id, what in found.items() if self.known.get(load_id) not in (what, REMOVED)}
        )

    def _record(self, committed: Mapping[str, str]) -> None:
        """Note and record what the table has committed."""
        TableRecords(self.dataset.ledger).record_committed(self.table, committed)
        self.known |= committed
        self.done.update(committed)

    def _schema(self, files: Sequence[LoadFile]) -> pa.Schema | None:
        """Return the columns of these files with the path keys; None if a file cannot be read.

        A later weblake may have landed columns that this one does not know.
        """
        names = [file.path for file in files if file.path is not None]
        columns = {
            each.name: each for each in schemas.with_keys(self.table.table, self.dataset.layout.keys(self.table.table))
        }
        storage = self.dataset.storage

        def read(name: str) -> pa.Schema | Exception:
            try:
                with arrow_files.opened(storage, name) as source:
                    return pq.read_schema(source).remove_metadata()
            except (OSError, StorageRefused, pa.ArrowException) as error:
                return error

        complete = True
        by_name = {file.path: file.load_id for file in files}
        for name, found in zip(names, parallel.in_order(names, read, threads=parallel.readers(storage)), strict=True):
            if isinstance(found, Exception):
                self.suspects[by_name[name]] = found
                complete = False
                continue
            for each in found:
                columns.setdefault(each.name, each)
        return pa.schema(list(columns.values())) if complete else None

    def _leave_out(self, load_ids: Iterable[str], error: StorageRefused) -> None:
        self.left_out |= dict.fromkeys(load_ids, error)
        self.done.update(self.left_out)

    def _unreadable(self, load_id: str, error: Exception) -> StorageRefused:
        if isinstance(error, StorageRefused):
            return error
        return StorageRefused(
            f"The file of load {load_id} cannot be read: {first_line(error)}.", hint="Restore it from a backup."
        )

    def _left_out_error(self) -> StorageRefused:
        ids = sorted(self.left_out)
        named = ", ".join(ids[:_MAX_NAMED]) + (f" and {len(ids) - _MAX_NAMED:,} more" if len(ids) > _MAX_NAMED else "")
        first = self.left_out[ids[0]]
        return StorageRefused(
            f"The {self.table.format} table {self.table.name} lacks loads, and is up to date otherwise: {named}. "
            f"{first.message}",
            hint=first.remedy,
        )

    def _refused(self, tries: int, reason: str, hint: str) -> StorageRefused:
        return StorageRefused(
            f"Nothing could be committed to the {self.table.format} table {self.table.name} in {tries} attempts: "
            f"{reason.rstrip('.')}.",
            hint=f"{hint} Nothing is lost or doubled.",
        )


def _files_of_one_commit(files: Sequence[LoadFile]) -> list[LoadFile]:
    """Return as many files as a commit takes, from the first one on."""
    size, count = 0, 0
    while count < len(files) and (not count or size + files[count].bytes <= BYTES_PER_COMMIT):
        size += files[count].bytes
        count += 1
    return list(files[:count])
