"""Tables of a dataset: Delta Lake and Apache Iceberg, to which each load is committed exactly once.

    weblake.tables.add(root, "delta")
    weblake.tables.sync(root)                 # after landings, as often as you like

A table of documents or page_errors refers to the Parquet files of the dataset where they are; nothing is copied. A
landing does not wait for a table and never fails because of one: `sync` commits what has landed since, and takes out
what was retired, in one commit. Of a load that replaces another one, readers of the table see the old rows or the new
ones, never both. The files of usage_periods and activity are replaced in place; a table gets a copy of each content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weblake.arrow import schemas
from weblake.dataset import layout, ledger_listing, registered_tables
from weblake.dataset.identity import content_digest
from weblake.dataset.records import utc_now
from weblake.dataset.registered_tables import RegisteredTable, TableRecords
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import FeatureMissing, InvalidOption, StorageRefused, WeblakeError
from weblake.receipt import Receipt
from weblake.remedies import Remedy
from weblake.storage import RootPath, refuse_memory
from weblake.tables.committing import SyncResult, sync_table
from weblake.tables.formats import LakeTable, TableResult, file_of
from weblake.tables.kept_files import delete_kept_files
from weblake.tables.replacing import files_of, read_files, sync_files

__all__ = ["RegisteredTable", "SyncResult", "TableStatus", "add", "list_tables", "remove", "status", "sync"]

FORMATS = ("delta", "iceberg")
#: Default for the days for which the files of a retired load stay after a table has taken it out.
KEEP_DAYS = 7.0
#: Largest number of these days: a hundred years.
MAX_KEEP_DAYS = 36_500
#: Characters of a root's path that the libraries of the formats take for something else.
_UNFIT = {"delta": "%", "iceberg": "#?"}


@dataclass(frozen=True, slots=True)
class TableStatus(TableResult):
    """A comparison of a table with the ledger of its dataset; for usage_periods and activity with its files.

    Loads are named by id, files of the dataset by path.
    """

    #: Loads that have landed and were not retired, and have rows in this table of the dataset; or files.
    loads: int
    #: Rows of the table.
    rows: int
    #: Loads or files whose rows the table lacks; the next sync adds them, but for loads whose rows another program has
    #: deleted from the table.
    missing: tuple[str, ...]
    #: Retired loads whose rows are still in the table; the next sync takes them out, but for those that another program
    #: has brought back by restoring an older version.
    retired: tuple[str, ...]
    #: Loads that are in the table with another number of rows than in the dataset; files that are in the table with
    #: another content, which the next sync replaces.
    different: tuple[str, ...]
    #: Load ids in the table that the ledger does not know; ids of files that the dataset does not have.
    unknown: tuple[str, ...]

    @property
    def in_step(self) -> bool:
        """Whether the table has exactly the rows of the loads that count, or of the dataset's files."""
        return not (self.missing or self.retired or self.different or self.unknown)

    def to_dict(self) -> dict[str, object]:
        """Return the status as a JSON-ready dict."""
        return {**TableResult.to_dict(self), "in_step": self.in_step}


