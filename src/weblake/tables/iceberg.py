"""Apache Iceberg: the table is in a catalog.

The summary of each snapshot names the loads that it added and took out. pyiceberg's own retries are off: they commit
again on a newer table without looking whether another program has committed the same load.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from weblake.arrow import schemas
from weblake.errors import FeatureMissing, Remedy, StorageRefused
from weblake.tables.formats import ADDED, REMOVED, Change, CommitConflict, first_line

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

_SUMMARY = {ADDED: "weblake.added", REMOVED: "weblake.removed"}
#: The table's property with the URL of its dataset: load ids are unique in a dataset only.
_DATASET = "weblake.dataset"
_RETRIES = "commit.retry.num-retries"
_ENDPOINT = "s3.endpoint"
#: Columns whose whole minimum and maximum the manifests hold. By default they hold the first 16 characters of a text,
#: in which the URLs of a site do not differ.
_FULL_METRICS = ("url", "source_url", "page_key")
#: Most values of a set for which pyiceberg looks at the statistics of a file; with more, it reads every file.
_MAX_IN_SET = 200
#: Bytes of rows that are written as one part of a commit: pyiceberg takes no stream for a table with partitions.
_PART_BYTES = 64 << 20


def open_table(
    catalog: str,
    identifier: str,
    table: str,
    keys: Sequence[str],
    dataset: str,
    options: Mapping[str, str] | None = None,
    *,
    location: str | None = None,
    create: bool = False,
) -> IcebergTable:
    """Return a table of a catalog; with `create`, create it and its namespace if they do not exist.

    The path keys become columns, and partition a new table. `dataset` is the dataset's URL. The other arguments and the
    errors are those of `tables.add`.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise FeatureMissing("An Iceberg table needs pyiceberg.", hint="pip install 'weblake[iceberg]'") from None
    with _translated(f"The Iceberg catalog {catalog!r}"):
        found = load_catalog(catalog, **_with_endpoint(catalog, options or {}))
        _keep_commits(found)
        if create:
            _create(found, identifier, schemas.with_keys(table, keys), keys, dataset, location)
        return IcebergTable(found, identifier)


class IcebergTable:
    """An Iceberg table with the rows of one table of a dataset."""

    def __init__(self, catalog: Catalog, identifier: str) -> None:
        self._catalog, self._identifier = catalog, identifier
        self._named = f"The Iceberg table {identifier}"
        self._table: Table = catalog.load_table(identifier)

    def refresh(self) -> None:
        """Read the current metadata, and switch pyiceberg's retries off.

        Raises:
            CommitConflict: Another program has changed the table at the same time.
        """
        with _translated(self._named):
            self._table = self._catalog.load_table(self._identifier)
            if self._table.properties.get(_RETRIES) != "0":
                with _conflicts_told(), self._table.transaction() as change:
                    change.set_properties({_RETRIES: "0"})

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
        """The URL of the table."""
        return self._table.location()

    @property
    def dataset(self) -> str | None:
        """The URL of the dataset for which the table was created; None if something else has created it."""
        return self._table.properties.get(_DATASET)

    def count_rows(self) -> int:
        """Return the number of rows of the table, from the summary of its snapshot."""
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    def committed(self, load_ids: Iterable[str]) -> dict[str, str]:
        """Return those of the loads that a snapshot names, with ADDED or REMOVED.

        If snapshots have expired, a load that has rows in the table was added, too.
        """
        wanted, found = set(load_ids), dict[str, str]()
        metadata = self._table.metadata
        for what, name in _SUMMARY.items():  # REMOVED comes last: such a load was added before
            for snapshot in metadata.snapshots:
                named = "" if snapshot.summary is None else snapshot.summary.additional_properties.get(name, "")
                found |= dict.fromkeys(wanted.intersection(named.split(",")), what)
        # A table of format version 1 does not count its snapshots.
        made = getattr(metadata, "last_sequence_number", None)
        unknown = sorted(wanted - found.keys())
        if unknown and (made is None or len(metadata.snapshots) < made):
            with _translated(self._named):
                scan = self._table.scan(row_filter=_any_of(unknown), selected_fields=("load_id",))
                found |= dict.fromkeys(scan.to_arrow().column(0).unique().to_pylist(), ADDED)
        return found

    def commit(self, change: Change) -> None:
        """Append and take out loads in one change of the table's metadata; raises as `DeltaLakeTable.commit`."""
        named = {ADDED: [file.load_id for file in change.add], REMOVED: change.remove}
        properties = {_SUMMARY[what]: ",".join(loads) for what, loads in named.items() if loads}
        with (
            _translated(self._named),
            # pyiceberg warns of loads whose rows another program has deleted, and that it writes no delete files.
            warnings.catch_warnings(action="ignore", category=UserWarning),
            _conflicts_told(),
            self._table.transaction() as commit,
        ):
            known = self._table.schema().column_names
            missing = [column for column in change.schema if column.name not in known]
            if missing:
                with commit.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
            if change.present:
                commit.delete(_any_of(change.present), snapshot_properties=properties)
            for part in _parts(change):
                commit.append(part, snapshot_properties=properties)

    def loads(self) -> dict[str, int]:
        """Return the rows of each load in the table; reads the column load_id of all files."""
        found: Counter[str] = Counter()
        with _translated(self._named):
            for batch in self._table.scan(selected_fields=("load_id",)).to_arrow_batch_reader():
                found.update({each["values"]: each["counts"] for each in batch.column(0).value_counts().to_pylist()})
        return {load_id: count for load_id, count in found.items() if load_id is not None}


