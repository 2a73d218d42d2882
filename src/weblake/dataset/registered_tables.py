"""The records of the tables (Delta Lake, Apache Iceberg) of a dataset, and of the loads that each table has committed.

    _weblake/tables/<table_id>.json                          a table of the dataset, of documents or page_errors
    _weblake/tables/<table_id>.activity.json                 a table of usage_periods or activity
    _weblake/uncommitted/<table_id>/<load_id>.added          a load that has landed since the last sync
    _weblake/uncommitted/<table_id>/<load_id>.removed        a load that was retired since the last sync
    _weblake/committed/<table_id>/<load_id>.added.json       the table has committed the load
    _weblake/committed/<table_id>/<load_id>.removed.json     the table has taken the load out
    _weblake/committed/<table_id>/all.<registration>         the loads before this registration are committed
    _weblake/kept/<load_id>.json                             the files of a retired load, which a table may still name
    _weblake/uncommitted/<table_id>/<file_id>.<when>-<digest>  a file of usage_periods or activity that is replaced

A landing never waits for a table: it creates an entry under `uncommitted`, and `weblake table sync` commits it. The
entry is created before the load's done record (or its retired record), so a load on record is never without one. The
two kinds of entries are separate files: a sync that has added a load removes the first and never the second.

A file of usage_periods or activity is replaced in place. Its entry names the digest of the new content and is created
before the file is replaced: a sync that still reads the old content leaves the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import msgspec

from weblake.dataset import layout, parallel
from weblake.dataset.identity import checked_load_id, load_id_of
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Record, UtcTime, utc_now
from weblake.storage import Storage

#: Why a load is in a table's log: it was added, or it was taken out.
ADDED, REMOVED = "added", "removed"
#: How long a replacement may take from its entry to its end, with a wide margin. Until then, a sync that has not seen
#: the new content keeps the entry.
REPLACEMENT = timedelta(hours=24)
_TIME_FORMAT = "%Y%m%dT%H%M%S%f"


class RegisteredTable(Record, frozen=True, kw_only=True):
    """A table of a dataset. Its field `load_id` holds `table_id`: all records have a field of that name."""

    #: delta or iceberg.
    format: str
    #: The dataset's table: documents, page_errors, usage_periods or activity.
    table: str
    #: The table's own id, which the format gives it. A table that was dropped and created again has another one.
    uuid: str
    #: The catalog and the table's name in it; None for a format without catalogs.
    catalog: str | None = None
    identifier: str | None = None
    #: Days for which the files of retired loads are kept after the table has taken them out.
    keep_days: float
    at: UtcTime

    @property
    def table_id(self) -> str:
        """The id of this record."""
        return self.load_id

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return self.identifier or self.table


class CommittedLoad(Record, frozen=True, kw_only=True):
    """A load that a table has added or taken out."""

    #: The version of the table, or the id of its snapshot.
    table_version: int
    at: UtcTime


class KeptFiles(Record, frozen=True, kw_only=True):
    """The files of a retired load that were not deleted when it was retired."""

    files: tuple[str, ...]
    at: UtcTime


def table_id_of(format_: str, table: str, uuid: str) -> str:
    """Return the id of the record of a table, as 16 hexadecimal digits."""
    return load_id_of("table", format_, table, uuid)


def table_ids(storage: Storage) -> list[str]:
    """Return the ids of the tables to which loads are committed; one listing, no record is read."""
    return [table_id for table_id, table in _names(storage) if not table]


def _names(storage: Storage) -> list[tuple[str, str]]:
    """Return the id of each table, and `usage_periods` or `activity` for a table of these, otherwise ``."""
    names = (name.rpartition("/")[2].removesuffix(".json") for name in storage.list(layout.TABLES))
    return [(table_id, table) for table_id, _, table in (name.partition(".") for name in names)]


def _record_name(table_id: str, table: str) -> str:
    # The name tells the two kinds of tables apart: a landing must not read each record.
    return (
        f"{layout.TABLES}/{table_id}.{table}.json" if table in layout.FIXED_KEYS else f"{layout.TABLES}/{table_id}.json"
    )


def file_id_of(path: str) -> str:
    """Return the id of a file that is replaced in place, from its path in the dataset, as 16 hexadecimal digits."""
    return load_id_of("file", path)


def mark_replaced(storage: Storage, path: str, digest: str) -> None:
    """Note for each table of a file's table that the file is about to be replaced by content with this digest."""
    tables = [table_id for table_id, table in _names(storage) if table == path.partition("/")[0]]
    mark_uncommitted(storage, tables, file_id_of(path), f"{datetime.now(timezone.utc):{_TIME_FORMAT}}-{digest}")


def is_replacement_done(entry: str, digest: str | None, now: datetime) -> bool:
    """Return whether an entry of `mark_replaced` can be removed once its file was seen with a digest, or not at all.

    If the digest is another one, the replacement may be still to come; after a day it is not.
    """
    when, _, announced = entry.partition("-")
    return announced == digest or when < f"{now - REPLACEMENT:{_TIME_FORMAT}}"


def mark_uncommitted(storage: Storage, table_ids: Iterable[str], load_id: str, what: str) -> None:
    """Note for each table that it has to add a load (ADDED) or to take it out (REMOVED)."""
    for table_id in table_ids:
        storage.create(f"{layout.UNCOMMITTED}/{table_id}/{checked_load_id(load_id)}.{what}", b"")


def keep_files(ledger: Ledger, load_id: str, files: Sequence[str]) -> None:
    """Record that the files of a retired load still exist, so that readers leave them out and a sync deletes them."""
    record = KeptFiles(load_id=load_id, files=tuple(files), at=utc_now())
    ledger.create_record(_kept_name(load_id), record)


