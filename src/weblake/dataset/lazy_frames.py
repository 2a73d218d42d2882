"""Polars LazyFrame over the files of a table, on any storage.

Polars passes the columns, filter and limit, and receives frames one by one. Polars applies the filter itself, because
Arrow treats nulls differently (`~is_in` keeps them in Arrow). The filter is applied to the columns that it names before
any other column is read: most bytes of a page table are text columns that filters do not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from weblake.dataset import layout
from weblake.dataset.arrow_files import rows
from weblake.dataset.prefetch import Source, in_order
from weblake.storage import Storage

#: Maximum rows that are read at once without a filter (pages are large), and minimum bytes of a frame.
FRAME_ROWS, FRAME_BYTES = 1024, 4 << 20

#: Cannot be the name of a column: path keys have only lower-case letters, digits and underscores.
_MATCHES = "*matches"


def lazy_frame(
    storage: Storage, pick: Callable[[], Mapping[str, Sequence[int] | None]], schema: pa.Schema
) -> pl.LazyFrame:
    """Return files as one LazyFrame with exactly this schema; columns that the files lack are path keys.

    `pick` is called at each collection of the frame; it returns the files, with the rows to read of each, or None for
    all.
    """
    source = partial(_frames, storage, pick, schema)
    return register_io_source(source, schema=_frame(schema.empty_table()).schema)


def _frames(
    storage: Storage,
    pick: Callable[[], Mapping[str, Sequence[int] | None]],
    schema: pa.Schema,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    # In the order of the schema: the streaming engine of Polars 1.30 takes columns by place.
    wanted = schema if columns is None else pa.schema([field for field in schema if field.name in columns])
    picked = pick()
    names = list(picked)
    if predicate is not None and n_rows is None:
        names = [name for name in names if _possible(predicate, layout.keys_of(name))]

    def opened(name: str, source: Source) -> _File:
        return _File(pq.ParquetFile(source), name, schema, picked[name])

    if predicate is not None and n_rows is None:
        yield from in_order(storage, names, lambda name, source: opened(name, source).matching(wanted, predicate))
        return
    # The columns of the filter are read in addition to the columns of the result.
    asked = predicate.meta.root_names() if predicate is not None else []
    names_read = dict.fromkeys([*wanted.names, *asked]) or schema.names[:1]  # a frame without columns has no rows
    read = pa.schema([schema.field(name) for name in names_read])
    most = min(batch_size or FRAME_ROWS, n_rows or FRAME_ROWS, FRAME_ROWS)
    left = n_rows
    found = in_order(storage, names, lambda name, source: opened(name, source).all(read, most))
    for frame in _gathered(found, n_rows):
        # The limit applies before the filter: `head(30).filter(…)`.
        some = frame if left is None else frame.head(left)
        yield _select(some if predicate is None else some.filter(predicate), wanted.names)
        left = None if left is None else left - some.height
        if left == 0:
            return


def _gathered(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pl.DataFrame]:
    """Yield frames of at least FRAME_BYTES, or of `most` rows if these are fewer bytes.

    A frame for each small file, or for each thousand short rows, would cost Polars more time than reading the file.
    """
    pending: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        pending.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if size >= FRAME_BYTES or (most is not None and count >= most):
            yield _frame(pa.Table.from_batches(pending))
            pending, count, size = [], 0, 0
    if pending:
        yield _frame(pa.Table.from_batches(pending))


class _File:
    """One open Parquet file of a table."""

    def __init__(self, file: pq.ParquetFile, name: str, schema: pa.Schema, picked: Sequence[int] | None) -> None:
        self._file = file
        self._name = name
        self._schema = schema
        self._picked = picked

    def all(self, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows in record batches of at most `most` rows."""
        return rows(self._file, self._name, schema, most, picked=self._picked)

    def matching(self, wanted: pa.Schema, predicate: pl.Expr) -> Iterator[pl.DataFrame]:
        """Yield the rows that match, per row group; other columns than the filter's are read only after a match."""
        # A column that the filter names twice is twice in its names.
        asked = list(dict.fromkeys(predicate.meta.root_names())) or wanted.names[:1] or self._schema.names[:1]
        rest = [name for name in wanted.names if name not in asked]
        for group in range(self._file.num_row_groups):
            frame = self._group(group, asked)
            matches = frame.with_columns(predicate.alias(_MATCHES))[_MATCHES]
            if matches.any():
                frame = frame.hstack(self._group(group, rest)) if rest else frame
                yield _select(frame.filter(matches), wanted.names)

    def _group(self, group: int, names: Iterable[str]) -> pl.DataFrame:
        schema = pa.schema([self._schema.field(name) for name in names])
        most = max(1, self._file.metadata.row_group(group).num_rows)
        found = rows(self._file, self._name, schema, most, [group], self._picked)
        return _frame(pa.Table.from_batches(found, schema=schema))


def _possible(predicate: pl.Expr, keys: Mapping[str, str]) -> bool:
    """Return whether a file with these path keys can hold a match; True if the filter uses other columns."""
    if not keys.keys() >= set(predicate.meta.root_names()):
        return True
    return bool(pl.DataFrame(dict(keys)).select(predicate.alias(_MATCHES))[_MATCHES].any())


def _select(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return these columns of a frame with columns. If there are none, the number of rows stays: Polars counts them."""
    return frame.select(names) if names else frame.drop(frame.columns)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
