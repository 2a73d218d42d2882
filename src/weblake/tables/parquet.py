"""One checked Parquet file on local scratch, written a row group at a time. Imports: errors, schemas.

The file is nothing to anybody until `close` has written its footer, synced it to disk and read it back. Whatever goes
wrong before that, no file is left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.errors import StorageRefused
from weblake.tables.schemas import SCHEMA_VERSION

#: A row group is closed at half of these bytes of Arrow data, so that a chunk of 10 MB goes to disk at once, and never
#: has more; one row that is larger is a group of its own.
GROUP_BYTES = 16 << 20

#: Keys of the footer's metadata.
RECEIPT_KEY = b"weblake.receipt"
LOADS_KEY = b"weblake.loads"
VERSION_KEY = b"weblake.schema_version"

#: Columns whose values repeat from row to row.
_DICTIONARY = {"load_id", "job_id", "job_kind", "status_code", "language", "content_type", "error", "warning"}
_DICTIONARY |= {"outcome", "code", "api_key", "endpoint", "api_version"}
#: Columns that queries select rows by. Bodies have neither dictionary nor statistics: they cost and serve nobody.
_STATISTICS = _DICTIONARY | {"position", "url", "source_url", "scrape_id", "loaded_at", "repaired", "occurred_at"}
_STATISTICS |= {"concurrency_limited", "concurrency_queue_duration_ms", "period_start", "period_end", "reported_at"}
_STATISTICS |= {"total_credits", "total_tokens", "id", "created_at", "target"}


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was closed, synced and checked."""

    path: Path
    rows: int
    bytes: int


