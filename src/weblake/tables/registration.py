"""The tables that a dataset has: add one, list them, remove one, open one."""

from __future__ import annotations

from collections.abc import Mapping

from weblake.arrow import schemas
from weblake.dataset import layout, registered_tables
from weblake.dataset.records import utc_now
from weblake.dataset.registered_tables import RegisteredTable, TableRecords
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import InvalidOption, StorageRefused
from weblake.remedies import Remedy
from weblake.storage import RootPath, refuse_memory
from weblake.tables.attempts import check_same
from weblake.tables.formats import LakeTable
from weblake.tables.kept_files import delete_kept_files

FORMATS = ("delta", "iceberg")
#: Default for the days for which the files of a retired load stay after a table has taken it out.
KEEP_DAYS = 7.0
#: Largest number of these days: a hundred years.
MAX_KEEP_DAYS = 36_500
#: Characters of a root's path that the libraries of the formats take for something else.
_UNFIT = {"delta": "%", "iceberg": "#?"}


def add(
    root: RootPath,
    format: str,
    *,
    table: str = "documents",
    catalog: str | None = None,
    identifier: str | None = None,
    keep_days: float | None = None,
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
            Default: 7, or those with which the table is registered.
        storage_options: Options for the file system of the root, as fsspec takes them.
        table_options: Settings of the storage or the catalog for deltalake or pyiceberg. Default: their environment.

    Raises:
        InvalidOption: There is no such format or table; catalog and identifier do not suit the format; or the table is
            registered with other keep_days.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: The root holds no dataset; the table cannot be opened or created; or a table
            of this name is registered and was dropped and created again.
    """
    _check_arguments(format, table, catalog, identifier, keep_days)
    dataset = open_dataset(root, storage_options=storage_options)
    _check_dataset(dataset, format, table)
    lake = _open(dataset, format, table, catalog, identifier, table_options, create=True)
    records = TableRecords(dataset.ledger)
    tables = records.tables()
    other = next((each for each in tables if each.uuid == lake.uuid and each.table != table), None)
    if other is not None:
        raise InvalidOption(
            f"{identifier} is the table of {other.table}: one table cannot have the loads of two.",
            hint="Give another identifier.",
        )
    same_name = (format, table, catalog, identifier)
    for each in tables:
        if (each.format, each.table, each.catalog, each.identifier) == same_name:
            check_same(each, lake)
    record = RegisteredTable(
        load_id=registered_tables.table_id_of(format, table, lake.uuid),
        format=format,
        table=table,
        uuid=lake.uuid,
        catalog=catalog,
        identifier=identifier,
        keep_days=KEEP_DAYS if keep_days is None else float(keep_days),
        at=utc_now(),
    )
    # A known table may name the same root with another path.
    known = any(each.table_id == record.table_id for each in tables) or records.has_committed(record)
    if not known and lake.dataset not in (None, dataset.url):
        raise InvalidOption(
            f"{identifier} is the table of the dataset {lake.dataset}: load ids are unique in a dataset only.",
            hint="Give another identifier.",
        )
    registered = records.register(record)
    if keep_days not in (None, registered.keep_days):
        raise InvalidOption(
            f"The {format} table {registered.name} is registered with keep_days {registered.keep_days:g}.",
            hint=Remedy(
                "To change that, remove it with {remove_table}, which deletes the files of replaced loads, and add it "
                "again."
            ),
        )
    return registered


def list_tables(root: RootPath, *, storage_options: Mapping[str, object] | None = None) -> list[RegisteredTable]:
    """Return the tables of a dataset, oldest first.

    Raises:
        StorageRefused: The record of a table cannot be read.
    """
    return TableRecords(open_dataset(root, storage_options=storage_options).ledger).tables()


def remove(
    root: RootPath,
    format: str,
    name: str | None = None,
    *,
    catalog: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> RegisteredTable:
    """Remove a table from a dataset and return its record; the table itself stays, and is not kept up to date any more.

    Files of retired loads that no other table needs are deleted by this call: older versions of the removed table, and
    loads that it has not taken out yet, can then no longer be read.

    Args:
        root: The dataset.
        format: delta or iceberg.
        name: The table's identifier; for Delta Lake, the table of the dataset. Default: the only table of this format.
        catalog: For Iceberg: the catalog, where the dataset has tables of this identifier in several catalogs.
        storage_options: As in `add`.

    Raises:
        InvalidOption: The dataset has no such table, or several.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    records = TableRecords(dataset.ledger)
    tables = records.tables()
    named = [
        each
        for each in tables
        if each.format == format and name in (None, each.name) and catalog in (None, each.catalog)
    ]
    if not named:
        if not tables:
            delete_kept_files(dataset)  # the removal of the last table may have been killed before it had deleted all
        raise _no_such_table(dataset, tables)
    if len(named) > 1:
        found = ", ".join(f"{each.name} in catalog {each.catalog}" if each.catalog else each.name for each in named)
        raise InvalidOption(
            f"{dataset.url} has {len(named)} {format} tables that this may mean: {found}.",
            hint="Name the table and, for Iceberg, the catalog.",
        )
    records.unregister(named[0])
    delete_kept_files(dataset)
    return named[0]


def select_tables(dataset: Dataset, format: str | None, name: str | None) -> list[RegisteredTable]:
    """Return the tables of a dataset with this format and name; None stands for all of them.

    Raises:
        InvalidOption: There is no such table.
    """
    tables = TableRecords(dataset.ledger).tables()
    found = [each for each in tables if format in (None, each.format) and name in (None, each.name, each.table)]
    if not found:
        raise _no_such_table(dataset, tables)
    return found


def open_lake_table(dataset: Dataset, table: RegisteredTable, options: Mapping[str, str] | None) -> LakeTable:
    """Open a registered table; `options` are settings for deltalake or pyiceberg.

    Raises:
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: There is no table, it cannot be read, or it is another one than the registered one.
    """
    lake = _open(dataset, table.format, table.table, table.catalog, table.identifier, options)
    check_same(table, lake)
    return lake


def _check_arguments(
    format: str, table: str, catalog: str | None, identifier: str | None, keep_days: float | None
) -> None:
    if format not in FORMATS:
        raise InvalidOption(f"There is no table format {format!r}.", hint=f"Formats: {', '.join(FORMATS)}.")
    if table not in schemas.TABLES:
        raise InvalidOption(f"There is no table {table!r}.", hint=f"Tables: {', '.join(schemas.TABLES)}.")
    if (format == "iceberg") != (catalog is not None and identifier is not None):
        raise InvalidOption(
            "An Iceberg table has a catalog and an identifier, a Delta Lake table has neither.",
            hint="Give catalog and identifier with iceberg, and leave them out with delta.",
        )
    if identifier is not None and not all(identifier.rpartition(".")[::2]):
        raise InvalidOption(
            f"{identifier!r} is not the name of an Iceberg table in a namespace.",
            hint="Give NAMESPACE.TABLE, such as web.documents.",
        )
    if keep_days is not None and not 0 <= keep_days <= MAX_KEEP_DAYS:
        raise InvalidOption(f"keep_days {keep_days!r} is not a number of days.", hint=f"Give 0 to {MAX_KEEP_DAYS:,}.")


def _check_dataset(dataset: Dataset, format: str, table: str) -> None:
    """Refuse a dataset whose files no table of this format can refer to."""
    refuse_memory(dataset.storage, "one process", hint="A table needs files that other programs can read.")
    layout.check_holds_dataset(dataset.storage)
    unfit = sorted(set(_UNFIT[format]).intersection(dataset.url))
    if unfit:
        raise StorageRefused(
            f"The path of {dataset.url} has {' and '.join(unfit)}: the library of {format} would look elsewhere.",
            hint="Land into a root without these characters, or add a table of the other format.",
        )


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
