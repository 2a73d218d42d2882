"""The tables that a dataset has: add one, list them, remove one, open one, and the records of what each has committed.

    _weblake/tables/<table_id>.json                  a table of the dataset
    _weblake/committed/<table_id>/<load_id>.added    the table has committed the load
    _weblake/committed/<table_id>/<load_id>.removed  the table has taken the load out, and never adds it

A landing knows none of them. What a sync has committed is in the table's own log first and on record afterwards: a
record is an empty file whose name says all, and tells later syncs that they need not look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weblake.dataset import layout, parallel
from weblake.dataset.identity import load_id_of
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Record, UtcTime, utc_now
from weblake.dataset.root import Dataset, open_dataset, refuse_memory
from weblake.errors import InvalidOption, Remedy, StorageRefused
from weblake.storage import RootPath
from weblake.tables.formats import REMOVED

if TYPE_CHECKING:
    from weblake.tables.delta import DeltaLakeTable
    from weblake.tables.iceberg import IcebergTable

    #: `refresh` reads the current version of the table; the other methods are about that version.
    LakeTable = DeltaLakeTable | IcebergTable

FORMATS = ("delta", "iceberg")


class RegisteredTable(Record, frozen=True, kw_only=True):
    """A table of a dataset. Its field `load_id` holds `table_id`: all records have a field of that name."""

    #: delta or iceberg.
    format: str
    #: The dataset's table: documents or page_errors.
    table: str
    #: The table's own id, which the format gives it. A table that was dropped and created again has another one.
    uuid: str
    #: The catalog and the table's name in it; None for a format without catalogs.
    catalog: str | None = None
    identifier: str | None = None
    #: The path or URL that was given; None for the default of the format.
    location: str | None = None
    at: UtcTime

    @property
    def table_id(self) -> str:
        """The id of this record."""
        return self.load_id

    @property
    def place(self) -> tuple[str | None, ...]:
        """Where the table is, as `add` was told."""
        return self.format, self.table, self.catalog, self.identifier, self.location

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return self.identifier or self.location or self.table


@dataclass(frozen=True, slots=True)
class TableRecords:
    """Reads and creates the records of a dataset's tables."""

    ledger: Ledger

    def tables(self) -> list[RegisteredTable]:
        """Return the tables of the dataset, in the order of their registration.

        Raises:
            StorageRefused: The record of a table cannot be read.
        """
        ids = (name.rpartition("/")[2].removesuffix(".json") for name in self.ledger.storage.list(layout.TABLES))
        found = [self.ledger.read_record(_record(table_id), table_id, RegisteredTable) for table_id in ids]
        return sorted((each for each in found if each is not None), key=lambda each: (each.at, each.table_id))

    def register(self, table: RegisteredTable) -> RegisteredTable:
        """Record a table and return the recorded one: this one, or an earlier one with the same id."""
        return self.ledger.create_record(_record(table.table_id), table)[0]

    def unregister(self, table: RegisteredTable) -> None:
        """Remove the record of a table. What it has committed stays on record, in case the table is added again."""
        self.ledger.storage.delete(_record(table.table_id))

    def committed(self, table: RegisteredTable) -> dict[str, str]:
        """Return the loads that are on record as committed, with ADDED or REMOVED; one listing."""
        found: dict[str, str] = {}
        for name in self.ledger.storage.list(f"{layout.COMMITTED}/{table.table_id}"):
            load_id, _, what = name.rpartition("/")[2].partition(".")
            if found.get(load_id) != REMOVED:
                found[load_id] = what
        return found

    def record_committed(self, table: RegisteredTable, loads: Mapping[str, str]) -> None:
        """Record that a table has committed loads, with ADDED or REMOVED for each."""
        storage = self.ledger.storage
        names = [f"{layout.COMMITTED}/{table.table_id}/{load_id}.{what}" for load_id, what in loads.items()]
        for _ in parallel.in_order(names, lambda name: storage.create(name, b""), threads=parallel.readers(storage)):
            pass


def _record(table_id: str) -> str:
    return f"{layout.TABLES}/{table_id}.json"