class ParquetFile:
    """Writes record batches of one schema to a new Parquet file; at most one row group is held in memory.

    Use it as a context manager: left without `close`, or by an exception, it removes the file. Raises StorageRefused
    where the disk refuses (full, read-only, a file of that name).
    """

    def __init__(self, path: Path, schema: pa.Schema, *, group_bytes: int = GROUP_BYTES) -> None:
        self.path = Path(path)
        self.schema = schema
        #: Rows handed over so far, written out or not.
        self.rows = 0
        self._group_bytes = group_bytes
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        with self._storage():
            self.path.touch(exist_ok=False)
        with self._storage(), self._removed_on_error():
            self._sink = pa.OSFile(str(self.path), "wb")
            self._writer = pq.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in schema.names if name in _DICTIONARY],
                write_statistics=[name for name in schema.names if name in _STATISTICS],
            )

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes the rows of a batch of exactly this schema; full row groups go to disk."""
        self._must_be_open()
        with self._storage(), self._removed_on_error():
            if not batch.schema.equals(self.schema):
                raise ValueError(f"A batch for {self.path.name} has another schema than the file.")
            for piece in _pieces(batch, self._group_bytes):
                self._gather(piece)
            self.rows += batch.num_rows

    def flush(self) -> None:
        """Writes what waits for its row group to be full: for whoever has to wait before it can close the file."""
        self._must_be_open()
        with self._storage(), self._removed_on_error():
            self._flush()

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes on disk so far, and bytes of Arrow data that wait for their row group to be full."""
        self._must_be_open()
        return self._sink.tell(), self._pending_bytes

    def close(self, receipt_json: bytes | None = None, *, loads: Mapping[str, int] | None = None) -> Written:
        """Writes the footer, syncs the file to disk, checks it, and returns its path, rows and bytes.

        `receipt_json` is one JSON object for the footer of a load's own file; `read_receipt` returns it. `loads` is for
        a file of several loads: their rows by load id, in the order in which they lie; `read_loads` returns it.
        """
        writer = self._must_be_open()
        with self._storage(), self._removed_on_error():
            self._flush()
            footer = {VERSION_KEY: str(SCHEMA_VERSION).encode()}
            if receipt_json is not None:
                footer[RECEIPT_KEY] = receipt_json
            if loads is not None:
                footer[LOADS_KEY] = json.dumps(list(loads.items())).encode()
            writer.add_key_value_metadata(footer)
            writer.close()
            self._sink.close()
            self._writer = None
            _sync(self.path)
            self._check(receipt_json, loads)
            return Written(self.path, self.rows, self.path.stat().st_size)

    def abort(self) -> None:
        """Removes the file, unless `close` has returned it."""
        writer, self._writer = self._writer, None
        self._pending, self._pending_bytes = [], 0
        if writer is not None:
            for part in (writer, self._sink):
                with suppress(OSError, pa.ArrowException):
                    part.close()
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _must_be_open(self) -> pq.ParquetWriter:
        if self._writer is None:
            raise ValueError(f"{self.path.name} is closed.")
        return self._writer

    def _gather(self, piece: pa.RecordBatch) -> None:
        size = piece.nbytes
        if self._pending and self._pending_bytes + size > self._group_bytes:
            self._flush()
        self._pending.append(piece)
        self._pending_bytes += size
        if self._pending_bytes * 2 >= self._group_bytes:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending and self._writer is not None:
            group = pa.Table.from_batches(pending, schema=self.schema)
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))

    def _check(self, receipt_json: bytes | None, loads: Mapping[str, int] | None) -> None:
        try:
            with self.path.open("rb") as file, pq.ParquetFile(file) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
        except pa.ArrowInvalid as e:
            raise _refused(self.path, f"it does not read back ({e})") from e
        if not schema.equals(self.schema):
            raise _refused(self.path, "its schema reads back otherwise than it was written")
        if metadata.num_rows != self.rows:
            raise _refused(self.path, f"it reads back {metadata.num_rows} rows where {self.rows} were written")
        if receipt_json is not None and _receipt(metadata) is None:
            raise _refused(self.path, "its receipt does not read back")
        if loads is not None and (read_loads(metadata) != loads or sum(loads.values()) != self.rows):
            raise _refused(self.path, "its rows are not those of its loads")

    @contextmanager
    def _storage(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise _refused(self.path, "a file of that name is there already") from None
        except OSError as e:
            raise _refused(self.path, str(e)) from e

    @contextmanager
    def _removed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            self.path.unlink(missing_ok=True)
            raise


def write_table(path: Path, table: pa.Table, receipt: bytes | None = None) -> Written:
    """Writes one table as one checked Parquet file and returns its path, rows and bytes; otherwise as ParquetFile."""
    with ParquetFile(path, table.schema) as file:
        for batch in table.to_batches():
            file.write(batch)
        return file.close(receipt)


def read_receipt(source: Path | str | IO[bytes]) -> dict[str, object] | None:
    """Returns the receipt in a Parquet file's footer, or None where it holds none. Reads the footer only.

    Raises StorageRefused for what is no readable Parquet file.
    """
    try:
        if not isinstance(source, Path | str):
            return _receipt(pq.read_metadata(source))
        with Path(source).open("rb") as file:
            return _receipt(pq.read_metadata(file))
    except (OSError, pa.ArrowInvalid) as e:
        raise _refused(source if isinstance(source, Path | str) else "The file", str(e)) from e


def stored(file: pq.ParquetFile, columns: Sequence[str], table: pa.Schema) -> list[str]:
    """Returns those of these columns that a file of a table has: all of the table's, where this version wrote it."""
    found: Mapping[bytes, bytes] = file.metadata.metadata or {}
    same = found.get(VERSION_KEY) == str(SCHEMA_VERSION).encode()
    there = set(table.names if same else file.schema_arrow.names)
    return [column for column in columns if column in there]


def read_loads(metadata: pq.FileMetaData) -> dict[str, int] | None:
    """Returns the loads that a compacted file holds, with their rows; None of any other file."""
    found: Mapping[bytes, bytes] = metadata.metadata or {}
    try:
        return {str(load_id): int(rows) for load_id, rows in json.loads(found[LOADS_KEY])}
    except (KeyError, ValueError, TypeError, RecursionError):
        return None


def count_rows(source: IO[bytes], name: str) -> int:
    """Returns the rows of a Parquet file from its footer; raises StorageRefused with its name where it is none."""
    try:
        return int(pq.read_metadata(source).num_rows)
    except (OSError, pa.ArrowInvalid) as e:
        raise _refused(name, str(e)) from e


def read_rows(source: IO[bytes], name: str, schema: pa.Schema) -> list[dict[str, object]]:
    """Returns the rows of a small Parquet file; raises StorageRefused where it is none, or lacks a column of these."""
    try:
        rows: list[dict[str, object]] = pq.read_table(source).select(schema.names).to_pylist()
    except (OSError, KeyError, pa.ArrowException) as e:
        raise _refused(name, str(e)) from e
    return rows


def _receipt(metadata: pq.FileMetaData) -> dict[str, object] | None:
    found: Mapping[bytes, bytes] = metadata.metadata or {}
    try:
        receipt = json.loads(found[RECEIPT_KEY])
    except (KeyError, ValueError, RecursionError):
        return None
    return receipt if isinstance(receipt, dict) else None


def _pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The batch, halved until each piece is a row group's worth or a single row."""
    if batch.num_rows <= 1 or batch.nbytes <= most:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), most)
    yield from _pieces(batch.slice(half), most)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _refused(path: Path | str, why: str) -> StorageRefused:
    return StorageRefused(
        f"{path} is no usable Parquet file: {why}.",
        hint="Check the free space and the rights of its directory; TMPDIR names another one for scratch files.",
    )
