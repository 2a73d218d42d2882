"""Reading a table back, as Arrow, pandas or Polars. Imports: errors, layout, schemas, storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from weblake import layout
from weblake.errors import FeatureMissing, InvalidOption
from weblake.storage import RootPath, Storage, open_storage
from weblake.tables import schemas

if TYPE_CHECKING:
    import pandas
    import polars


def read(root: RootPath, table: str = "documents", *, columns: Sequence[str] | None = None) -> Reading:
    """A table of a dataset, to be read in one of several ways. Nothing is read yet.

    Args:
        root: The dataset's root.
        table: documents, page_errors, usage_periods or activity.
        columns: The columns wanted, path keys among them; all where it is not given.

    Raises:
        InvalidOption: There is no such table, or no such column in it.
    """
    if table not in schemas.TABLES:
        raise InvalidOption(f"There is no table {table!r}.", hint=f"Tables: {', '.join(schemas.TABLES)}.")
    return Reading(open_storage(root), table, None if columns is None else tuple(columns))


@dataclass(frozen=True, slots=True)
class Reading:
    """One table: its files, and the forms in which its rows come back.

    The columns are those of the table's schema, then its path keys (load_date and the like) as strings. A table that
    holds nothing yet comes back empty, with the same columns.
    """

    storage: Storage
    table: str
    columns: tuple[str, ...] | None = None

    def files(self) -> list[str]:
        """The table's files, relative to the root, sorted."""
        return [name for name in self.storage.list(self.table) if name.endswith(".parquet")]

    def to_batches(self, batch_size: int = 1024) -> Iterator[pa.RecordBatch]:
        """The rows in record batches, file by file: memory holds one batch and one row group."""
        schema = schemas.TABLES[self.table]
        for name in self.files():
            keys = layout.keys_of(name)
            wanted = None if self.columns is None else [c for c in self.columns if c in schema.names]
            self._check(keys)
            with self.storage.open_input(name) as source:
                for batch in pq.ParquetFile(source).iter_batches(batch_size=batch_size, columns=wanted):
                    yield self._with_keys(batch, keys)

    def to_table(self) -> pa.Table:
        """All rows as one Arrow table."""
        batches = list(self.to_batches())
        if batches:
            return pa.Table.from_batches(batches)
        keys = layout.Layout(self.storage).keys(self.table)
        self._check(dict.fromkeys(keys, ""))
        schema = schemas.TABLES[self.table]
        for key in keys:
            schema = schema.append(pa.field(key, pa.string()))
        names = schema.names if self.columns is None else self.columns
        return pa.schema([schema.field(name) for name in names]).empty_table()

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

    def _check(self, keys: dict[str, str]) -> None:
        known = [*schemas.TABLES[self.table].names, *keys]
        unknown = [name for name in self.columns or () if name not in known]
        if unknown:
            raise InvalidOption(f"{self.table} has no column {unknown[0]!r}.", hint=f"Columns: {', '.join(known)}.")

    def _with_keys(self, batch: pa.RecordBatch, keys: dict[str, str]) -> pa.RecordBatch:
        for key, value in keys.items():
            if self.columns is None or key in self.columns:
                batch = batch.append_column(key, pa.repeat(pa.scalar(value, pa.string()), batch.num_rows))
        return batch if self.columns is None else batch.select(list(self.columns))