def _parts(change: Change) -> Iterator[pa.Table]:
    """Yield the rows of a change in parts of bounded size; one part without rows if there are none.

    The commit has to name its loads also if none of them has a row.
    """
    part: list[pa.RecordBatch] = []
    size, count = 0, 0
    for batch in change.batches():
        part.append(batch)
        size += batch.nbytes
        if size >= _PART_BYTES:
            yield pa.Table.from_batches(part, change.schema)
            part, size, count = [], 0, count + 1
    if part or not count:
        yield pa.Table.from_batches(part, change.schema)


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


def _create(
    catalog: Catalog, identifier: str, schema: pa.Schema, keys: Sequence[str], dataset: str, location: str | None
) -> None:
    """Create a table and its namespace, unless they exist."""
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

    if catalog.table_exists(identifier):
        return
    catalog.create_namespace_if_not_exists(catalog.namespace_from(identifier))
    properties = {_RETRIES: "0", _DATASET: dataset}
    properties |= {f"write.metadata.metrics.column.{name}": "full" for name in _FULL_METRICS if name in schema.names}
    try:
        new = catalog.create_table_transaction(identifier, schema=schema, location=location, properties=properties)
        with new as change, change.update_spec() as spec:
            for key in keys:
                spec.add_identity(key)
    except (TableAlreadyExistsError, CommitFailedException):  # another process was first
        if not catalog.table_exists(identifier):
            raise


def _keep_commits(catalog: Catalog) -> None:
    """Have a commit of this catalog succeed if the table has its snapshots, also if the catalog refuses it.

    A client of a catalog may repeat a request whose reply was lost: botocore does so for Glue, and proxies for a REST
    catalog. If the first request took place, the repetition is refused as if another program had committed first.
    pyiceberg then deletes the manifests of the commit, and the table could not be read any more.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import CommitTableResponse
    from pyiceberg.table.update import AddSnapshotUpdate

    def commit_table(
        table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            return type(catalog).commit_table(catalog, table, requirements, updates)
        except CommitFailedException:
            snapshots = [each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)]
            if not snapshots:
                raise
            # An error of this look keeps pyiceberg from deleting the files: the outcome is unknown then.
            now = catalog.load_table(table.name())
            if any(now.metadata.snapshot_by_id(each) is None for each in snapshots):
                raise
            return CommitTableResponse.model_validate(
                {"metadata": now.metadata, "metadata-location": now.metadata_location}
            )

    catalog.commit_table = commit_table  # type: ignore[method-assign]


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Translate the errors of a catalog: the user sees what could not be done, and no traceback."""
    from pyiceberg.exceptions import NoSuchTableError, NotInstalledError

    try:
        yield
    except (StorageRefused, FeatureMissing, CommitConflict):
        raise
    except NoSuchTableError as error:
        raise StorageRefused(
            f"{what} cannot be used: {first_line(error)}.",
            hint=Remedy(
                "If another program has renamed it, rename it back; if it was dropped, remove it with {remove_table}, "
                "and add it again with {add_table}."
            ),
        ) from error
    except NotInstalledError as error:
        raise FeatureMissing(f"{what} needs a package that is not installed.", hint=f"{first_line(error)}.") from error
    except Exception as error:  # catalogs raise errors of their own, of HTTP clients and of databases
        raise StorageRefused(
            f"{what} cannot be used: {first_line(error)}.",
            hint="Check its settings (.pyiceberg.yaml, or PYICEBERG_CATALOG__… in the environment), and whether "
            "another program has changed its columns.",
        ) from error


@contextmanager
def _conflicts_told() -> Iterator[None]:
    """Translate the errors after which the table has to be looked at again.

    Another program has committed first; or, of the catalog, the network and a database, it is unknown whether a commit
    took place.
    """
    from pyiceberg import exceptions

    conflicts: tuple[type[Exception], ...] = (
        exceptions.CommitFailedException,
        exceptions.CommitStateUnknownException,
        exceptions.ValidationException,
        # Of a REST catalog, or of a proxy before it, which may have passed the commit on.
        exceptions.ServerError,
        exceptions.ServiceUnavailableError,
        OSError,
    )
    try:
        from sqlalchemy.exc import OperationalError
    except ImportError:
        pass
    else:
        conflicts = (*conflicts, OperationalError)
    try:
        yield
    except conflicts as error:
        raise CommitConflict(first_line(error)) from error
