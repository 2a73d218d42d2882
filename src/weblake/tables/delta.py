"""Delta Lake: the log is in the folder of the dataset's table and names the files of the loads where they are.

A load is an application transaction of the log, `weblake:<load_id>`: version 1 is its addition, version 2 its removal.
Of two programs that commit the same load at the same time, the log lets one succeed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import arrow_files, layout
from weblake.errors import FeatureMissing, StorageRefused
from weblake.remedies import Remedy
from weblake.storage import Storage
from weblake.tables.formats import CommitConflict, LoadFile, first_line, rows_by_load

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ADDED, _REMOVED = 1, 2
#: Columns whose minimum, maximum and number of nulls the log holds: readers skip files by them.
_PRUNED = ("load_id", "url", "source_url", "status_code", "position", "loaded_at", "outcome", "occurred_at")
#: The table's property for the number of columns, from the first one, whose statistics readers use and writers collect;
#: by default 32, which would leave out `loaded_at`. delta-rs does not read statistics of columns given by name.
_INDEXED = "delta.dataSkippingNumIndexedCols"


def open_table(
    storage: Storage, table: str, options: Mapping[str, str] | None = None, *, create: bool = False
) -> DeltaLakeTable:
    """Return the Delta Lake table in a table's folder; with `create`, create it if there is none.

    Raises:
        FeatureMissing: deltalake is not installed.
        StorageRefused: There is no table, or it cannot be read or created.
    """
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise FeatureMissing("A Delta Lake table needs deltalake.", hint="pip install 'weblake[delta]'") from None
    return DeltaLakeTable(storage, table, dict(options or {}), create=create)


class DeltaLakeTable:
    """A Delta Lake table over the files of one table of a dataset."""

    def __init__(self, storage: Storage, table: str, options: dict[str, str], *, create: bool) -> None:
        self._storage, self._options = storage, options
        self._keys = layout.Layout(storage).keys(table)
        self._schema = pa.schema(
            sorted(schemas.with_keys(table, self._keys), key=lambda each: each.name not in _PRUNED)
        )
        self._folder = table
        local = storage.local_path(table)
        self.location = str(local) if local is not None else f"{storage.url.rstrip('/')}/{table}"
        self._table = self._open(create)

    def _open(self, create: bool) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if create:
                DeltaTable.create(
                    self.location,
                    self._schema,
                    mode="ignore",
                    partition_by=list(self._keys),
                    name=f"weblake {self._folder}",
                    configuration={_INDEXED: str(sum(name in _PRUNED for name in self._schema.names))},
                    storage_options=self._options or None,
                )
            return DeltaTable(self.location, storage_options=self._options or None)
        except TableNotFoundError:
            raise StorageRefused(
                f"{self.location} has no Delta Lake log.", hint=Remedy("Add the table again with {add_table}.")
            ) from None
        except (DeltaError, OSError) as error:
            raise StorageRefused(
                f"The Delta Lake table {self.location} cannot be opened: {first_line(error)}.",
                hint="Check the settings of its storage in the environment, such as AWS_….",
            ) from error

    @property
    def uuid(self) -> str:
        """The id in the table's metadata."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        """The version of the log."""
        return self._table.version()

    def count_rows(self) -> int:
        """Return the number of rows of the table, from the statistics in the log."""
        return self._table.count()

    def refresh(self) -> None:
        """Read the current version of the log, and add the columns that a newer weblake lands."""
        self._table = self._open(create=False)
        known = {field.name for field in self._table.schema().fields}
        missing = [field for field in self._schema if field.name not in known]
        if missing:
            from deltalake import Schema

            self._table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
            self._table = self._open(create=False)

    def added(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the log names as added; a removed load was added, too."""
        return {load_id for load_id in load_ids if self._transaction(load_id) >= _ADDED}

    def removed(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the log names as removed."""
        return {load_id for load_id in load_ids if self._transaction(load_id) >= _REMOVED}

    def _transaction(self, load_id: str) -> int:
        return self._table.transaction_version(f"weblake:{load_id}") or 0

    def commit(self, add: Sequence[LoadFile], remove: Sequence[LoadFile]) -> None:
        """Add and remove loads in one version of the log, and read it.

        Raises:
            CommitConflict: Another program has committed one of the loads, or the outcome is unknown.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import Transaction

        there = self._paths() if any(each.path for each in remove) else set()
        rewritten = any(each.path and _relative(each.path, self._folder) not in there for each in remove)
        loads = [Transaction(f"weblake:{each.load_id}", _ADDED) for each in add]
        loads += [Transaction(f"weblake:{each.load_id}", _REMOVED) for each in remove]
        properties = CommitProperties(app_transactions=loads)
        now = int(time.time() * 1000)
        try:
            if rewritten:
                # The table's own maintenance has merged a file with others: its rows are removed, not the file.
                self._overwrite(add, remove, properties)
                self.refresh()
                return
            actions = [self._add(each, now) for each in add if each.path is not None]
            actions += [self._remove(each, now) for each in remove if each.path is not None]
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), list(self._keys), commit_properties=properties
            )
            self.refresh()
        except (CommitFailedError, DeltaError) as error:
            raise CommitConflict(first_line(error)) from error

    def _paths(self) -> set[str]:
        actions = pa.table(self._table.get_add_actions(flatten=True))
        return {unquote(path) for path in actions.column("path").to_pylist()}

    def _add(self, file: LoadFile, now: int) -> Any:
        from deltalake.transaction import AddAction

        assert file.path is not None
        return AddAction(
            path=_relative(file.path, self._folder),
            size=file.bytes,
            partition_values=dict(file.keys),
            modification_time=now,
            data_change=True,
            stats=json.dumps(self._statistics(file)),
        )

    def _remove(self, file: LoadFile, now: int) -> Any:
        from deltalake.transaction import RemoveAction

        assert file.path is not None
        return RemoveAction(
            path=_relative(file.path, self._folder),
            data_change=True,
            deletion_timestamp=now,
            size=file.bytes,
            partition_values=dict(file.keys),
        )

    def _statistics(self, file: LoadFile) -> dict[str, object]:
        """Return the statistics of a file in the form of the log, from its footer."""
        assert file.path is not None
        with self._storage.open_input(file.path) as source:
            metadata = pq.read_metadata(source)
        lowest: dict[str, Any] = {}
        highest: dict[str, Any] = {}
        nulls: dict[str, int] = {}
        complete = dict.fromkeys(_PRUNED, True)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for index in range(group.num_columns):
                column = group.column(index)
                name = column.path_in_schema
                if name not in complete:
                    continue
                found = column.statistics
                if found is None or not found.has_min_max:
                    complete[name] = found is not None and found.null_count == group.num_rows
                    nulls[name] = nulls.get(name, 0) + (found.null_count if found is not None else 0)
                    continue
                nulls[name] = nulls.get(name, 0) + found.null_count
                lowest[name] = min(lowest.get(name, found.min), found.min)
                highest[name] = max(highest.get(name, found.max), found.max)
        return {
            "numRecords": metadata.num_rows,
            "minValues": {name: _json(value) for name, value in lowest.items() if complete[name]},
            "maxValues": {name: _json(value) for name, value in highest.items() if complete[name]},
            "nullCount": {name: value for name, value in nulls.items() if complete[name]},
        }

    def _rows_of(self, files: Sequence[LoadFile]) -> pa.Table:
        batches = []
        for file in files:
            assert file.path is not None
            with self._storage.open_input(file.path) as source:
                stored = pq.ParquetFile(source).iter_batches()
                batches += [arrow_files.with_keys(batch, file.keys, self._schema) for batch in stored]
        return pa.Table.from_batches(batches, schema=self._schema)

    def _overwrite(self, add: Sequence[LoadFile], remove: Sequence[LoadFile], properties: Any) -> None:
        """Replace rows of loads in files that the table's maintenance has written, in one commit."""
        from deltalake import write_deltalake

        files = [each for each in add if each.path is not None]
        named = ", ".join(f"'{each.load_id}'" for each in (*remove, *files))
        if not files:
            self._table.delete(f"load_id IN ({named})", commit_properties=properties)
            return
        write_deltalake(
            self._table,
            self._rows_of(files),
            mode="overwrite",
            predicate=f"load_id IN ({named})",
            commit_properties=properties,
        )

    def loads(self) -> dict[str, int]:
        """Return the rows of each load in the table; reads the column load_id of all files."""
        return rows_by_load(self._table.to_pyarrow_dataset().to_batches(columns=["load_id"]))


def _relative(path: str, folder: str) -> str:
    """Return a path relative to the table's folder; deltalake encodes it for the log itself."""
    return path.removeprefix(f"{folder}/")


def _json(value: object) -> object:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value
