"""The files of a table as a Polars LazyFrame, on any storage. Imports: arrow_files, layout, storage; Polars.

Polars hands its columns, filter and limit over, and takes frames back one by one. A filter is applied here by Polars
itself and not by Arrow, whose nulls answer otherwise (`~is_in` keeps them there). It is applied to the columns that it
names before any other column is read: a table of pages is mostly text that a filter never looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from weblake import layout
from weblake.arrow_files import opened, with_keys
from weblake.storage import Storage

#: Most rows of a frame where no filter is given: pages are large.
FRAME_ROWS = 1024

#: No column's name: path keys have neither capitals nor signs.
_MATCHES = "*matches"


def lazy_frame(storage: Storage, names: Sequence[str], schema: pa.Schema) -> pl.LazyFrame:
    """The files as one LazyFrame of exactly this schema; what it has beyond their columns are their path keys."""
    source = partial(_frames, storage, tuple(names), schema)
    return register_io_source(source, schema=_frame(schema.empty_table()).schema)


def _frames(
    storage: Storage,
    names: Sequence[str],
    schema: pa.Schema,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    left = n_rows
    for name in names:
        keys = layout.keys_of(name)
        if predicate is not None and left is None and not _possible(predicate, keys):
            continue
        with opened(storage, name) as source:
            file = _File(pq.ParquetFile(source), keys, schema)
            if predicate is not None and left is None:
                yield from file.matching(wanted, predicate)
                continue
            for frame in file.all(wanted, predicate, min(batch_size or FRAME_ROWS, left or FRAME_ROWS, FRAME_ROWS)):
                # A limit counts rows before the filter sees them: `head(30).filter(…)`.
                some = frame if left is None else frame.head(left)
                yield (some if predicate is None else some.filter(predicate)).select(wanted.names)
                left = None if left is None else left - some.height
                if left == 0:
                    return


class _File:
    """One open file."""

    def __init__(self, file: pq.ParquetFile, keys: Mapping[str, str], schema: pa.Schema) -> None:
        self._file = file
        self._keys = keys
        self._schema = schema
        self._names = set(file.schema_arrow.names)

    def all(self, wanted: pa.Schema, predicate: pl.Expr | None, most: int) -> Iterator[pl.DataFrame]:
        """Every row, in frames of at most so many rows, with the columns that the filter needs beside those wanted."""
        asked = predicate.meta.root_names() if predicate is not None else []
        schema = self._columns(dict.fromkeys([*wanted.names, *asked]))
        for batch in self._file.iter_batches(batch_size=most, columns=self._stored(schema.names)):
            yield _frame(pa.Table.from_batches([with_keys(batch, self._keys, schema)]))

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
        batches = self._file.iter_batches(batch_size=rows, row_groups=[group], columns=self._stored(names))
        return _frame(pa.Table.from_batches([with_keys(batch, self._keys, schema) for batch in batches], schema=schema))

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
