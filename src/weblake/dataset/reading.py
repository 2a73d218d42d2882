"""Reading a table back, as Arrow, pandas or Polars, whole or lazily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.dataset import arrow_files, compacted_files, layout, prefetch
from weblake.dataset.identity import checked_load_id
from weblake.dataset.ledger import Ledger
from weblake.errors import FeatureMissing, InvalidOption
from weblake.storage import RootPath, Storage, open_storage
from weblake.tables import parquet, schemas

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow.dataset

#: Rows of a record batch, where nobody asks for another number.
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
    """A table of a dataset, to be read in one of several ways. Nothing is read yet.

    Args:
        root: The dataset's root.
        table: documents, page_errors, usage_periods or activity.
        columns: The columns wanted, path keys among them, in this order; all where it is not given.
        loads: Load ids: only what these loads landed. One that has no file here adds no rows.
        keys: Path keys and the values wanted, such as `{"report": "credits", "period": ["2026-10", "2026-11"]}`.
        storage_options: For the file system of a URL, as fsspec takes them. Default: what its backend reads from the
            environment.

    Raises:
        InvalidOption: There is no such table, a load id is none, or loads of a table that has none are asked for.
            Unknown columns and path keys are told when the table is read.
        StorageRefused: The root is no storage that weblake knows.
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
class Reading:
    """One table: its files, and the forms in which its rows come back.

    The columns are those of the table's schema, then its path keys (load_date and the like) as strings: nothing is
    inferred, `007` stays text. A table that holds nothing yet comes back empty, with the same columns. to_batches,
    to_reader and to_polars_lazy hold a row group or two in memory, however large the table is; a dataset holds what
    Arrow reads ahead, and `to_batches(batch_readahead=2, fragment_readahead=1)` of it makes that little.
    """

    storage: Storage
    table: str
    columns: tuple[str, ...] | None = None
    #: Load ids; None for all.
    loads: tuple[str, ...] | None = None
    #: The values wanted of each path key; keys that are not named may have any.
    keys: Mapping[str, tuple[str, ...]] | None = None

    def files(self) -> list[str]:
        """The files that hold the rows, relative to the root, sorted.

        Raises:
            InvalidOption: The table has no such path key or column.
        """
        return self._plan()[0]

    def schema(self) -> pa.Schema:
        """The columns of every form and their Arrow types; raises as `files`."""
        return self._plan()[1]

    def count_rows(self) -> int:
        """How many rows there are: of each file only the footer is read, and of compacted ones that `loads` names."""
        names, _ = self._plan()

        def read(name: str, source: prefetch.Source) -> Iterator[int]:
            metadata = pq.read_metadata(source)
            held = parquet.read_loads(metadata) if self.loads is not None and layout.is_compacted(name) else None
            yield metadata.num_rows if held is None else sum(held.get(load_id, 0) for load_id in set(self.loads or ()))

        return sum(prefetch.in_order(self.storage, names, read))

    def to_batches(self, batch_size: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows in record batches, file by file: memory holds one batch and one row group, or a few small files."""
        return self._batches(*self._plan(), batch_size)

    def to_reader(self, batch_size: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """The rows as an Arrow stream, such as DuckDB and database drivers take; it can be read once."""
        names, schema = self._plan()
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, schema, batch_size))

    def to_table(self) -> pa.Table:
        """All rows as one Arrow table."""
        names, schema = self._plan()
        return pa.Table.from_batches(list(self._batches(names, schema, BATCH_ROWS)), schema=schema)

    def to_dataset(self) -> pyarrow.dataset.Dataset:
        """The files of this moment as an Arrow dataset; columns and filters that it is asked for are pushed down.

        Arrow selects rows by columns of the dataset only. So of a compacted table, `loads` together with `columns` that
        leave out load_id are read into memory here.
        """
        names, schema = self._plan()
        loads = self._loads_within(names)
        if loads is None:
            return arrow_files.dataset(self.storage, names, schema)
        if "load_id" not in schema.names:
            return arrow_files.in_memory(self.to_table())
        return arrow_files.dataset(self.storage, names, schema, loads)

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame.

        Raises:
            FeatureMissing: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise FeatureMissing("to_pandas needs pandas.", hint="pip install 'weblake[pandas]'") from None
        return self.to_table().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars DataFrame.

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
        """The files of this moment as a Polars LazyFrame: columns, filters and limits are pushed down to them.

        A file that a filter on path keys rules out is not opened; of a row group without a match only the columns that
        the filter needs are read.

        Raises:
            FeatureMissing: Polars is not installed.
        """
        try:
            import polars  # noqa: F401
        except ImportError:
            raise FeatureMissing("to_polars_lazy needs Polars.", hint="pip install 'weblake[polars]'") from None
        from weblake.dataset import lazy_frames

        names, schema = self._plan()
        return lazy_frames.lazy_frame(self.storage, names, schema, self.loads)

    def _plan(self) -> tuple[list[str], pa.Schema]:
        """The files and the columns, from one listing.

        Which compacted files hold a load is in the ledger, and looked up only where loads are asked for.
        """
        layout.check_whole(self.storage)
        names = [name for name in self.storage.list(self.table) if name.endswith(".parquet")]
        found = layout.keys_of(names[0]) if names else layout.Layout(self.storage).keys(self.table)
        schema = schemas.TABLES[self.table]
        for key in found:
            schema = schema.append(pa.field(key, pa.string()))
        self._check(list(found), schema.names)
        if self.columns is not None:
            schema = pa.schema([schema.field(name) for name in self.columns])
        names = [name for name in names if self._has_keys(name)]
        if self.loads is None:
            return names, schema
        own = {name for name in names if not layout.is_compacted(name) and layout.load_id_in(name) in self.loads}
        if any(layout.is_compacted(name) for name in names):
            own.update(Ledger(self.storage).files(self.loads))
        return [name for name in names if name in own], schema

    def _has_keys(self, name: str) -> bool:
        values = layout.keys_of(name) if self.keys else {}
        return all(values.get(key) in wanted for key, wanted in (self.keys or {}).items())

    def _loads_within(self, names: list[str]) -> tuple[str, ...] | None:
        """The loads whose rows have to be picked out of these files; None where they are all rows of them."""
        return self.loads if any(layout.is_compacted(name) for name in names) else None

    def _check(self, keys: list[str], columns: list[str]) -> None:
        for what, asked, known in (("column", self.columns or (), columns), ("path key", self.keys or (), keys)):
            unknown = [name for name in asked if name not in known]
            if unknown:
                raise InvalidOption(
                    f"{self.table} has no {what} {unknown[0]!r}.", hint=f"{what.capitalize()}s: {', '.join(known)}."
                )

    def _batches(self, names: list[str], schema: pa.Schema, batch_size: int) -> Iterator[pa.RecordBatch]:
        def read(name: str, source: prefetch.Source) -> Iterator[pa.RecordBatch]:
            file, keys = pq.ParquetFile(source), layout.keys_of(name)
            stored = parquet.stored(file, schema.names, schemas.TABLES[self.table])
            loads = self.loads if layout.is_compacted(name) else None
            for batch in compacted_files.batches(file, stored, batch_size, loads=loads):
                yield arrow_files.with_keys(batch, keys, schema)

        return prefetch.in_order(self.storage, names, read)


def _texts(values: str | Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)
