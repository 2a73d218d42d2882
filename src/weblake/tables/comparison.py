"""Compare the tables of a dataset with its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weblake.dataset import ledger_listing
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.storage import RootPath
from weblake.tables.formats import ADDED, REMOVED, TableResult, file_of
from weblake.tables.registration import RegisteredTable, TableRecords, open_lake_table, select_tables


@dataclass(frozen=True, slots=True)
class TableStatus(TableResult):
    """A comparison of a table with the ledger of its dataset, load by load.

    What another program has deleted or restored is reported, and is no difference: the table is that program's, too.
    """

    #: Loads that have landed and were not replaced, and have rows in this table of the dataset.
    loads: int
    #: Rows of the table.
    rows: int
    #: Loads whose rows the table lacks; the next sync adds them.
    missing: tuple[str, ...]
    #: Loads that a sync has added, and of which another program has deleted rows; no sync adds them again.
    deleted: tuple[str, ...]
    #: Replaced loads whose rows are still in the table; the next sync takes them out.
    retired: tuple[str, ...]
    #: Replaced loads that a sync has taken out, and another program has brought back; no sync takes them out again.
    restored: tuple[str, ...]
    #: Loads that have more rows in the table than in the dataset.
    different: tuple[str, ...]
    #: Load ids in the table that the ledger does not know.
    unknown: tuple[str, ...]

    @property
    def in_step(self) -> bool:
        """Whether the table has the rows of the loads that count, but for what other programs deleted or restored."""
        return not any((self.missing, self.retired, self.different, self.unknown))

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

    The whole ledger is read, and the column load_id of the table.

    Raises:
        InvalidOption: The dataset has no such table.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: A table or a record cannot be read, or a table is another one than the registered one.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    wanted = select_tables(dataset, format, name)
    rows: dict[str, dict[str, int]] = {table.table_id: {} for table in wanted}
    retired: set[str] = set()
    for load in ledger_listing.loads_of(dataset.ledger, ledger_listing.steps(dataset.ledger)):
        if load.unreadable is not None:
            raise StorageRefused(load.unreadable, hint="Restore it from a backup.")
        if load.retired is not None:
            retired.add(load.load_id)
        elif load.done is not None:
            retired.update(load.done.retired)  # a sync does not wait for the records of these
            receipt = Receipt.from_dict(load.done.receipt)
            for table in wanted:
                file = file_of(table.table, load.load_id, receipt)
                if file.path is not None:
                    rows[table.table_id][load.load_id] = file.rows
    return [_compare(dataset, table, rows[table.table_id], retired, table_options) for table in wanted]


def _compare(
    dataset: Dataset,
    table: RegisteredTable,
    landed: Mapping[str, int],
    retired: set[str],
    options: Mapping[str, str] | None,
) -> TableStatus:
    rows = {load_id: count for load_id, count in landed.items() if load_id not in retired}
    known = TableRecords(dataset.ledger).committed(table)  # before the table is read
    lake = open_lake_table(dataset, table, options)
    there = lake.loads()
    fewer = {load_id for load_id, count in rows.items() if there.get(load_id, 0) < count}
    present = there.keys() & retired
    known |= lake.committed([load_id for load_id in fewer | present if known.get(load_id) != REMOVED])
    missing = {load_id for load_id in fewer if known.get(load_id) != ADDED}
    restored = {load_id for load_id in present if known.get(load_id) == REMOVED}
    return TableStatus(
        format=table.format,
        table=table.table,
        identifier=table.identifier,
        location=lake.location,
        version=lake.version,
        loads=len(rows),
        rows=sum(there.values()),
        missing=tuple(sorted(missing)),
        deleted=tuple(sorted(fewer - missing)),
        retired=tuple(sorted(present - restored)),
        restored=tuple(sorted(restored)),
        different=tuple(sorted(load_id for load_id, count in rows.items() if there.get(load_id, 0) > count)),
        unknown=tuple(sorted(there.keys() - rows.keys() - retired)),
    )
