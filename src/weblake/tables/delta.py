"""Delta Lake: the table has a folder of its own, by default below the dataset's root.

A load is an application transaction of the log, `weblake:<load_id>`: version 1 is its addition, version 2 its removal.
Of two programs that commit the same load at the same time, the log lets one succeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weblake.arrow import schemas
from weblake.errors import FeatureMissing, Remedy, StorageRefused
from weblake.tables.formats import ADDED, REMOVED, Change, CommitConflict, first_line

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VERSIONS = {ADDED: 1, REMOVED: 2}
#: The first columns of the table: the log has their minimum and maximum, by which readers skip files.
_PRUNED = ("load_id", "url", "source_url", "page_key", "status_code", "position", "loaded_at", "outcome", "occurred_at")
#: The table's property for the number of columns, from the first one, with these statistics; by default 32.
_INDEXED = "delta.dataSkippingNumIndexedCols"
#: How the description of a table begins that names the dataset whose rows it has.
_OF = "weblake dataset "
#: Rows of a row group of the table's files: deltalake holds one group of each open file in memory.
_GROUP_ROWS = 1024
#: Loads of a commit from which on a checkpoint follows: each lookup of a load reads the log since the last one.
_CHECKPOINT_FROM = 100
#: Words of errors that a repetition does not help: a constraint or property of the table refuses the rows, or
#: deltalake lacks one of its features.
_PERMANENT = re.compile("Unsupported|not supported|append-only|failed validation|Invalid data|Schema|Cast error")


def open_table(
    location: str,
    table: str,
    keys: Sequence[str],
    dataset: str,
    options: Mapping[str, str] | None = None,
    *,
    create: bool = False,
) -> DeltaLakeTable:
    """Return the Delta Lake table at a location; with `create`, create it if there is none.

    The path keys become columns, and partition a new table. `dataset` is the dataset's URL. The other arguments and the
    errors are those of `tables.add`.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        raise FeatureMissing("A Delta Lake table needs deltalake.", hint="pip install 'weblake[delta]'") from None
    if "%" in location:
        raise StorageRefused(
            f"The path {location} has %: deltalake would look elsewhere.",
            hint="Give the table a location without this character.",
        )
    found = dict(options or {})
    if create:
        columns = sorted(schemas.with_keys(table, keys), key=lambda each: each.name not in _PRUNED)
        with _translated(location, "created"):
            try:
                DeltaTable.create(
                    location,
                    pa.schema(columns),
                    mode="ignore",
                    partition_by=list(keys),
                    name=f"weblake {table}",
                    description=f"{_OF}{dataset}",
                    configuration={_INDEXED: str(sum(each.name in _PRUNED for each in columns))},
                    storage_options=found or None,
                )
            except DeltaError:
                if not DeltaTable.is_deltatable(location, found or None):
                    raise  # otherwise another process was first
    return DeltaLakeTable(location, found)


class DeltaLakeTable:
    """A Delta Lake table with the rows of one table of a dataset."""

    def __init__(self, location: str, options: dict[str, str]) -> None:
        self.location, self._options = location, options
        self.refresh()

    def refresh(self) -> None:
        """Read the current version of the log."""
        from deltalake import DeltaTable

        with _translated(self.location):
            self._table: DeltaTable = DeltaTable(self.location, storage_options=self._options or None)

    @property
    def uuid(self) -> str:
        """The id in the table's metadata."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        """The version of the log."""
        return self._table.version()

    @property
    def dataset(self) -> str | None:
        """The URL of the dataset in the table's description."""
        found = self._table.metadata().description or ""
        return found.removeprefix(_OF) if found.startswith(_OF) else None

    def count_rows(self) -> int:
        """Return the number of rows of the table, from the statistics in the log."""
        with _translated(self.location):
            return self._table.count()

    def committed(self, load_ids: Iterable[str]) -> dict[str, str]:
        """Return those of the loads that have an application transaction, with ADDED or REMOVED."""
        what = {version: name for name, version in _VERSIONS.items()}
        with _translated(self.location):
            found = {load_id: self._table.transaction_version(f"weblake:{load_id}") for load_id in load_ids}
        return {load_id: what[version] for load_id, version in found.items() if version is not None}

    def commit(self, change: Change) -> None:
        """Append and take out loads in one version of the log.

        Rows are taken out on the version that was read or not at all: no other program has moved them since.

        Raises:
            CommitConflict: Another program has committed one of the loads or changed their rows; or the outcome is
                unknown.
            StorageRefused: The table does not take the rows.
        """
        from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake

        loads = [(file.load_id, ADDED) for file in change.add] + [(load_id, REMOVED) for load_id in change.remove]
        transactions = [Transaction(f"weblake:{load_id}", _VERSIONS[what]) for load_id, what in loads]
        named = ", ".join(f"'{load_id}'" for load_id in (*change.present, *(file.load_id for file in change.add)))
        options: dict[str, Any] = {
            "schema_mode": "merge",
            "writer_properties": WriterProperties(compression="ZSTD", max_row_group_size=_GROUP_ROWS),
            "commit_properties": CommitProperties(
                app_transactions=transactions, max_commit_retries=0 if change.present else None
            ),
        }
        with _translated_commit(self.location):
            if change.present:
                predicate = f"load_id IN ({named})"
                write_deltalake(self._table, change.reader(), mode="overwrite", predicate=predicate, **options)
            else:
                write_deltalake(self._table, change.reader(), mode="append", **options)
        if len(loads) >= _CHECKPOINT_FROM:
            with suppress(Exception):  # the table is complete without it
                self.refresh()
                self._table.create_checkpoint()

    def loads(self) -> dict[str, int]:
        """Return the rows of each load in the table; reads the column load_id of all files."""
        from deltalake import QueryBuilder

        with _translated(self.location):
            query = "SELECT load_id, count(*) AS rows FROM loads WHERE load_id IS NOT NULL GROUP BY load_id"
            found = pa.table(QueryBuilder().register("loads", self._table).execute(query))
        return dict(zip(found["load_id"].to_pylist(), found["rows"].to_pylist(), strict=True))


@contextmanager
def _translated(location: str, doing: str = "read") -> Iterator[None]:
    """Translate the errors of reading or creating the table: the user sees what could not be done, and no traceback."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        yield
    except TableNotFoundError:
        raise StorageRefused(
            f"{location} has no Delta Lake log.",
            hint=Remedy("Remove it with {remove_table}, and add it again with {add_table}."),
        ) from None
    except (DeltaError, OSError, pa.ArrowException) as error:  # Arrow's error: of a query, such as a missing file
        raise StorageRefused(
            f"The Delta Lake table {location} cannot be {doing}: {first_line(error)}.",
            hint="Check the settings of its storage in the environment, such as AWS_…, whether deltalake is new enough "
            "for its features, and whether another program has changed it.",
        ) from error


@contextmanager
def _translated_commit(location: str) -> Iterator[None]:
    """Translate the errors of a commit: another program has committed first, or the outcome is unknown."""
    from deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        if isinstance(error, (DeltaProtocolError, SchemaMismatchError)) or _PERMANENT.search(str(error)):
            raise StorageRefused(
                f"The Delta Lake table {location} does not take the rows of the dataset: {first_line(error)}.",
                hint="Its columns, constraints or features were changed by another program: change them back.",
            ) from error
        raise CommitConflict(first_line(error)) from error
