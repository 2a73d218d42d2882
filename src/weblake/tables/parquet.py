"""One checked Parquet file on local scratch, written a row group at a time.

The file is nothing to anybody until `close` has written its footer, synced it to disk and read it back. Whatever goes
wrong before that, no file is left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import Self

from weblake.background import run_in_thread
from weblake.errors import StorageRefused
from weblake.tables.row_groups import MAGIC, Footer, Gathering, RowGroup, row_group
from weblake.tables.schemas import SCHEMA_VERSION

#: A row group is closed at half of these bytes of Arrow data, so that a chunk of 10 MB goes to disk at once.
GROUP_BYTES = 16 << 20
#: So many bytes take long enough to sync that it is worth a thread.
SETTLE_BYTES = 8 << 20

#: Keys of the footer's metadata.
RECEIPT_KEY = b"weblake.receipt"
LOADS_KEY = b"weblake.loads"
VERSION_KEY = b"weblake.schema_version"


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
        self._gathering = Gathering(group_bytes)
        self._footer = Footer(schema)
        self._open: IO[bytes] | None = None
        #: The syncing of the first part of it, where that was begun.
        self._settled: Future[None] | None = None
        with self._storage():
            self._open = self.path.open("xb", buffering=0)
        with self._storage(), self._removed_on_error():
            self._put(MAGIC)

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes the rows of a batch of exactly this schema; full row groups go to disk."""
        self._must_be_open()
        with self._storage(), self._removed_on_error():
            if not batch.schema.equals(self.schema):
                raise ValueError(f"A batch for {self.path.name} has another schema than the file.")
            for group in self._gathering.add(batch):
                self._append(row_group(self.schema, group))
            self.rows += batch.num_rows

    def append(self, group: RowGroup) -> None:
        """Takes a row group that was made of this schema elsewhere, behind all rows so far."""
        self._must_be_open()
        with self._storage(), self._removed_on_error():
            self._flush()
            self._append(group)
            self.rows += group.rows

    def settle(self) -> None:
        """Begins to sync what is written so far, beside other work and in any thread: `close` has less to wait for."""
        if self._settled is None and self._open is not None and self._open.tell() >= SETTLE_BYTES:
            self._settled = run_in_thread(partial(_sync, self.path))

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes on disk so far, and bytes of Arrow data that wait for their row group to be full."""
        return self._must_be_open().tell(), self._gathering.bytes

    def close(self, receipt_json: bytes | None = None, *, loads: Mapping[str, int] | None = None) -> Written:
        """Writes the footer, syncs the file to disk, checks it, and returns its path, rows and bytes.

        `receipt_json` is one JSON object for the footer of a load's own file; `read_receipt` returns it. `loads` is for
        a file of several loads: their rows by load id, in the order in which they lie; `read_loads` returns it.
        """
        file = self._must_be_open()
        with self._storage(), self._removed_on_error():
            self._flush()
            footer = {VERSION_KEY: str(SCHEMA_VERSION).encode()}
            if receipt_json is not None:
                footer[RECEIPT_KEY] = receipt_json
            if loads is not None:
                footer[LOADS_KEY] = json.dumps(list(loads.items())).encode()
            self._put(self._footer.written(footer))
            file.close()
            self._open = None
            if self._settled is not None:
                self._settled.result()  # what it failed at once, the kernel may not tell again
            _sync(self.path)
            self._check(receipt_json, loads)
            return Written(self.path, self.rows, self.path.stat().st_size)

    def abort(self) -> None:
        """Removes the file, unless `close` has returned it."""
        file, self._open = self._open, None
        self._gathering.rest()
        if file is not None:
            with suppress(OSError):
                file.close()
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _must_be_open(self) -> IO[bytes]:
        if self._open is None:
            raise ValueError(f"{self.path.name} is closed.")
        return self._open

    def _put(self, part: bytes | pa.Buffer) -> None:
        file, rest = self._must_be_open(), memoryview(part)
        while rest:
            rest = rest[file.write(rest) :]

    def _flush(self) -> None:
        group = self._gathering.rest()
        if group:
            self._append(row_group(self.schema, group))

    def _append(self, group: RowGroup) -> None:
        self._put(group.body)
        self._footer.add(group)

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


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _refused(path: Path | str, why: str) -> StorageRefused:
    return StorageRefused(
        f"{path} is no usable Parquet file: {why}.",
        hint="Check the free space and the rights of its directory; TMPDIR names another one for scratch files.",
    )
