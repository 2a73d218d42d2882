"""Apache Iceberg: the table is in a catalog and names the files of the loads where they are.

The summary of each snapshot names the loads that it added and took out. pyiceberg's own retries are off: they commit
again on a newer table without looking whether another program has committed the same load.

The tables of usage_periods and activity have copies of the dataset's files, where the table has its data. Their path
keys are columns, and partition the table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import arrow_files, layout
from weblake.dataset.registered_tables import file_id_of
from weblake.errors import FeatureMissing, StorageRefused
from weblake.storage import Storage
from weblake.tables.changes import refuse
from weblake.tables.formats import CommitConflict, LoadFile, contents_of, copy_name, first_line
from weblake.tables.iceberg_columns import changes_of_table
from weblake.tables.iceberg_commits import keep_commits
from weblake.tables.iceberg_errors import conflict_errors, translate_errors, without_warnings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_ADDED, _REMOVED = "weblake.added", "weblake.removed"
#: The table's property with the URL of its dataset: load ids are unique in a dataset only.
_DATASET = "weblake.dataset"
_RETRIES = "commit.retry.num-retries"
_ENDPOINT = "s3.endpoint"
#: The column whose day partitions the table, where the dataset's table has it.
_PARTITION_COLUMN = "loaded_at"
#: Columns whose whole minimum and maximum the manifests hold. By default they hold the first 16 characters of a text,
#: in which the URLs of a site do not differ.
_FULL_METRICS = ("url", "source_url")
#: Most values of a set for which pyiceberg looks at the statistics of a file; with more, it reads every file.
_MAX_IN_SET = 200


def open_table(
    storage: Storage,
    table: str,
    catalog: str,
    identifier: str,
    options: Mapping[str, str] | None = None,
    *,
    create: bool = False,
) -> IcebergTable:
    """Return a table of a catalog; with `create`, create it and its namespace if they do not exist.

    Raises:
        FeatureMissing: pyiceberg is not installed.
        StorageRefused: There is no such catalog or table, or it cannot be read or created.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise FeatureMissing("An Iceberg table needs pyiceberg.", hint="pip install 'weblake[iceberg]'") from None
    with translate_errors(f"The Iceberg catalog {catalog!r}"):
        found = load_catalog(catalog, **_with_endpoint(catalog, options or {}))
        keep_commits(found)
        if create:
            _create(found, identifier, table, storage.url)
        return IcebergTable(storage, table, found, identifier)


