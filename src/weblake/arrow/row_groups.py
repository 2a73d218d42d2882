"""Row groups of bounded size, and the settings of the Parquet writer."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

#: Columns whose values repeat from row to row: they are dictionary-encoded.
_DICTIONARY_COLUMNS = {"load_id", "job_id", "job_kind", "status_code", "language", "content_type", "error", "warning"}
_DICTIONARY_COLUMNS |= {"outcome", "code", "api_key", "endpoint", "api_version"}
#: Columns that queries filter by. Body columns have neither dictionary nor statistics, which no query would use.
_STATISTICS_COLUMNS = _DICTIONARY_COLUMNS | {
    "position",
    "url",
    "source_url",
    "scrape_id",
    "page_key",
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


def writer(out: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with the settings of all files of weblake."""
    return pq.ParquetWriter(
        out,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name in _DICTIONARY_COLUMNS],
        write_statistics=[name for name in schema.names if name in _STATISTICS_COLUMNS],
    )
