"""Apache Iceberg: the table is in a catalog and names the files of the loads where they are.

The summary of each snapshot names the loads that it added and took out. pyiceberg's own retries are off: they commit
again on a newer table without looking whether another program has committed the same load.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weblake.arrow import schemas
from weblake.errors import FeatureMissing, StorageRefused
from weblake.storage import Storage
from weblake.tables.formats import CommitConflict, LoadFile, first_line, rows_by_load

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_ADDED, _REMOVED = "weblake.added", "weblake.removed"
_RETRIES = "commit.retry.num-retries"
#: The column whose day partitions the table, where the dataset's table has it.
_TIME = "loaded_at"
#: Columns whose whole minimum and maximum the manifests hold. By default they hold the first 16 characters of a text,
#: in which the URLs of a site do not differ.
_WHOLE = ("url", "source_url")


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
    with _errors(f"The Iceberg catalog {catalog!r}"):
        found = load_catalog(catalog, **dict(options or {}))
        if create:
            _create(found, identifier, table)
        return IcebergTable(storage, table, found, identifier)


class IcebergTable:
    """An Iceberg table over the files of one table of a dataset."""

    def __init__(self, storage: Storage, table: str, catalog: Catalog, identifier: str) -> None:
        self._storage, self._schema = storage, schemas.TABLES[table]
        self._catalog, self._identifier = catalog, identifier
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

    def count_rows(self) -> int:
        """Return the number of rows of the table, from the summary of its snapshot."""
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    def refresh(self) -> None:
        """Read the current metadata; add the columns that a newer weblake lands; switch pyiceberg's retries off."""
        with _errors(f"The Iceberg table {self._identifier}"):
            self._table = self._catalog.load_table(self._identifier)
            missing = [name for name in self._schema.names if name not in self._table.schema().column_names]
            if missing:
                with self._table.update_schema() as update:
                    update.union_by_name(self._schema)
            if self._table.properties.get(_RETRIES) != "0":
                with self._table.transaction() as change:
                    change.set_properties({_RETRIES: "0"})
            self._log = self._read_log()

    def _read_log(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {_ADDED: set(), _REMOVED: set()}
        for snapshot in self._table.metadata.snapshots:
            properties = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            for name, loads in found.items():
                loads.update(filter(None, properties.get(name, "").split(",")))
        return found

    def added(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that a snapshot names as added."""
        return self._log[_ADDED].intersection(load_ids)

    def removed(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that a snapshot names as taken out."""
        return self._log[_REMOVED].intersection(load_ids)

    def commit(self, add: Sequence[LoadFile], remove: Sequence[LoadFile]) -> None:
        """Add and remove loads in one change of the table's metadata, and read it.

        Raises:
            CommitConflict: Another program has changed the table, or the outcome is unknown.
        """
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        named = {_ADDED: ",".join(each.load_id for each in add), _REMOVED: ",".join(each.load_id for each in remove)}
        properties = {name: loads for name, loads in named.items() if loads}
        gone = [f"'{each.load_id}'" for each in remove if each.path is not None]
        files = [self._url(each.path) for each in add if each.path is not None]
        try:
            with _without_warnings(), self._table.transaction() as change:
                if gone:
                    change.delete(f"load_id in ({', '.join(gone)})", snapshot_properties=properties)
                if files:
                    change.add_files(files, snapshot_properties=properties, check_duplicate_files=False)
                else:  # the log has to name the loads all the same
                    change.append(self._schema.empty_table(), snapshot_properties=properties)
        except (CommitFailedException, CommitStateUnknownException) as error:
            raise CommitConflict(first_line(error)) from error
        except _lost() as error:
            raise CommitConflict(first_line(error)) from error
        self.refresh()

    def _url(self, path: str) -> str:
        local = self._storage.local_path(path)
        return f"file://{local}" if local is not None else f"{self._storage.url.rstrip('/')}/{path}"

    def loads(self) -> dict[str, int]:
        """Return the rows of each load in the table; reads the column load_id of all files."""
        return rows_by_load(self._table.scan(selected_fields=("load_id",)).to_arrow_batch_reader())


def _create(catalog: Catalog, identifier: str, table: str) -> None:
    """Create a table and its namespace, unless they exist."""
    from pyiceberg.exceptions import TableAlreadyExistsError
    from pyiceberg.transforms import DayTransform

    if catalog.table_exists(identifier):
        return
    catalog.create_namespace_if_not_exists(catalog.namespace_from(identifier))
    schema = schemas.TABLES[table]
    properties = {_RETRIES: "0"}
    properties |= {f"write.metadata.metrics.column.{name}": "full" for name in _WHOLE if name in schema.names}
    try:
        with catalog.create_table_transaction(identifier, schema=schema, properties=properties) as change:
            if _TIME in schema.names:
                with change.update_spec() as spec:
                    spec.add_field(_TIME, DayTransform(), "load_date")
    except TableAlreadyExistsError:  # another process was first
        return


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Translate the errors of a catalog: the user sees what could not be done, and no traceback."""
    try:
        yield
    except (StorageRefused, FeatureMissing):
        raise
    except Exception as error:  # catalogs raise errors of their own, of HTTP clients and of databases
        raise StorageRefused(
            f"{what} cannot be used: {first_line(error)}.",
            hint="Check its settings: .pyiceberg.yaml, or PYICEBERG_CATALOG__… in the environment.",
        ) from error


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep pyiceberg from logging each column without statistics: the bodies have none, because no query uses them."""
    log = logging.getLogger("pyiceberg.io.pyarrow")

    def wanted(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("PyArrow statistics missing")

    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


def _lost() -> tuple[type[Exception], ...]:
    """Return the errors after which it is unknown whether a commit took place: of the network and of a database."""
    found: tuple[type[Exception], ...] = (OSError,)
    try:
        from sqlalchemy.exc import OperationalError
    except ImportError:
        return found
    return (*found, OperationalError)