def kept_loads(storage: Storage) -> set[str]:
    """Return the ids of the retired loads whose files still exist."""
    return {name.rpartition("/")[2].removesuffix(".json") for name in storage.list(layout.KEPT)}


def _kept_name(load_id: str) -> str:
    return f"{layout.KEPT}/{checked_load_id(load_id)}.json"


@dataclass(frozen=True, slots=True)
class TableRecords:
    """Reads and creates the records of a dataset's tables."""

    ledger: Ledger

    @property
    def storage(self) -> Storage:
        """The storage of the root."""
        return self.ledger.storage

    def tables(self) -> list[RegisteredTable]:
        """Return the tables of the dataset, in the order of their registration.

        Raises:
            StorageRefused: The record of a table cannot be read.
        """
        found = [
            self.ledger.read_record(_record_name(table_id, table), table_id, RegisteredTable)
            for table_id, table in _names(self.storage)
        ]
        return sorted((each for each in found if each is not None), key=lambda each: (each.at, each.table_id))

    def register(self, table: RegisteredTable) -> RegisteredTable:
        """Record a table and return the recorded one: this one, or an earlier one with the same id."""
        return self.ledger.create_record(_record_name(table.table_id, table.table), table)[0]

    def has_committed(self, table: RegisteredTable) -> bool:
        """Return whether loads of this dataset are on record as committed to a table."""
        return next(iter(self._listed(f"{layout.COMMITTED}/{table.table_id}")), None) is not None

    def unregister(self, table: RegisteredTable) -> None:
        """Remove the record of a table. What it has committed stays on record, in case the table is added again."""
        self.storage.delete(self._complete(table))
        self.storage.delete(_record_name(table.table_id, table.table))

    def uncommitted(self, table: RegisteredTable) -> dict[str, set[str]]:
        """Return what a table may have to do (ADDED, REMOVED, or both), by load id; one listing.

        Of a table of usage_periods or activity: the entries of `mark_replaced`, by file id.
        """
        found: dict[str, set[str]] = {}
        for load_id, what in self._listed(f"{layout.UNCOMMITTED}/{table.table_id}"):
            found.setdefault(load_id, set()).add(what)
        return found

    def all_committed(self, table: RegisteredTable) -> dict[str, set[str]]:
        """Return the ids of all loads that are on record as added (ADDED) and as taken out (REMOVED); one listing."""
        found: dict[str, set[str]] = {ADDED: set(), REMOVED: set()}
        for load_id, rest in self._listed(f"{layout.COMMITTED}/{table.table_id}"):
            what, _, suffix = rest.partition(".")
            if what in found and suffix == "json":
                found[what].add(load_id)
        return found

    def _listed(self, folder: str) -> Iterator[tuple[str, str]]:
        """Yield the load id and the rest of the name of each file in a folder."""
        for name in self.storage.list(folder):
            load_id, _, rest = name.rpartition("/")[2].partition(".")
            yield load_id, rest

    def forget_uncommitted(self, table: RegisteredTable, entries: Iterable[tuple[str, str]]) -> None:
        """Remove entries (load id or file id, and what `uncommitted` has for it) that are committed."""
        names = (f"{layout.UNCOMMITTED}/{table.table_id}/{load_id}.{what}" for load_id, what in entries)
        self._each(names, self.storage.delete)

    def is_complete(self, table: RegisteredTable) -> bool:
        """Return whether the loads that landed before the table was registered are committed."""
        return self.storage.exists(self._complete(table))

    def record_complete(self, table: RegisteredTable) -> None:
        """Record that the loads that landed before the table was registered are committed."""
        self.storage.create(self._complete(table), b"")

    def committed(self, table: RegisteredTable, load_id: str, what: str) -> CommittedLoad | None:
        """Return the record that a table has added a load (ADDED) or taken it out (REMOVED), or None."""
        return self.ledger.read_record(self._committed(table, f"{load_id}.{what}.json"), load_id, CommittedLoad)

    def record_committed(
        self, table: RegisteredTable, load_ids: Iterable[str], what: str, version: int, *, look: bool = False
    ) -> None:
        """Record that a table has committed loads; with `look`, loads that may be on record are looked up first."""
        at = utc_now()

        def record(load_id: str) -> None:
            name = self._committed(table, f"{load_id}.{what}.json")
            if look and self.storage.exists(name):
                return
            done = CommittedLoad(load_id=load_id, table_version=version, at=at)
            self.storage.create(name, msgspec.json.encode(done))

        self._each(load_ids, record)

    def kept(self, load_id: str) -> KeptFiles | None:
        """Return the record of the kept files of a retired load, or None."""
        return self.ledger.read_record(_kept_name(load_id), load_id, KeptFiles)

    def forget_kept(self, load_id: str) -> None:
        """Remove the record of kept files, after the files themselves."""
        self.storage.delete(_kept_name(load_id))

    def _complete(self, table: RegisteredTable) -> str:
        # A sync of a registration that has ended, because the table was removed and added again, must not create it for
        # the new one: a load that was retired in between has no entry.
        return self._committed(table, f"all.{load_id_of(table.table_id, table.at)}")

    def _committed(self, table: RegisteredTable, name: str) -> str:
        return f"{layout.COMMITTED}/{table.table_id}/{name}"

    def _each(self, items: Iterable[str], do: Callable[[str], None]) -> None:
        for _ in parallel.in_order(items, do, threads=parallel.readers(self.storage)):
            pass