def add(
    root: RootPath,
    format: str,
    *,
    table: str = "documents",
    catalog: str | None = None,
    identifier: str | None = None,
    keep_days: float = KEEP_DAYS,
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> RegisteredTable:
    """Register a table of a dataset, creating it if it does not exist; return its record. Nothing is committed yet.

    From now on, the files of a retired load are deleted by a later `sync`, `keep_days` after the table has taken the
    load out, and not when the load is replaced. Until then a plain glob over the files reads the old and the new load;
    read the table, or use `weblake.read`.

    Args:
        root: The dataset; something must have landed in it.
        format: delta or iceberg.
        table: documents, page_errors, usage_periods or activity.
        catalog: For Iceberg: the name of a catalog, which pyiceberg finds in its configuration or environment.
        identifier: For Iceberg: the name of the table in the catalog, such as web.documents.
        keep_days: Days for which the files of retired loads are kept, for readers of older versions of the table. Not
            for usage_periods and activity: their older copies stay until the table's own maintenance deletes them.
        storage_options: Options for the file system of the root, as fsspec takes them.
        table_options: Settings of the storage or the catalog for deltalake or pyiceberg. Default: their environment.

    Raises:
        InvalidOption: There is no such format or table, or catalog and identifier do not suit the format.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: The root holds no dataset, or compacted files; or the table cannot be opened or created.
    """
    if format not in FORMATS:
        raise InvalidOption(f"There is no table format {format!r}.", hint=f"Formats: {', '.join(FORMATS)}.")
    if table not in schemas.TABLES:
        raise InvalidOption(f"There is no table {table!r}.", hint=f"Tables: {', '.join(schemas.TABLES)}.")
    if (format == "iceberg") != (catalog is not None and identifier is not None):
        raise InvalidOption(
            "An Iceberg table has a catalog and an identifier, a Delta Lake table has neither.",
            hint="Give catalog and identifier with iceberg, and leave them out with delta.",
        )
    if not 0 <= keep_days <= MAX_KEEP_DAYS:
        raise InvalidOption(f"keep_days {keep_days!r} is not a number of days.", hint=f"Give 0 to {MAX_KEEP_DAYS:,}.")
    dataset = open_dataset(root, storage_options=storage_options)
    refuse_memory(dataset.storage, "a table", hint="Use a directory or an object store.")
    layout.check_holds_dataset(dataset.storage)
    layout.check_whole(dataset.storage)
    merged = next((name for name in dataset.storage.list(table) if layout.is_compacted(name)), None)
    if merged is not None:
        raise StorageRefused(
            f"{dataset.url} was compacted ({merged}): a table names one file for each load.",
            hint="Land into a new root and add the table there; the table format has its own compaction.",
        )
    unfit = sorted(set(_UNFIT[format]).intersection(dataset.url))
    if unfit:
        raise StorageRefused(
            f"The path of {dataset.url} has {' and '.join(unfit)}: the library of {format} would look elsewhere.",
            hint="Land into a root without these characters, or add a table of the other format.",
        )
    lake = _open(dataset, format, table, catalog, identifier, table_options, create=True)
    records = TableRecords(dataset.ledger)
    tables = records.tables()
    other = next((each for each in tables if each.uuid == lake.uuid and each.table != table), None)
    if other is not None:
        raise InvalidOption(
            f"{identifier} is the table of {other.table}: one table cannot have the loads of two.",
            hint="Give another identifier.",
        )
    record = RegisteredTable(
        load_id=registered_tables.table_id_of(format, table, lake.uuid),
        format=format,
        table=table,
        uuid=lake.uuid,
        catalog=catalog,
        identifier=identifier,
        keep_days=float(keep_days),
        at=utc_now(),
    )
    # A known table may name the same root with another path.
    known = any(each.table_id == record.table_id for each in tables) or records.has_committed(record)
    if not known and lake.dataset not in (None, dataset.url):
        raise InvalidOption(
            f"{identifier} is the table of the dataset {lake.dataset}: load ids are unique in a dataset only.",
            hint="Give another identifier.",
        )
    return records.register(record)


def list_tables(root: RootPath, *, storage_options: Mapping[str, object] | None = None) -> list[RegisteredTable]:
    """Return the tables of a dataset, oldest first.

    Raises:
        StorageRefused: The record of a table cannot be read.
    """
    return TableRecords(open_dataset(root, storage_options=storage_options).ledger).tables()


def sync(
    root: RootPath,
    *,
    format: str | None = None,
    name: str | None = None,
    registered: RegisteredTable | None = None,
    everything: bool = False,
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> list[SyncResult]:
    """Commit to the tables of a dataset what has landed and what was retired; return what was done, by table.

    A sync can be repeated, killed and run several times at once: each load is added once, and of each file of
    usage_periods and activity the table has the newest content. Files of retired loads that no table needs any more are
    deleted.

    Args:
        root: The dataset.
        format: Only tables of this format.
        name: Only the table with this identifier, or of this table of the dataset.
        registered: Only this table, as `list_tables` has returned it; `format` and `name` are not used.
        everything: Look at each load of the ledger, not only at those that landed or were retired since the last sync;
            for usage_periods and activity, at each file.
        storage_options: As in `add`.
        table_options: As in `add`.

    Raises:
        InvalidOption: The dataset has no such table.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: A table or a record cannot be read or written; another program has changed a table so that files
            cannot be added, or made it append-only and a load was replaced; or no attempt of a commit has succeeded.
            The other tables, and the loads whose records can be read, are up to date all the same.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    wanted = [registered] if registered else _wanted(dataset, TableRecords(dataset.ledger).tables(), format, name)
    done, opened = [], []
    failed: WeblakeError | None = None
    for each in wanted:
        try:
            lake = _open(dataset, each.format, each.table, each.catalog, each.identifier, table_options)
            opened.append((each, lake))
            sync_one = sync_files if each.table in layout.FIXED_KEYS else sync_table
            done.append(sync_one(dataset, each, lake, everything=everything))
        except (StorageRefused, FeatureMissing) as error:  # the other tables do not wait for this one
            failed = failed or error
    if failed is not None:
        raise failed
    deleted = delete_kept_files(dataset, opened)
    return [replace(done[0], deleted_files=deleted), *done[1:]]


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
        StorageRefused: A table or a record cannot be read.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    wanted = _wanted(dataset, TableRecords(dataset.ledger).tables(), format, name)
    tables = [table for table in wanted if table.table in layout.LOAD_TABLES]
    rows: dict[str, dict[str, int]] = {table.table_id: {} for table in tables}
    retired: set[str] = set()
    for load in ledger_listing.loads_of(dataset.ledger, ledger_listing.steps(dataset.ledger)) if tables else ():
        if load.unreadable is not None:
            raise StorageRefused(load.unreadable, hint="Restore it from a backup.")
        if load.retired is not None:
            retired.add(load.load_id)
        elif load.done is not None:
            receipt = Receipt.from_dict(load.done.receipt)
            for table in tables:
                file = file_of(table, load.load_id, receipt)
                if file.path is not None:
                    rows[table.table_id][load.load_id] = file.rows
    return [
        _status(dataset, table, rows[table.table_id], retired, table_options)
        if table in tables
        else _status_of_files(dataset, table, table_options)
        for table in wanted
    ]


def remove(
    root: RootPath,
    format: str,
    name: str = "documents",
    *,
    storage_options: Mapping[str, object] | None = None,
) -> RegisteredTable:
    """Remove a table from a dataset and return its record; the table itself stays, and is not kept up to date any more.

    Files of retired loads that no other table needs are deleted by this call: older versions of the removed table, and
    loads that it has not taken out yet, can then no longer be read.

    Args:
        root: The dataset.
        format: delta or iceberg.
        name: The table's identifier; for Delta Lake, the table of the dataset.
        storage_options: As in `add`.

    Raises:
        InvalidOption: The dataset has no such table.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    records = TableRecords(dataset.ledger)
    tables = records.tables()
    table = next((each for each in tables if (each.format, each.name) == (format, name)), None)
    if table is None:
        raise _no_such_table(dataset, tables)
    records.unregister(table)
    delete_kept_files(dataset)
    return table


def _wanted(
    dataset: Dataset, tables: list[RegisteredTable], format: str | None, name: str | None
) -> list[RegisteredTable]:
    found = [each for each in tables if format in (None, each.format) and name in (None, each.name, each.table)]
    if not found:
        raise _no_such_table(dataset, tables)
    return found


def _no_such_table(dataset: Dataset, tables: list[RegisteredTable]) -> InvalidOption:
    if not tables:
        return InvalidOption(
            f"{dataset.url} has no Delta Lake or Iceberg table.", hint=Remedy("Add one with {add_table}.")
        )
    known = ", ".join(f"{each.format} {each.name}" for each in tables)
    return InvalidOption(f"{dataset.url} has no such table.", hint=f"Its tables: {known}.")


def _open(
    dataset: Dataset,
    format: str,
    table: str,
    catalog: str | None,
    identifier: str | None,
    options: Mapping[str, str] | None,
    *,
    create: bool = False,
) -> LakeTable:
    if format == "delta":
        from weblake.tables import delta

        return delta.open_table(dataset.storage, table, options, create=create)
    from weblake.tables import iceberg

    assert catalog is not None
    assert identifier is not None
    return iceberg.open_table(dataset.storage, table, catalog, identifier, options, create=create)


def _status(
    dataset: Dataset,
    table: RegisteredTable,
    rows: Mapping[str, int],
    retired: set[str],
    options: Mapping[str, str] | None,
) -> TableStatus:
    lake = _open(dataset, table.format, table.table, table.catalog, table.identifier, options)
    there = lake.loads()
    return TableStatus(
        format=table.format,
        table=table.table,
        identifier=table.identifier,
        location=lake.location,
        version=lake.version,
        loads=len(rows),
        rows=sum(there.values()),
        missing=tuple(sorted(rows.keys() - there.keys())),
        retired=tuple(sorted(there.keys() & retired)),
        different=tuple(sorted(load for load, count in rows.items() if there.get(load, count) != count)),
        unknown=tuple(sorted(there.keys() - rows.keys() - retired)),
    )


def _status_of_files(dataset: Dataset, table: RegisteredTable, options: Mapping[str, str] | None) -> TableStatus:
    lake = _open(dataset, table.format, table.table, table.catalog, table.identifier, options)
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
        retired=(),
        different=tuple(sorted(path for path, has in found.items() if has != (digests.get(path),))),
        unknown=tuple(sorted(there.keys() - paths.keys())),
    )
