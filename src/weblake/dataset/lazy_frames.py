"""The files of a table as a Polars LazyFrame, on any storage.

Polars hands its columns, filter and limit over, and takes frames back one by one. A filter is applied here by Polars
itself and not by Arrow, whose nulls answer otherwise (`~is_in` keeps them there). It is applied to the columns that it
names before any other column is read: a table of pages is mostly text that a filter never looks at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from weblake.dataset import layout
from weblake.dataset.arrow_files import with_keys
from weblake.dataset.compacted_files import batches
from weblake.dataset.prefetch import Source, in_order
from weblake.storage import Storage
from weblake.tables import parquet

#: Most rows that are read at once where no filter is given: pages are large; and bytes that make a frame.
FRAME_ROWS, FRAME_BYTES = 1024, 4 << 20

#: No column's name: path keys have neither capitals nor signs.
_MATCHES = "*matches"


def lazy_frame(
    storage: Storage, names: Sequence[str], schema: pa.Schema, loads: Collection[str] | None = None
) -> pl.LazyFrame:
    """The files as one LazyFrame of exactly this schema; what it has beyond their columns are their path keys.

    With `loads`, only their rows out of files that hold others, too.
    """
    source = partial(_frames, storage, tuple(names), schema, loads)
    return register_io_source(source, schema=_frame(schema.empty_table()).schema)


def _frames(
    storage: Storage,
    names: Sequence[str],
    schema: pa.Schema,
    loads: Collection[str] | None,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    if predicate is not None and n_rows is None:
        names = [name for name in names if _possible(predicate, layout.keys_of(name))]

    def opened(name: str, source: Source) -> _File:
        return _File(pq.ParquetFile(source), layout.keys_of(name), schema, loads if layout.is_compacted(name) else None)

    if predicate is not None and n_rows is None:
        yield from in_order(storage, names, lambda name, source: opened(name, source).matching(wanted, predicate))
        return
    # With the columns that the filter needs beside those wanted.
    asked = predicate.meta.root_names() if predicate is not None else []
    read = pa.schema([schema.field(name) for name in dict.fromkeys([*wanted.names, *asked])])
    most = min(batch_size or FRAME_ROWS, n_rows or FRAME_ROWS, FRAME_ROWS)
    left = n_rows
    rows = in_order(storage, names, lambda name, source: opened(name, source).all(read, most))
    for frame in _gathered(rows, n_rows):
        # A limit counts rows before the filter sees them: `head(30).filter(…)`.
        some = frame if left is None else frame.head(left)
        yield (some if predicate is None else some.filter(predicate)).select(wanted.names)
        left = None if left is None else left - some.height
        if left == 0:
            return


def _gathered(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pl.DataFrame]:
    """Frames of FRAME_BYTES, or as soon as they have `most` rows.

    A frame for each of many small files, or for a thousand short rows, costs Polars more than reading it costs us.
    """
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= FRAME_BYTES or (most is not None and rows >= most):
            yield _frame(pa.Table.from_batches(pending))
            pending, rows, size = [], 0, 0
    if pending:
        yield _frame(pa.Table.from_batches(pending))


class _File:
    """One open file."""

    def __init__(
        self, file: pq.ParquetFile, keys: Mapping[str, str], schema: pa.Schema, loads: Collection[str] | None
    ) -> None:
        self._file = file
        self._loads = loads
        self._keys = keys
        self._schema = schema
        own = pa.schema([field for field in schema if field.name not in keys])
        self._names = set(parquet.stored(file, own.names, own))

    def all(self, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
        """Every row, in batches of at most so many."""
        for batch in batches(self._file, self._stored(schema.names), most, loads=self._loads):
            yield with_keys(batch, self._keys, schema)

    def matching(self, wanted: pa.Schema, predicate: pl.Expr) -> Iterator[pl.DataFrame]:
        """The rows that match, row group by row group; one without a match is read no further."""
        asked = predicate.meta.root_names() or wanted.names[:1]
        rest = [name for name in wanted.names if name not in asked]
        for group in range(self._file.num_row_groups):
            frame = self._group(group, asked)
            matches = frame.with_columns(predicate.alias(_MATCHES))[_MATCHES]
            if matches.any():
                frame = frame.hstack(self._group(group, rest)) if rest else frame
                yield frame.filter(matches).select(wanted.names)

    def _group(self, group: int, names: Iterable[str]) -> pl.DataFrame:
        schema = self._columns(names)
        rows = max(1, self._file.metadata.row_group(group).num_rows)
        found = batches(self._file, self._stored(names), rows, loads=self._loads, row_groups=[group])
        return _frame(pa.Table.from_batches([with_keys(batch, self._keys, schema) for batch in found], schema=schema))

    def _columns(self, names: Iterable[str]) -> pa.Schema:
        return pa.schema([self._schema.field(name) for name in names])

    def _stored(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self._names]


def _possible(predicate: pl.Expr, keys: Mapping[str, str]) -> bool:
    """Whether a file of these path keys can hold a match; where the filter asks for more than them, it can."""
    if not keys.keys() >= set(predicate.meta.root_names()):
        return True
    return bool(pl.DataFrame(dict(keys)).select(predicate.alias(_MATCHES))[_MATCHES].any())


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
