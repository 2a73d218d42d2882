"""Encodes row groups of a Parquet file separately in memory, in any thread, and joins them under one footer.

Compression is the largest cost of a landing, and pyarrow's writer compresses a file in one thread. So each row group
has its own writer; the joined file is byte for byte equal to the file of a single writer
(docs/decisions/037-parallel-row-groups.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import footers

#: The first and last bytes of a Parquet file.
MAGIC = b"PAR1"

#: Columns whose values repeat from row to row: they are dictionary-encoded.
_DICTIONARY_COLUMNS = {"load_id", "job_id", "job_kind", "status_code", "language", "content_type", "error", "warning"}
_DICTIONARY_COLUMNS |= {"outcome", "code", "api_key", "endpoint", "api_version"}
#: Columns that queries filter by. Body columns have neither dictionary nor statistics, which no query would use.
_STATISTICS_COLUMNS = _DICTIONARY_COLUMNS | {
    "position",
    "url",
    "source_url",
    "scrape_id",
    "loaded_at",
    "repaired",
    "occurred_at",
}
_STATISTICS_COLUMNS |= {
    "concurrency_limited",
    "concurrency_queue_duration_ms",
    "period_start",
    "period_end",
    "reported_at",
}
_STATISTICS_COLUMNS |= {"total_credits", "total_tokens", "id", "created_at", "target"}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The compressed bytes of one row group, and the footer of a file that holds only this row group."""

    rows: int
    body: pa.Buffer
    footer: bytes


def row_group(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> RowGroup:
    """Return one row group with the rows of these batches, at least one row; runs in parallel with other threads."""
    table = pa.Table.from_batches(batches, schema=schema)
    out = pa.BufferOutputStream()
    with _writer(out, schema) as file:
        file.write_table(table, row_group_size=table.num_rows)
    return _split_file(table.num_rows, out.getvalue())


class RowGroupBuffer:
    """Collects batches for row groups of at most `most` bytes of Arrow data, closed at half of this size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._batches: list[pa.RecordBatch] = []
        #: Bytes of Arrow data in the current, incomplete row group.
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[list[pa.RecordBatch]]:
        """Add a batch and yield the batches of each full row group; a row larger than a row group gets its own."""
        for piece in _pieces(batch, self._most):
            size = piece.nbytes
            if self._batches and self.bytes + size > self._most:
                yield self.rest()
            self._batches.append(piece)
            self.bytes += size
            if self.bytes * 2 >= self._most:
                yield self.rest()

    def rest(self) -> list[pa.RecordBatch]:
        """Return and remove the batches of the incomplete row group; the list may be empty."""
        batches, self._batches, self.bytes = self._batches, [], 0
        return batches


def _pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of the batch, halved until each fits into a row group or has one row."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), most)
    yield from _pieces(batch.slice(half), most)


def _writer(out: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with the settings of all files of weblake."""
    return pq.ParquetWriter(
        out,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name in _DICTIONARY_COLUMNS],
        write_statistics=[name for name in schema.names if name in _STATISTICS_COLUMNS],
    )


class Footer:
    """The footer of a file, built from its row groups in order; the first one begins directly after `MAGIC`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._groups: pq.FileMetaData | None = None
        self._bytes = 0

    def add(self, group: RowGroup) -> None:
        """Add the next row group of the file."""
        if self._groups is None:
            self._groups = _metadata(group.footer)  # the first row group keeps its offsets
        else:
            moved = footers.shift_offsets(group.footer, self._bytes, self._groups.num_row_groups)
            self._groups.append_row_groups(_metadata(moved))
        self._bytes += group.body.size

    def serialize(self, values: Mapping[bytes, bytes]) -> pa.Buffer:
        """Return all bytes after the row groups; the footer holds these keys and values as metadata."""
        whole = _metadata_without_groups(self._schema, values)
        if self._groups is not None:
            whole.append_row_groups(self._groups)
        out = pa.BufferOutputStream()
        whole.write_metadata_file(out)
        return out.getvalue().slice(len(MAGIC))


def _metadata_without_groups(schema: pa.Schema, values: Mapping[bytes, bytes]) -> pq.FileMetaData:
    out = pa.BufferOutputStream()
    with _writer(out, schema) as file:
        file.add_key_value_metadata(dict(values))
    return pq.ParquetFile(pa.BufferReader(out.getvalue())).metadata


def _split_file(rows: int, file: pa.Buffer) -> RowGroup:
    size = int.from_bytes(file[file.size - 8 : file.size - 4], "little")
    ends = file.size - 8 - size
    return RowGroup(rows, file.slice(len(MAGIC), ends - len(MAGIC)), file.slice(ends, size).to_pybytes())


def _metadata(footer: bytes) -> pq.FileMetaData:
    return pq.ParquetFile(pa.BufferReader(b"".join((MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC)))).metadata
