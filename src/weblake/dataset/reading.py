"""Reading a landed table as Arrow, pandas or Polars, eagerly or lazily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import arrow_files, layout, ledger_listing, newest, prefetch
from weblake.dataset.identity import checked_load_id
from weblake.dataset.ledger import Ledger, files_gone
from weblake.errors import FeatureMissing, InvalidOption
from weblake.storage import RootPath, Storage, open_storage

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow.dataset

#: Default number of rows of a record batch.
BATCH_ROWS = 1024


def read(
    root: RootPath,
    table: str = "documents",
    *,
    columns: Sequence[str] | None = None,
    loads: Sequence[str] | None = None,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Reading:
    """Return a `Reading` of a table of a dataset, which offers several formats. Nothing is read yet.

    Args:
        root: The dataset's root.
        table: documents, page_errors, usage_periods or activity.
        columns: The columns to read, which may include path keys, in this order. Default: all.
        loads: Load ids: read only the rows of these loads. A load without a file in this table adds no rows.
        keys: Path keys and the values to read, such as `{"report": "credits", "period": ["2026-10", "2026-11"]}`.
        storage_options: Options for the file system of a URL, as fsspec takes them. Default: the settings that its
            backend reads from the environment.

    Raises:
        InvalidOption: There is no such table, a load id is malformed, or `loads` is given for a table without loads.
            Unknown columns and path keys are reported when the table is read.
        StorageRefused: weblake does not support the storage of the root.
    """
    if table not in schemas.TABLES:
        raise InvalidOption(f"There is no table {table!r}.", hint=f"Tables: {', '.join(schemas.TABLES)}.")
    if columns is not None and not columns:
        raise InvalidOption("No column is asked for.", hint="Leave columns out to get all of them.")
    if loads is not None and table not in layout.LOAD_TABLES:
        raise InvalidOption(f"{table} holds no loads.", hint="Select its rows with keys=… instead.")
    return Reading(
        open_storage(root, storage_options=storage_options),
        table,
        None if columns is None else _texts(columns),
        None if loads is None else tuple(checked_load_id(load_id) for load_id in _texts(loads)),
        {key: _texts(values) for key, values in (keys or {}).items()},
    )


@dataclass(frozen=True, slots=True)
class Latest:
    """Which version of each page is read."""

    as_of: newest.When | None
    successful: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """One table: its files, and methods that return its rows in several formats.

    The columns are those of the table's schema, then its path keys (such as load_date) as strings: no type is
    inferred, `007` stays text. An empty table has the same columns and no rows. to_batches, to_reader and
    to_polars_lazy hold one or two row groups in memory, whatever the size of the table. An Arrow dataset holds what
    Arrow reads ahead; its method `to_batches(batch_readahead=2, fragment_readahead=1)` reads little ahead.
    """

    storage: Storage
    table: str
    columns: tuple[str, ...] | None = None
    #: Load ids; None for all.
    loads: tuple[str, ...] | None = None
    #: The values to read of each path key; keys that are not named may have any value.
    keys: Mapping[str, tuple[str, ...]] | None = None
    #: Set by `latest`: only one version of each page is read.
    version: Latest | None = None

    def latest(self, as_of: newest.When | None = None, *, successful: bool = True) -> Reading:
        """Return a reading of one row for each page: its newest version. Nothing is read yet.

        A page is a `page_key`; rows without one are left out. The newest version is that of the load that began last
        (`loaded_at`, then `load_id`); of several rows of one load, the one with the highest `position`. Selected
        columns, loads and path keys stay: the newest version is looked for among the rows that they leave. Replaced
        loads do not count. A first pass reads the columns page_key, status_code and loaded_at of all files; memory
        holds about 400 bytes for each page.

        Args:
            as_of: Only loads that had landed at this time, or up to and with the load with this id. Loads that were
                replaced since then are not there any more. Default: all.
            successful: Only versions with a status below 400: a page that fails today keeps the version of yesterday.
                False: the newest version whatever its status.

        Raises:
            InvalidOption: The table is not `documents`. An `as_of` that is no time is reported when the table is read.
        """
        if self.table != "documents":
            raise InvalidOption(f"{self.table} has no versions of pages.", hint="Read the table documents.")
        return replace(self, version=Latest(as_of, successful))

    def files(self) -> list[str]:
        """Return the paths of the files that hold the rows, relative to the root, sorted.

        Raises:
            InvalidOption: The table has no such path key or column.
            StorageRefused: A file of a load that has landed and was not replaced does not exist; the message names the
                loads.
        """
        return list(self._pick(self._plan()[0]))

    def schema(self) -> pa.Schema:
        """Return the columns of every format and their Arrow types; raises as `files`."""
        return self._plan()[1]

    @property
    def url(self) -> str:
        """The address of the root, without credentials; for a local root its path."""
        return self.storage.url

    def count_rows(self) -> int:
        """Return the number of rows; only the footers of the files are read, or the small columns for `latest`."""
        if self.version is not None:
            return sum(len(rows or ()) for rows in self._pick(self._plan()[0]).values())

        def read(name: str, source: prefetch.Source) -> Iterator[int]:
            yield pq.read_metadata(source).num_rows

        return sum(prefetch.in_order(self.storage, self.files(), read))

    def to_batches(self, batch_size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in record batches, by file; memory holds one batch and row group, or a few small files."""
        return self._batches(*self._plan(), batch_size)

    def to_reader(self, batch_size: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Return the rows as an Arrow stream, which DuckDB and database drivers accept; it can be read once."""
        names, schema = self._plan()
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, schema, batch_size))

    def to_table(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        names, schema = self._plan()
        return pa.Table.from_batches(list(self._batches(names, schema, BATCH_ROWS)), schema=schema)

    def to_dataset(self) -> pyarrow.dataset.Dataset:
        """Return the current files as an Arrow dataset; it pushes columns and filters down to the files.

        Arrow reads the files itself: `page_key` and `content_sha256` are null in files of schema version 1, for which
        the other formats compute them.

        Raises:
            InvalidOption: This is a reading of `latest`, of which an Arrow dataset cannot select the rows.
        """
        if self.version is not None:
            raise InvalidOption(
                "An Arrow dataset cannot read the newest versions of pages.", hint="Use to_reader or to_polars_lazy."
            )
        return arrow_files.dataset(self.storage, *self._plan())

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame.

        Raises:
            FeatureMissing: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise FeatureMissing("to_pandas needs pandas.", hint="pip install 'weblake[pandas]'") from None
        return self.to_table().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a Polars DataFrame.

        Raises:
            FeatureMissing: Polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise FeatureMissing("to_polars needs Polars.", hint="pip install 'weblake[polars]'") from None
        frame = polars.from_arrow(self.to_table())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_polars_lazy(self) -> polars.LazyFrame:
        """Return the current files as a Polars LazyFrame; it pushes columns, filters and limits down to the files.

        A file that a filter on path keys excludes is not opened. Of a row group without a match only the columns that
        the filter uses are read.

        Raises:
            FeatureMissing: Polars is not installed.
        """
        try:
            import polars  # noqa: F401
        except ImportError:
            raise FeatureMissing("to_polars_lazy needs Polars.", hint="pip install 'weblake[polars]'") from None
        from weblake.dataset import lazy_frames

        names, schema = self._plan()
        return lazy_frames.lazy_frame(self.storage, partial(self._pick, names), schema)

    def _plan(self) -> tuple[list[str], pa.Schema]:
        """Return the files and the columns. The ledger is listed first: a load that lands meanwhile is not missed."""
        is_of_loads, ledger = self.table in layout.LOAD_TABLES, Ledger(self.storage)
        known = ledger_listing.steps(ledger) if is_of_loads and (self.loads is None or self.version) else {}
        landed = self._landed(known) if is_of_loads else set()
        names = [name for name in self.storage.list(self.table) if layout.is_data(name)]
        found = layout.keys_of(names[0]) if names else layout.Layout(self.storage).keys(self.table)
        schema = schemas.with_keys(self.table, found)
        self._check(list(found), schema.names)
        if self.columns is not None:
            schema = pa.schema([schema.field(name) for name in self.columns])
        if is_of_loads:
            self._require_files(ledger, landed - {int(layout.load_id_in(name), 16) for name in names})
        loads = None if self.loads is None else set(self.loads)
        names = [name for name in names if loads is None or layout.load_id_in(name) in loads]
        if self.version is not None:
            names = newest.without_replaced(known, names)
            if self.version.as_of is not None:
                landings = newest.Landings.of(ledger, known)
                then = landings.at(landings.moment(self.version.as_of))
                names = [name for name in names if layout.load_id_in(name) in then]
        return [name for name in names if self._has_keys(name)], schema

    def _pick(self, names: Sequence[str]) -> Mapping[str, Sequence[int] | None]:
        """Return the files to read, with the numbers of the rows to read of each; None for all rows."""
        if self.version is None:
            return dict.fromkeys(names)
        return newest.newest_rows(self.storage, names, successful=self.version.successful)

    def _landed(self, known: Mapping[int, int]) -> set[int]:
        """Return the ids of the loads whose rows are asked for, as integers."""
        if self.loads is not None:
            return {int(load_id, 16) for load_id in self.loads}
        landed, retired = ledger_listing.DONE, ledger_listing.RETIRED
        return {load for load, has in known.items() if has & landed and not has & retired}

    def _require_files(self, ledger: Ledger, absent: set[int]) -> None:
        """Raise StorageRefused if one of these loads, which have no file in the table, has landed one there."""
        gone = {
            path: load_id
            for load_id, path in ledger_listing.landed_files(ledger, absent)
            if path.startswith(f"{self.table}/") and self._has_keys(path)
        }
        if gone:
            raise files_gone(ledger, gone)

    def _has_keys(self, name: str) -> bool:
        values = layout.keys_of(name) if self.keys else {}
        return all(values.get(key) in wanted for key, wanted in (self.keys or {}).items())

    def _check(self, keys: list[str], columns: list[str]) -> None:
        for what, asked, known in (("column", self.columns or (), columns), ("path key", self.keys or (), keys)):
            unknown = [name for name in asked if name not in known]
            if unknown:
                raise InvalidOption(
                    f"{self.table} has no {what} {unknown[0]!r}.", hint=f"{what.capitalize()}s: {', '.join(known)}."
                )

    def _batches(self, names: list[str], schema: pa.Schema, batch_size: int) -> Iterator[pa.RecordBatch]:
        picked = self._pick(names)

        def read(name: str, source: prefetch.Source) -> Iterator[pa.RecordBatch]:
            return arrow_files.rows(pq.ParquetFile(source), name, schema, batch_size, picked=picked[name])

        yield from prefetch.in_order(self.storage, list(picked), read)


def _texts(values: str | Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)
