"""Writes Parquet files to a local scratch directory, one row group at a time, and reads their footers.

A file is usable after `close` has written its footer and verified it by reading it back. If an error occurs before
that, the file is removed. It is synced when the storage publishes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow.schemas import SCHEMA_VERSION
from weblake.errors import StorageRefused

#: Bytes of Arrow data at which a row group is closed; it has at most a batch more.
GROUP_BYTES = 8 << 20
#: Maximum rows of a batch of a table that is written at once.
TABLE_ROWS = 1 << 15
#: Columns whose values repeat from row to row: they are dictionary-encoded.
_DICTIONARY_COLUMNS = {"load_id", "job_id", "job_kind", "status_code", "language", "content_type", "error", "warning"}
_DICTIONARY_COLUMNS |= {"outcome", "code", "api_key", "endpoint", "api_version"}

#: Keys of the footer's metadata.
RECEIPT_KEY = b"weblake.receipt"
VERSION_KEY = b"weblake.schema_version"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was closed and verified."""

    path: Path
    rows: int
    bytes: int


class ParquetFile:
    """Writes record batches of one schema to a new Parquet file.

    Another thread encodes row groups while the caller makes the next one; at most three are in memory. Use it as a
    context manager: on exit without `close`, or by an exception, it removes the file. Raises StorageRefused for errors
    of the disk (full, read-only, a file of that name exists).
    """

    def __init__(self, path: Path, schema: pa.Schema, *, group_bytes: int = GROUP_BYTES) -> None:
        self.path = Path(path)
        self.schema = schema
        #: Rows received so far, written to disk or not.
        self.rows = 0
        self._group_bytes = group_bytes
        #: The batches of the row group that is not complete yet, and their bytes of Arrow data.
        self._group: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        #: The row groups that another thread is encoding, or is to encode.
        self._encoding: list[Future[None]] = []
        with self._storage():
            self.path.open("xb").close()
            try:
                self._sink = pa.OSFile(str(self.path), "wb")
                self._writer = _writer(self._sink, schema)
            except BaseException:
                self.path.unlink(missing_ok=True)
                raise
        self._thread = ThreadPoolExecutor(1, "weblake-parquet")
        self._is_open = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch of exactly this schema; full row groups are written to disk."""
        with self._storage():
            self._group.append(batch)
            self._pending_bytes += batch.nbytes
            self.rows += batch.num_rows
            if self._pending_bytes >= self._group_bytes:
                self._encode_group()

    def close(self, receipt_json: bytes | None = None) -> Written:
        """Write the footer, verify the file, and return its path, rows and bytes.

        `receipt_json` is one JSON object for the footer; `read_receipt` returns it.
        """
        with self._storage():
            self._encode_group()
            self._wait()
            footer = {VERSION_KEY: str(SCHEMA_VERSION).encode()}
            if receipt_json is not None:
                footer[RECEIPT_KEY] = receipt_json
            self._writer.add_key_value_metadata(footer)
            self._writer.close()
            self._sink.close()
            self._check(receipt_json)
            self._is_open = False
            self._thread.shutdown()
            return Written(self.path, self.rows, self.path.stat().st_size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        self._thread.shutdown()  # the row group that is being encoded uses the writer
        for part in (self._writer, self._sink):
            with suppress(OSError, pa.ArrowException):
                part.close()
        self.path.unlink(missing_ok=True)

    def _encode_group(self) -> None:
        self._wait(left=1)
        table = pa.Table.from_batches(self._group, schema=self.schema)
        self._group, self._pending_bytes = [], 0
        if table.num_rows:
            self._encoding.append(self._thread.submit(self._writer.write_table, table, row_group_size=table.num_rows))

    def _wait(self, *, left: int = 0) -> None:
        while len(self._encoding) > left:
            self._encoding.pop(0).result()

    def _check(self, receipt_json: bytes | None) -> None:
        try:
            with self.path.open("rb") as file, pq.ParquetFile(file) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
        except pa.ArrowInvalid as e:
            raise _storage_error(self.path, f"it does not read back ({e})") from e
        if not schema.equals(self.schema):
            raise _storage_error(self.path, "its schema reads back otherwise than it was written")
        if metadata.num_rows != self.rows:
            raise _storage_error(self.path, f"it reads back {metadata.num_rows} rows where {self.rows} were written")
        if receipt_json is not None and _receipt(metadata) is None:
            raise _storage_error(self.path, "its receipt does not read back")

    @contextmanager
    def _storage(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise _storage_error(self.path, "a file of that name is there already") from None
        except OSError as e:
            raise _storage_error(self.path, str(e)) from e


def _writer(out: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with the settings of all files of weblake.

    Bodies, lists and structs have neither dictionary nor statistics, which no query would use.
    """
    bodies = {field.name for field in schema if field.type == pa.large_string() or pa.types.is_nested(field.type)}
    return pq.ParquetWriter(
        out,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name in _DICTIONARY_COLUMNS],
        write_statistics=[name for name in schema.names if name not in bodies],
    )


def write_table(path: Path, table: pa.Table, receipt: bytes | None = None) -> Written:
    """Write one table as one verified Parquet file and return its path, rows and bytes; raises as ParquetFile."""
    with ParquetFile(path, table.schema) as file:
        for batch in table.to_batches(TABLE_ROWS):
            file.write(batch)
        return file.close(receipt)


def read_receipt(source: IO[bytes]) -> dict[str, object] | None:
    """Return the receipt in the footer of a Parquet file, or None if it holds none. Only the footer is read.

    Raises StorageRefused if it is not a readable Parquet file.
    """
    try:
        return _receipt(pq.read_metadata(source))
    except (OSError, pa.ArrowInvalid) as e:
        raise _storage_error("The file", str(e)) from e


def columns_in_file(file: pq.ParquetFile, columns: Sequence[str], table: pa.Schema) -> list[str]:
    """Return the given columns that the file has; a file of the current schema version has all columns of its table."""
    found: Mapping[bytes, bytes] = file.metadata.metadata or {}
    same = found.get(VERSION_KEY) == str(SCHEMA_VERSION).encode() and not set(columns) - set(table.names)
    there = set(table.names if same else file.schema_arrow.names)
    return [column for column in columns if column in there]


def count_rows(source: IO[bytes], name: str) -> int:
    """Return the number of rows of a Parquet file from its footer; raises StorageRefused if it is unreadable."""
    try:
        return int(pq.read_metadata(source).num_rows)
    except (OSError, pa.ArrowInvalid) as e:
        raise _storage_error(name, str(e)) from e


def read_rows(source: IO[bytes], name: str, schema: pa.Schema) -> list[dict[str, object]]:
    """Return the rows of a small Parquet file; raises StorageRefused if it is unreadable or lacks a column."""
    try:
        rows: list[dict[str, object]] = pq.read_table(source).select(schema.names).to_pylist()
    except (OSError, KeyError, pa.ArrowException) as e:
        raise _storage_error(name, str(e)) from e
    return rows


def _receipt(metadata: pq.FileMetaData) -> dict[str, object] | None:
    found: Mapping[bytes, bytes] = metadata.metadata or {}
    try:
        receipt = json.loads(found[RECEIPT_KEY])
    except (KeyError, ValueError, RecursionError):
        return None
    return receipt if isinstance(receipt, dict) else None


def _storage_error(path: Path | str, why: str) -> StorageRefused:
    return StorageRefused(
        f"{path} is not a usable Parquet file: {why}.",
        hint="Check the free space and the rights of its directory; TMPDIR names another one for scratch files.",
    )
