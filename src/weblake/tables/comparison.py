"""Compare the tables of a dataset with its ledger and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weblake.dataset import layout, ledger_listing, registered_tables
from weblake.dataset.identity import content_digest
from weblake.dataset.registered_tables import ADDED, REMOVED, RegisteredTable, TableRecords
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.storage import RootPath
from weblake.tables.formats import TableResult, file_of
from weblake.tables.registration import open_lake_table, select_tables
from weblake.tables.replacing import files_of, read_files


@dataclass(frozen=True, slots=True)
class TableStatus(TableResult):
    """A comparison of a table with the ledger of its dataset; for usage_periods and activity with its files.

    Loads are named by id, files of the dataset by path.
    """

    #: Loads that have landed and were not replaced, and have rows in this table of the dataset; or files.
    loads: int
    #: Rows of the table.
    rows: int
    #: Loads or files whose rows the table lacks; the next sync adds them.
    missing: tuple[str, ...]
    #: Loads that a sync has added, and whose rows another program has deleted; no sync adds them again.
    deleted: tuple[str, ...]
    #: Retired loads whose rows are still in the table; the next sync takes them out.
    retired: tuple[str, ...]
    #: Retired loads that a sync has taken out, and that another program has brought back; no sync takes them out again.
    restored: tuple[str, ...]
    #: Loads that are in the table with another number of rows than in the dataset; files that are in the table with
    #: another content, which the next sync replaces.
    different: tuple[str, ...]
    #: Load ids in the table that the ledger does not know; ids of files that the dataset does not have.
    unknown: tuple[str, ...]

    @property
    def in_step(self) -> bool:
        """Whether the table has exactly the rows of the loads that count, or of the dataset's files."""
        differences = (self.missing, self.deleted, self.retired, self.restored, self.different, self.unknown)
        return not any(differences)

    def to_dict(self) -> dict[str, object]:
        """Return the status as a JSON-ready dict."""
        return {**TableResult.to_dict(self), "in_step": self.in_step}


def status(
    root: RootPath,
    *,
    format: str | None = None,
    name: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> list[TableStatus]:
    """Compare the tables of a dataset with its ledger, load by load; nothing is changed. Arguments as in `sync`.

    The whole ledger is read, and the column load_id of the table; for usage_periods and activity, the dataset's files.

    Raises:
        InvalidOption: The dataset has no such table.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: A table or a record cannot be read, or a table is another one than the registered one.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    wanted = select_tables(dataset, format, name)
    tables = [table for table in wanted if table.table in layout.LOAD_TABLES]
    rows: dict[str, dict[str, int]] = {table.table_id: {} for table in tables}
    retired: set[str] = set()
    for load in ledger_listing.loads_of(dataset.ledger, ledger_listing.steps(dataset.ledger)) if tables else ():
        if load.unreadable is not None:
            raise StorageRefused(load.unreadable, hint="Restore it from a backup.")
        if load.retired is not None:
            retired.add(load.load_id)
        elif load.done is not None:
            retired.update(load.done.retired)  # a sync does not wait for the records of these
            receipt = Receipt.from_dict(load.done.receipt)
            for table in tables:
                file = file_of(table, load.load_id, receipt)
                if file.path is not None:
                    rows[table.table_id][load.load_id] = file.rows
    return [
        _compare_loads(dataset, table, rows[table.table_id], retired, table_options)
        if table in tables
        else _compare_files(dataset, table, table_options)
        for table in wanted
    ]


def _compare_loads(
    dataset: Dataset,
    table: RegisteredTable,
    rows: Mapping[str, int],
    retired: set[str],
    options: Mapping[str, str] | None,
) -> TableStatus:
    rows = {load_id: count for load_id, count in rows.items() if load_id not in retired}
    records = TableRecords(dataset.ledger)
    committed = records.all_committed(table)  # before the table is read
    lake = open_lake_table(dataset, table, options)
    there = lake.loads()
    absent, present = rows.keys() - there.keys(), there.keys() & retired
    out = lake.removed(absent | present)
    deleted = absent & (committed[ADDED] | lake.added(absent)) - out
    restored = present & (committed[REMOVED] | out)
    return TableStatus(
        format=table.format,
        table=table.table,
        identifier=table.identifier,
        location=lake.location,
        version=lake.version,
        loads=len(rows),
        rows=sum(there.values()),
        missing=tuple(sorted(absent - deleted)),
        deleted=tuple(sorted(deleted)),
        retired=tuple(sorted(present - restored)),
        restored=tuple(sorted(restored)),
        different=tuple(sorted(load for load, count in rows.items() if there.get(load, count) != count)),
        unknown=tuple(sorted(there.keys() - rows.keys() - retired)),
    )


def _compare_files(dataset: Dataset, table: RegisteredTable, options: Mapping[str, str] | None) -> TableStatus:
    lake = open_lake_table(dataset, table, options)
    there = lake.contents()
    paths = {registered_tables.file_id_of(path): path for path in files_of(dataset, table)}
    digests = {path: content_digest(data) for path, data in read_files(dataset, list(paths.values()))}
    found = {path: there[file_id] for file_id, path in paths.items() if file_id in there}
    return TableStatus(
        format=table.format,
        table=table.table,
        identifier=table.identifier,
        location=lake.location,
        version=lake.version,
        loads=len(paths),
        rows=lake.count_rows(),
        missing=tuple(sorted(digests.keys() - found.keys())),
        deleted=(),
        retired=(),
        restored=(),
        different=tuple(sorted(path for path, has in found.items() if has != (digests.get(path),))),
        unknown=tuple(sorted(there.keys() - paths.keys())),
    )