class IcebergTable:
    """An Iceberg table over the files of one table of a dataset."""

    def __init__(self, storage: Storage, table: str, catalog: Catalog, identifier: str) -> None:
        self._storage, self._schema = storage, _schema_of(table)
        self._catalog, self._identifier = catalog, identifier
        self._named = f"The Iceberg table {identifier}"
        #: The columns by which a sync finds the rows that it takes out.
        self._row_keys = layout.FIXED_KEYS.get(table, ("load_id",))
        self._table: Table = catalog.load_table(identifier)
        self._log: dict[str, set[str]] = self._read_log()

    @property
    def uuid(self) -> str:
        """The table's UUID."""
        return str(self._table.metadata.table_uuid)

    @property
    def version(self) -> int:
        """The id of the current snapshot; -1 if there is none."""
        snapshot = self._table.current_snapshot()
        return -1 if snapshot is None else snapshot.snapshot_id

    @property
    def location(self) -> str:
        """The URL of the table's metadata."""
        return self._table.location()

    @property
    def append_only(self) -> bool:
        """False: the format has no such property."""
        return False

    @property
    def dataset(self) -> str | None:
        """The URL of the dataset for which the table was created; None if something else has created it."""
        return self._table.properties.get(_DATASET)

    def count_rows(self) -> int:
        """Return the number of rows of the table, from the summary of its snapshot."""
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    def refresh(self) -> None:
        """Read the current metadata; add the columns that this weblake lands and the table lacks; switch retries off.

        Columns of the table that this weblake does not know stay, and are null in what it commits without them.

        Raises:
            CommitConflict: Another program has changed the columns at the same time.
            StorageRefused: Another program has changed the table so that files cannot be added.
        """
        with translate_errors(self._named):
            self._table = self._catalog.load_table(self._identifier)
            refuse(self._named, changes_of_table(self._table, self._schema, self._row_keys))
            try:
                self._add_columns(self._schema)
                if self._table.properties.get(_RETRIES) != "0":
                    with self._table.transaction() as change:
                        change.set_properties({_RETRIES: "0"})
            except conflict_errors() as error:
                raise CommitConflict(first_line(error)) from error
            self._log = self._read_log()

    def _add_columns(self, wanted: Iterable[pa.Field]) -> bool:
        """Add to the table those of the columns that it lacks; return whether it lacked any."""
        known = self._table.schema().column_names
        missing = [field for field in wanted if field.name not in known]
        if missing:
            with self._table.update_schema() as update:
                update.union_by_name(pa.schema(missing))
        return bool(missing)

    def _read_log(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {_ADDED: set(), _REMOVED: set()}
        for snapshot in self._table.metadata.snapshots:
            properties = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            for name, loads in found.items():
                loads.update(properties.get(name, "").split(","))
        return found

    def added(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that a snapshot names as added."""
        return self._log[_ADDED].intersection(load_ids)

    def removed(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that a snapshot names as taken out."""
        return self._log[_REMOVED].intersection(load_ids)

    def with_rows(self, load_ids: Sequence[str]) -> set[str]:
        """Return those of the loads that have rows in the table; none while no snapshot has expired."""
        metadata = self._table.metadata
        made = getattr(
            metadata, "last_sequence_number", None
        )  # a table of format version 1 does not count its snapshots
        if not load_ids or (made is not None and len(metadata.snapshots) >= made):
            return set()
        with translate_errors(self._named):
            found = self._table.scan(row_filter=_any_of(load_ids), selected_fields=("load_id",)).to_arrow()
        return set(found.column(0).unique().to_pylist())

    def file_names(self) -> set[str]:
        """Return the names of the files of the current snapshot."""
        return {path.rpartition("/")[2] for path in self._file_paths()}

    def has_merged_files(self) -> bool:
        """Return False: a commit adds files by reference, also if it removes rows from merged ones."""
        return False

    def commit(self, add: Sequence[LoadFile], remove: Sequence[LoadFile]) -> None:
        """Add and remove loads in one change of the table's metadata, and read it.

        Raises:
            CommitConflict: Another program has changed the table, or the outcome is unknown.
        """
        named = {_ADDED: ",".join(each.load_id for each in add), _REMOVED: ",".join(each.load_id for each in remove)}
        properties = {name: loads for name, loads in named.items() if loads}
        gone = [each.load_id for each in remove if each.path is not None]
        files = [self._url(each.path) for each in add if each.path is not None]
        with self._change(files) as change:
            if gone:
                change.delete(_any_of(gone), snapshot_properties=properties)
            if files:
                change.add_files(files, snapshot_properties=properties, check_duplicate_files=False)
            else:  # the log has to name the loads all the same
                change.append(self._table.schema().as_arrow().empty_table(), snapshot_properties=properties)

    @contextmanager
    def _change(self, files: Sequence[str]) -> Iterator[Transaction]:
        """Commit the changes of the block, and read the new metadata.

        Raises:
            CommitConflict: Another program has changed the table; the outcome is unknown; or the files have columns of
                a newer weblake, which are added to the table now.
        """
        with translate_errors(self._named):
            try:
                with without_warnings(), self._table.transaction() as change:
                    yield change
            except FileNotFoundError:  # of a load, say: no attempt would find it
                raise
            except conflict_errors() as error:
                raise CommitConflict(first_line(error)) from error
            except ValueError as error:  # pyiceberg refuses files with columns that the table lacks
                landed = {field.name: field for file in files for field in self._columns_of(file)}
                if self._add_columns(landed.values()):
                    raise CommitConflict("the table lacked columns of a load") from error
                raise StorageRefused(
                    f"{self._named} does not take files of the dataset: {first_line(error)}.",
                    hint="Its columns or partitions were changed by another program: change them back, or add another "
                    "table.",
                ) from error
        self.refresh()

    def _columns_of(self, url: str) -> pa.Schema:
        with self._table.io.new_input(url).open() as source:
            return pq.read_schema(source).remove_metadata()

    def contents(self) -> dict[str, tuple[str, ...]]:
        """Return the digest of each file's content in the table, by file id."""
        return contents_of(self._file_paths())

    def _file_paths(self) -> list[str]:
        with translate_errors(self._named):
            return [task.file.file_path for task in self._table.scan().plan_files()]

    def copy(self, path: str, data: bytes) -> LoadFile:
        """Copy the content of a dataset's file to a new file of the table, which no version names yet; return it."""
        keys = layout.keys_of(path)
        rows = arrow_files.append_keys(pq.read_table(pa.BufferReader(data)), keys)
        written = pa.BufferOutputStream()
        pq.write_table(rows, written, compression="zstd")
        content = written.getvalue().to_pybytes()
        url = self._table.location_provider().new_data_location(copy_name(path, data))
        with translate_errors(self._named), self._table.io.new_output(url).create() as file:
            file.write(content)
        return LoadFile(file_id_of(path), url, rows.num_rows, len(content), keys)

    def replace(self, files: Sequence[LoadFile]) -> None:
        """Commit copies, each in the place of all rows with its path keys, and read the new version.

        Raises:
            CommitConflict: Another program has changed the table, or the outcome is unknown.
        """
        urls = [each.path for each in files if each.path is not None]
        values: dict[str, list[str]] = {}  # of the last key, by the others: few and short predicates
        for each in files:
            *first, last = each.keys.items()
            others = "".join(f"{key} = '{value}' and " for key, value in first)
            values.setdefault(f"{others}{last[0]} in ", []).append(f"'{last[1]}'")
        same = " or ".join(f"({begin}({', '.join(each)}))" for begin, each in values.items())
        with self._change(urls) as change:
            change.delete(same)
            change.add_files(urls, check_duplicate_files=False)

    def _url(self, path: str) -> str:
        local = self._storage.local_path(path)
        return f"file://{local}" if local is not None else f"{self._storage.url.rstrip('/')}/{path}"

    def loads(self) -> dict[str, int]:
        """Return the rows of each load in the table; reads the column load_id of all files."""
        found: Counter[str] = Counter()
        with translate_errors(self._named):
            for batch in self._table.scan(selected_fields=("load_id",)).to_arrow_batch_reader():
                found.update({each["values"]: each["counts"] for each in batch.column(0).value_counts().to_pylist()})
        return dict(found)


def _any_of(load_ids: Sequence[str]) -> str:
    """Return a condition for the rows of these loads, with which pyiceberg skips the files of other loads."""
    named = [f"'{load_id}'" for load_id in load_ids]
    parts = (named[start : start + _MAX_IN_SET] for start in range(0, len(named), _MAX_IN_SET))
    return " or ".join(f"load_id in ({', '.join(part)})" for part in parts)


def _with_endpoint(catalog: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a catalog, with the S3 endpoint of the environment, which pyiceberg does not read."""
    from pyiceberg.utils.config import Config

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and _ENDPOINT not in {**(Config().get_catalog_config(catalog) or {}), **options}:
        return {**options, _ENDPOINT: endpoint}
    return dict(options)


def _schema_of(table: str) -> pa.Schema:
    return schemas.with_keys(table, layout.FIXED_KEYS.get(table, ()))


def _create(catalog: Catalog, identifier: str, table: str, dataset: str) -> None:
    """Create a table and its namespace, unless they exist."""
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
    from pyiceberg.transforms import DayTransform

    if catalog.table_exists(identifier):
        return
    catalog.create_namespace_if_not_exists(catalog.namespace_from(identifier))
    schema = _schema_of(table)
    properties = {_RETRIES: "0", _DATASET: dataset}
    properties |= {f"write.metadata.metrics.column.{name}": "full" for name in _FULL_METRICS if name in schema.names}
    try:
        new = catalog.create_table_transaction(identifier, schema=schema, properties=properties)
        with new as change, change.update_spec() as spec:
            if _PARTITION_COLUMN in schema.names:
                spec.add_field(_PARTITION_COLUMN, DayTransform(), "load_date")
            for key in layout.FIXED_KEYS.get(table, ()):
                spec.add_identity(key)
    except (TableAlreadyExistsError, CommitFailedException):  # another process was first
        if not catalog.table_exists(identifier):
            raise
