"""Row groups of a Parquet file, made apart in memory, in any thread, and joined under one footer. Imports footers.

Compressing is what a landing costs most, and pyarrow's writer does it in one thread for a whole file. So each row group
is written by a writer of its own, and the file that they make is byte for byte the one that a single writer makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.tables import footers

#: How a Parquet file begins and ends.
MAGIC = b"PAR1"

#: Columns whose values repeat from row to row.
_DICTIONARY = {"load_id", "job_id", "job_kind", "status_code", "language", "content_type", "error", "warning"}
_DICTIONARY |= {"outcome", "code", "api_key", "endpoint", "api_version"}
#: Columns that queries select rows by. Bodies have neither dictionary nor statistics: they cost and serve nobody.
_STATISTICS = _DICTIONARY | {"position", "url", "source_url", "scrape_id", "loaded_at", "repaired", "occurred_at"}
_STATISTICS |= {"concurrency_limited", "concurrency_queue_duration_ms", "period_start", "period_end", "reported_at"}
_STATISTICS |= {"total_credits", "total_tokens", "id", "created_at", "target"}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group as it will lie in a file, compressed, and the footer of a file that held nothing else."""

    rows: int
    body: pa.Buffer
    footer: bytes


def row_group(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> RowGroup:
    """Makes one row group of these batches of the schema, together at least one row; beside other threads."""
    table = pa.Table.from_batches(batches, schema=schema)
    out = pa.BufferOutputStream()
    with _writer(out, schema) as file:
        file.write_table(table, row_group_size=table.num_rows)
    return _taken_apart(table.num_rows, out.getvalue())


class Gathering:
    """Batches on their way into row groups of no more than so many bytes of Arrow data, closed at half of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._batches: list[pa.RecordBatch] = []
        #: Bytes of Arrow data that wait for their row group to be full.
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[list[pa.RecordBatch]]:
        """Takes a batch and yields the row groups that are full; a row that is larger than one is one of its own."""
        for piece in _pieces(batch, self._most):
            size = piece.nbytes
            if self._batches and self.bytes + size > self._most:
                yield self.rest()
            self._batches.append(piece)
            self.bytes += size
            if self.bytes * 2 >= self._most:
                yield self.rest()

    def rest(self) -> list[pa.RecordBatch]:
        """Returns what waits, and has it no more; it may be nothing."""
        batches, self._batches, self.bytes = self._batches, [], 0
        return batches


def _pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The batch, halved until each piece is a row group's worth or a single row."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), most)
    yield from _pieces(batch.slice(half), most)


def _writer(out: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of the format that all our files have."""
    return pq.ParquetWriter(
        out,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name in _DICTIONARY],
        write_statistics=[name for name in schema.names if name in _STATISTICS],
    )


class Footer:
    """What the footer of a file says of its row groups, added in their order; the first begins behind `MAGIC`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._groups: pq.FileMetaData | None = None
        self._bytes = 0

    def add(self, group: RowGroup) -> None:
        """Adds the row group that lies behind those so far."""
        if self._groups is None:
            self._groups = _metadata(group.footer)  # it lies where it said
        else:
            moved = footers.moved(group.footer, self._bytes, self._groups.num_row_groups)
            self._groups.append_row_groups(_metadata(moved))
        self._bytes += group.body.size

    def written(self, values: Mapping[bytes, bytes]) -> pa.Buffer:
        """Returns all that stands behind the row groups, with these keys and values."""
        whole = _without_groups(self._schema, values)
        if self._groups is not None:
            whole.append_row_groups(self._groups)
        out = pa.BufferOutputStream()
        whole.write_metadata_file(out)
        return out.getvalue().slice(len(MAGIC))


def _without_groups(schema: pa.Schema, values: Mapping[bytes, bytes]) -> pq.FileMetaData:
    out = pa.BufferOutputStream()
    with _writer(out, schema) as file:
        file.add_key_value_metadata(dict(values))
    return pq.ParquetFile(pa.BufferReader(out.getvalue())).metadata


def _taken_apart(rows: int, file: pa.Buffer) -> RowGroup:
    size = int.from_bytes(file[file.size - 8 : file.size - 4], "little")
    ends = file.size - 8 - size
    return RowGroup(rows, file.slice(len(MAGIC), ends - len(MAGIC)), file.slice(ends, size).to_pybytes())


def _metadata(footer: bytes) -> pq.FileMetaData:
    return pq.ParquetFile(pa.BufferReader(b"".join((MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC)))).metadata