def add(
    root: RootPath,
    format: str,
    *,
    table: str = "documents",
    catalog: str | None = None,
    identifier: str | None = None,
    location: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> RegisteredTable:
    """Register a table of a dataset, creating it if it does not exist; return its record. Nothing is committed yet.

    Args:
        root: The dataset; something must have landed in it.
        format: delta or iceberg.
        table: documents or page_errors.
        catalog: For Iceberg: the name of a catalog, which pyiceberg finds in its configuration or environment.
        identifier: For Iceberg: the name of the table in the catalog, such as web.documents.
        location: The path or URL of the table's folder. Default: `<root>/delta/<table>`; for Iceberg, where the catalog
            puts it.
        storage_options: Options for the file system of the root, as fsspec takes them.
        table_options: Settings of the storage or the catalog for deltalake or pyiceberg. Default: their environment.

    Raises:
        InvalidOption: There is no such format or table; catalog and identifier do not suit the format; or the table is
            that of another dataset or of another table of this one.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: The root holds no dataset; the table cannot be opened or created; or a table
            of this name is registered and was dropped and created again.
    """
    _check_arguments(format, table, catalog, identifier)
    dataset = open_dataset(root, storage_options=storage_options)
    refuse_memory(dataset, "one process", hint="A table needs files that other programs can read.")
    layout.check_holds_dataset(dataset.storage)
    if location is not None:
        _check_apart(dataset, open_dataset(location, storage_options=storage_options).url)
    record = RegisteredTable(
        load_id="",
        format=format,
        table=table,
        uuid="",
        catalog=catalog,
        identifier=identifier,
        location=location,
        at=utc_now(),
    )
    lake = _open(dataset, record, table_options, create=True)
    record = replace(record, load_id=load_id_of("table", format, table, lake.uuid), uuid=lake.uuid)
    records = TableRecords(dataset.ledger)
    tables = records.tables()
    name = identifier or lake.location
    if any(each.uuid == lake.uuid and each.table != table for each in tables):
        raise InvalidOption(f"{name} has the rows of another table of this dataset.", hint="Give another name.")
    for each in tables:
        if each.place == record.place:
            check_same(each, lake)
    # A table with records may name the same root with another path.
    known = any(each.table_id == record.table_id for each in tables) or records.committed(record)
    if not known and lake.dataset not in (None, dataset.url):
        raise InvalidOption(
            f"{name} is a table of the dataset {lake.dataset}: load ids are unique in a dataset only.",
            hint="Give another name.",
        )
    return records.register(record)


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

    Args:
        root: The dataset.
        format: delta or iceberg.
        name: The table's identifier or location, or the table of the dataset. Default: the only table of this format.
        catalog: For Iceberg: the catalog, where the dataset has tables of this identifier in several catalogs.
        storage_options: As in `add`.

    Raises:
        InvalidOption: The dataset has no such table, or several.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    named = select_tables(dataset, format, name, catalog)
    exact = [each for each in named if each.name == name] or named
    if len(exact) != 1:
        found = ", ".join(f"{each.name} in catalog {each.catalog}" if each.catalog else each.name for each in exact)
        raise InvalidOption(
            f"{dataset.url} has {len(exact)} {format} tables that this may mean: {found}.",
            hint="Name the table and, for Iceberg, the catalog.",
        )
    TableRecords(dataset.ledger).unregister(exact[0])
    return exact[0]


def select_tables(
    dataset: Dataset, format: str | None, name: str | None, catalog: str | None = None
) -> list[RegisteredTable]:
    """Return the tables of a dataset with this format, name and catalog; None stands for all of them.

    Raises:
        InvalidOption: There is no such table.
    """
    tables = TableRecords(dataset.ledger).tables()
    found = [
        each
        for each in tables
        if format in (None, each.format) and name in (None, each.name, each.table) and catalog in (None, each.catalog)
    ]
    if found:
        return found
    if not tables:
        raise InvalidOption(
            f"{dataset.url} has no Delta Lake or Iceberg table.", hint=Remedy("Add one with {add_table}.")
        )
    known = ", ".join(f"{each.format} {each.name}" for each in tables)
    raise InvalidOption(f"{dataset.url} has no such table.", hint=f"Its tables: {known}.")


def open_lake_table(dataset: Dataset, table: RegisteredTable, options: Mapping[str, str] | None) -> LakeTable:
    """Open a registered table; `options` are settings for deltalake or pyiceberg.

    Raises:
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: There is no table, it cannot be read, or it is another one than the registered one.
    """
    lake = _open(dataset, table, options)
    check_same(table, lake)
    return lake


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


def _check_arguments(format: str, table: str, catalog: str | None, identifier: str | None) -> None:
    if format not in FORMATS:
        raise InvalidOption(f"There is no table format {format!r}.", hint=f"Formats: {', '.join(FORMATS)}.")
    if table not in layout.LOAD_TABLES:
        raise InvalidOption(
            f"No Delta Lake or Iceberg table can have the rows of {table!r}.",
            hint=f"Tables: {', '.join(layout.LOAD_TABLES)}.",
        )
    if (catalog is not None, identifier is not None) != (format == "iceberg",) * 2:
        raise InvalidOption(
            "An Iceberg table has a catalog and an identifier, a Delta Lake table has neither.",
            hint="Give catalog and identifier with iceberg, and leave them out with delta.",
        )
    if identifier is not None and not all(identifier.rpartition(".")[::2]):
        raise InvalidOption(
            f"{identifier!r} is not the name of an Iceberg table in a namespace.",
            hint="Give NAMESPACE.TABLE, such as web.documents.",
        )


def _check_apart(dataset: Dataset, location: str) -> None:
    """Refuse a location that shares files with the dataset: a VACUUM of the table would delete them."""
    folder = location.removeprefix(f"{dataset.url}/").partition("/")[0]
    if f"{dataset.url}/".startswith(location.rstrip("/") + "/") or folder in (*layout.LOAD_TABLES, layout.ROOT_RECORDS):
        raise InvalidOption(
            f"{location} has files of the dataset below it, or is below them: VACUUM of the table would delete them.",
            hint=f"Give a location apart from them, such as {dataset.url}/{layout.DELTA}/documents.",
        )


def _open(
    dataset: Dataset, table: RegisteredTable, options: Mapping[str, str] | None, *, create: bool = False
) -> LakeTable:
    keys = dataset.layout.keys(table.table)
    if table.catalog is not None and table.identifier is not None:
        from weblake.tables import iceberg

        return iceberg.open_table(
            table.catalog,
            table.identifier,
            table.table,
            keys,
            dataset.url,
            options,
            location=table.location,
            create=create,
        )
    from weblake.tables import delta

    folder = f"{layout.DELTA}/{table.table}"
    local = dataset.storage.local_path(folder)
    location = table.location or (str(local) if local is not None else f"{dataset.url.rstrip('/')}/{folder}")
    return delta.open_table(location, table.table, keys, dataset.url, options, create=create)
