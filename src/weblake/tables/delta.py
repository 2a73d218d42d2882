"""Delta Lake: the log is in the folder of the dataset's table and names the files of the loads where they are.

A load is an application transaction of the log, `weblake:<load_id>`: version 1 is its addition, version 2 its removal.
Of two programs that commit the same load at the same time, the log lets one succeed. A commit that takes files out is
not repeated by deltalake on a newer version of the log: there, the table's own maintenance may have merged these files
with others, which deltalake does not notice.

The tables of usage_periods and activity have a folder of their own with copies of the dataset's files. A file is an
application transaction, too, of version 1 at each replacement.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import arrow_files, layout, parallel
from weblake.dataset.registered_tables import file_id_of
from weblake.errors import FeatureMissing, StorageRefused
from weblake.storage import Storage
from weblake.tables.changes import refuse
from weblake.tables.delta_actions import (
    ADDED,
    REMOVED,
    add_action,
    path_in_log,
    remove_action,
    transaction,
    transaction_name,
)
from weblake.tables.delta_errors import translate_commit_errors, translate_read_errors
from weblake.tables.delta_protocol import changes_of_table, is_append_only
from weblake.tables.delta_statistics import PRUNED
from weblake.tables.delta_transactions import versions_of
from weblake.tables.formats import CommitConflict, LoadFile, contents_of, copy_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: The table's property for the number of columns, from the first one, whose statistics readers use and writers collect;
#: by default 32, which would leave out `loaded_at`. delta-rs does not read statistics of columns given by name.
_INDEXED = "delta.dataSkippingNumIndexedCols"
#: The table's property after whose time the log drops application transactions; tables do not have it by default.
EXPIRY = "delta.setTransactionRetentionDuration"
#: Loads of a commit from which on a checkpoint follows. Without it a lookup in the log takes 16 ms after 5,000 loads,
#: and with it 2 ms: the time for the backlog of a large dataset would grow with the square of its loads.
_CHECKPOINT_FROM = 100


def open_table(
    storage: Storage, table: str, options: Mapping[str, str] | None = None, *, create: bool = False
) -> DeltaLakeTable:
    """Return the Delta Lake table of a dataset's table; with `create`, create it if there is none.

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
        columns = schemas.with_keys(table, self._keys)
        self._schema = pa.schema(sorted(columns, key=lambda each: each.name not in PRUNED))
        #: The columns by which a sync finds the rows that it takes out.
        self._row_keys = layout.FIXED_KEYS.get(table, ("load_id",))
        self._name = table
        self._folder = f"{layout.DELTA_COPIES}/{table}" if table in layout.FIXED_KEYS else table
        local = storage.local_path(self._folder)
        self.location = str(local) if local is not None else f"{storage.url.rstrip('/')}/{self._folder}"
        self._table = self._open(create)
        #: Versions of the application transactions that were looked up in this version of the table, by name.
        self._transactions: dict[str, int] = {}

    def _open(self, create: bool) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        with translate_read_errors(self.location, "created" if create else "read"):
            if create:
                try:
                    DeltaTable.create(
                        self.location,
                        self._schema,
                        mode="ignore",
                        partition_by=list(self._keys),
                        name=f"weblake {self._name}",
                        configuration={_INDEXED: str(sum(name in PRUNED for name in self._schema.names))},
                        storage_options=self._options or None,
                    )
                except DeltaError:
                    if not DeltaTable.is_deltatable(self.location, self._options or None):
                        raise  # otherwise another process was first
            return DeltaTable(self.location, storage_options=self._options or None)

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
        """None: the log is in the dataset."""
        return None

    def count_rows(self) -> int:
        """Return the number of rows of the table, from the statistics in the log."""
        with translate_read_errors(self.location):
            return self._table.count()

    def refresh(self) -> None:
        """Read the current version of the log, and add the columns that this weblake lands and the table lacks.

        Columns of the table that this weblake does not know stay, and are null in what it commits without them.

        Raises:
            CommitConflict: Another program has changed the columns at the same time.
            StorageRefused: Another program has changed the partitions; or the table so that files cannot be added.
        """
        self._table = self._open(create=False)
        self._transactions = {}
        found = self._table.metadata().partition_columns
        if found != list(self._keys):
            raise StorageRefused(
                f"The Delta Lake table {self.location} is partitioned by {', '.join(found) or 'nothing'}, and the "
                f"dataset by {', '.join(self._keys)}: a commit would make the table unreadable.",
                hint="Another program has changed it: restore an earlier version of the table.",
            )
        with translate_read_errors(self.location):
            changes = list(changes_of_table(self._table, self._schema, self._row_keys))
        refuse(f"The Delta Lake table {self.location}", changes)
        if self._add_columns(self._schema):
            self._table = self._open(create=False)

    @property
    def append_only(self) -> bool:
        """Whether the table's property forbids to take rows out of it."""
        return is_append_only(self._table)

    def _columns(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def _add_columns(self, wanted: Iterable[pa.Field]) -> bool:
        """Add to the table those of the columns that it lacks; return whether it lacked any."""
        from deltalake import Schema

        known = self._columns().names
        missing = [field for field in wanted if field.name not in known]
        if missing:
            with translate_commit_errors(self.location):
                self._table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
        return bool(missing)

    def added(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the log names as added; a removed load was added, too."""
        return {load_id for load_id, version in self._looked_up(load_ids).items() if version >= ADDED}

    def removed(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the log names as removed."""
        return {load_id for load_id, version in self._looked_up(load_ids).items() if version >= REMOVED}

    def _looked_up(self, load_ids: Iterable[str]) -> dict[str, int]:
        """Return the versions of the loads' application transactions in this version of the table; 0 for none."""
        names = {load_id: transaction_name(load_id) for load_id in load_ids}
        new = [name for name in names.values() if name not in self._transactions]
        with translate_read_errors(self.location):
            self._transactions |= versions_of(self._storage, self._folder, self._table, new)
        return {load_id: self._transactions[name] for load_id, name in names.items()}

    def with_rows(self, load_ids: Sequence[str]) -> set[str]:
        """Return those of the loads that have rows in the table; none while application transactions do not expire."""
        if not load_ids or EXPIRY not in self._table.metadata().configuration:
            return set()
        named = ", ".join(f"'{load_id}'" for load_id in load_ids)
        found = self._query(f"SELECT DISTINCT load_id FROM loads WHERE load_id IN ({named})")  # noqa: S608 - ids
        return set(found["load_id"].to_pylist())

    def file_names(self) -> set[str]:
        """Return the names of the files of the version."""
        return {_file_name(path) for path in self._paths()}

    def has_merged_files(self) -> bool:
        """Return whether the version has files that the table's maintenance has written, or deletion vectors."""
        return not all(map(layout.is_data, self._paths())) or bool(self._with_deletion_vector())

    def commit(self, add: Sequence[LoadFile], remove: Sequence[LoadFile]) -> None:
        """Add and remove loads in one version of the log, and read it.

        Raises:
            CommitConflict: Another program has committed one of the loads, or the outcome is unknown.
        """
        from deltalake import CommitProperties

        there = self._paths() if any(each.path for each in remove) else set()
        marked = self._with_deletion_vector() if there else set()
        rewritten = any(
            each.path and (path_in_log(self._folder, each.path) not in there or _file_name(each.path) in marked)
            for each in remove
        )
        loads = [transaction(each.load_id, ADDED) for each in add]
        loads += [transaction(each.load_id, REMOVED) for each in remove]
        properties = CommitProperties(app_transactions=loads, max_commit_retries=0 if there else None)
        now = int(time.time() * 1000)
        with translate_commit_errors(self.location):
            if rewritten:
                # The table's own maintenance has merged a file with others, or another program has deleted rows of it:
                # the rows of the load are removed, not the file.
                self._check_newest()
                self._remove_missing([each for each in remove if each.path and _file_name(each.path) not in marked])
                self._overwrite(add, remove, properties)
            else:
                landed = [each for each in add if each.path is not None]
                threads = parallel.readers(self._storage)
                add_file = partial(add_action, self._storage, self._folder, now=now)
                actions: list[Any] = list(parallel.in_order(landed, add_file, threads=threads))
                actions += [remove_action(self._folder, each, now=now) for each in remove if each.path is not None]
                self._write(actions, properties)
            self.refresh()
        if len(loads) >= _CHECKPOINT_FROM:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Write a checkpoint, so that the lookup of each load of the next commit does not read all of this one."""
        from deltalake.exceptions import DeltaError

        with suppress(DeltaError, OSError):  # the table is complete without it
            self._table.create_checkpoint()
            self._table = self._open(create=False)

    def _write(self, actions: list[Any], properties: Any) -> None:
        schema, keys = self._table.schema(), list(self._keys)
        self._table.create_write_transaction(actions, "append", schema, keys, commit_properties=properties)

    def contents(self) -> dict[str, tuple[str, ...]]:
        """Return the digest of each file's content in the table, by file id."""
        return contents_of(self._paths())

    def copy(self, path: str, data: bytes) -> LoadFile:
        """Copy the content of a dataset's file to a new file of the table, which no version names yet; return it."""
        folder = path.rpartition("/")[0]
        name = f"{layout.DELTA_COPIES}/{folder}/{copy_name(path, data)}"
        with self._storage.scratch() as scratch:
            (scratch / "copy.parquet").write_bytes(data)
            self._storage.publish(scratch / "copy.parquet", name)
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
        return LoadFile(file_id_of(path), name, rows, len(data), layout.keys_of(path))

    def replace(self, files: Sequence[LoadFile]) -> None:
        """Commit copies, each in the place of all rows with its path keys, and read the new version.

        Raises:
            CommitConflict: Another program has committed one of the files, or the outcome is unknown.
        """
        from deltalake import CommitProperties

        now = int(time.time() * 1000)
        old: dict[tuple[str, ...], list[LoadFile]] = {}
        for each in self._files().to_pylist():
            keys = {key: str(each[f"partition.{key}"]) for key in self._keys}
            path = f"{self._folder}/{unquote(each['path'])}"
            old.setdefault(tuple(keys.values()), []).append(LoadFile("", path, 0, each["size_bytes"], keys))
        gone = [before for each in files for before in old.get(tuple(each.keys.values()), ())]
        marked = self._with_deletion_vector()
        if any(_file_name(str(each.path)) in marked for each in gone):
            raise StorageRefused(
                f"The Delta Lake table {self.location} has deletion vectors: only rows of a copy were deleted.",
                hint="Rewrite these files (OPTIMIZE, or REORG TABLE … APPLY (PURGE)), and sync again.",
            )
        transactions = [transaction(each.load_id, ADDED) for each in files]
        properties = CommitProperties(app_transactions=transactions, max_commit_retries=0)
        actions: list[Any] = [add_action(self._storage, self._folder, each, now=now) for each in files]
        actions += [remove_action(self._folder, each, now=now) for each in gone]
        with translate_commit_errors(self.location):
            self._write(actions, properties)
            self.refresh()

    def _paths(self) -> set[str]:
        return {unquote(path) for path in self._files().column("path").to_pylist()}

    def _files(self) -> pa.Table:
        with translate_read_errors(self.location):
            return pa.table(self._table.get_add_actions(flatten=True))

    def _with_deletion_vector(self) -> set[str]:
        """Return the names of the files whose deleted rows are listed beside them, as Spark and Databricks do it.

        An action that removes such a file has to name its list, which deltalake's actions cannot: readers ignore it.
        """
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return set()
        with translate_read_errors(self.location):
            found = pa.table(self._table.deletion_vectors()).column("filepath").to_pylist()
        return {_file_name(unquote(path)) for path in found}

    def _rows_of(self, files: Sequence[LoadFile]) -> pa.Table:
        """Return the rows of files, with the columns of the table.

        Raises:
            CommitConflict: A newer weblake has landed columns that the table lacked; they are added now.
        """
        tables = []
        for file in files:
            assert file.path is not None
            with self._storage.open_input(file.path) as source:
                tables.append(arrow_files.append_keys(pq.read_table(source), file.keys))
        whole = pa.concat_tables(tables, promote_options="default")
        if self._add_columns(whole.schema):
            raise CommitConflict("the table lacked columns of a load")
        for column in self._columns():
            if column.name not in whole.column_names:
                whole = whole.append_column(column.name, pa.nulls(whole.num_rows, column.type))
        return whole.select(self._columns().names)

    def _check_newest(self) -> None:
        """Refuse to look for a file in a version that is older than the record of its load.

        Raises:
            CommitConflict: Another sync has added the load since this one has read the table.
        """
        if self._open(create=False).version() != self.version:
            raise CommitConflict("another program has committed since the table was read")

    def _remove_missing(self, loads: Sequence[LoadFile]) -> None:
        """Take out the files of loads that are gone: a search for rows would read them, and fail at each attempt.

        So it is after the table was removed from the dataset, which deletes the files of replaced loads, and added
        again. The rows are lost for every reader, so a version without them comes first.

        Raises:
            CommitConflict: Files were taken out: look at the table again.
        """
        there = self._paths()
        named = [each for each in loads if each.path and path_in_log(self._folder, each.path) in there]
        gone = [each for each in named if each.path and not self._storage.exists(each.path)]
        if gone:
            from deltalake import CommitProperties

            now = int(time.time() * 1000)
            actions = [remove_action(self._folder, each, now=now) for each in gone]
            self._write(actions, CommitProperties(max_commit_retries=0))
            raise CommitConflict("the table named files that are gone; they are taken out now")

    def _overwrite(self, add: Sequence[LoadFile], remove: Sequence[LoadFile], properties: Any) -> None:
        """Replace rows of loads in files that the table's maintenance has written, in one commit."""
        from deltalake import write_deltalake

        files = [each for each in add if each.path is not None]
        named = ", ".join(f"'{each.load_id}'" for each in (*remove, *files))
        if not files:
            before = self.version
            self._table.delete(f"load_id IN ({named})", commit_properties=properties)
            if self.version == before:  # no row was left; the log has to name the loads all the same
                self._write([], properties)
            return
        write_deltalake(
            self._table,
            self._rows_of(files),
            mode="overwrite",
            predicate=f"load_id IN ({named})",
            commit_properties=properties,
        )

    def loads(self) -> dict[str, int]:
        """Return the rows of each load in the table; reads the column load_id of all files.

        By deltalake's own reader: its dataset for pyarrow refuses tables with deletion vectors or mapped columns.
        """
        found = self._query("SELECT load_id, count(*) AS rows FROM loads GROUP BY load_id")
        return dict(zip(found["load_id"].to_pylist(), found["rows"].to_pylist(), strict=True))

    def _query(self, sql: str) -> pa.Table:
        from deltalake import QueryBuilder

        with translate_read_errors(self.location):
            return pa.table(QueryBuilder().register("loads", self._table).execute(sql))


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
