"""Merges the files of one folder of a table into files of a chosen size in another root.

Files are read in the order of their names. Each load stays in one file, with its rows contiguous and in order. The
content of each new file depends on the old files only, so another run can continue a killed run, file by file, with the
same result.

Files are merged if the ledger records that their loads have landed and if they have exactly the columns of the table.
All other files (not recorded because the run ended before, or with the columns of another version) and files that have
the chosen size already are copied unchanged. Retired loads are left out of each file: their retirement would have
deleted their rows, and the new root has no record with which a later run would find them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from weblake.arrow import parquet
from weblake.dataset import compacted_files, layout, parallel
from weblake.errors import StorageRefused
from weblake.storage import Storage

#: Files that are prefetched, and the maximum bytes of a file that is prefetched whole: a small file on an object store
#: costs mainly one round trip.
AHEAD, WHOLE = 16, 2 << 20
#: Rows per batch that is read, and bytes per block that is copied.
ROWS, BLOCK = 1024, 1 << 20
_STOP_WRITERS = "Stop the programs that change this root, and compact again."


@dataclass(frozen=True, slots=True)
class MovedFile:
    """The new location of the rows of an old file."""

    old: str
    old_bytes: int
    #: The new file; None if all loads of the old file are retired.
    new: str | None
    new_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class LedgerContents:
    """The files and loads on record in the ledger of the source root."""

    #: Row counts by file and load id, from the receipts of the loads that are not retired.
    rows: Mapping[tuple[str, str], int]
    #: Ids of the loads that later loads have replaced.
    retired: Collection[str]


@dataclass(frozen=True, slots=True)
class _Input:
    """One old file and what is to be merged of it."""

    name: str
    bytes: int
    rows: int
    #: The row counts to be merged, by load id; None if the file is copied.
    loads: Mapping[str, int] | None = None
    #: Whether some of its loads are left out.
    cut: bool = False
    #: Size in bytes without the footer.
    data: int = 0
    file: pq.ParquetFile | None = None
    #: The row counts that a copy keeps, by load id; None if the file is copied unchanged.
    copied: Mapping[str, int] | None = None


class Merge:
    """Merges files of one root into files of another root."""

    def __init__(self, source: Storage, target: Storage, landed: LedgerContents, file_size: int) -> None:
        self._source, self._target, self._landed, self._size = source, target, landed, file_size

    def folder(self, names: Sequence[str], schema: pa.Schema, there: Collection[str]) -> Iterator[MovedFile]:
        """Merge the files of one folder; yield the new location of each old file once it is published.

        Args:
            names: The files, sorted.
            schema: The columns of their table.
            there: The files that an earlier run has published in this folder of the new root.

        Raises:
            StorageRefused: A file cannot be read, disagrees with its receipt, or others write into the new root.
        """
        there = set(there)
        merged = {name: self._loads_of(name) for name in sorted(there) if layout.is_compacted(name)}
        held = {load_id: name for name, loads in merged.items() for load_id in loads}
        output: _Output | None = None
        with self._target.scratch() as scratch:
            try:
                for each in parallel.in_order(names, lambda name: self._describe(name, schema), most=AHEAD):
                    if each.loads is not None and not each.loads:
                        yield MovedFile(each.name, each.bytes, None, 0, 0)
                    elif each.loads and set(each.loads) <= held.keys():
                        name = held[next(iter(each.loads))]
                        yield self._locate(each, name, merged[name])
                    elif each.name in there or each.loads is None or (each.bytes >= self._size and not each.cut):
                        yield self._copy(each, scratch, each.name in there)
                    else:
                        if output is not None and not output.has_room(each, self._size):
                            yield from self._close(output, scratch)
                            output = None
                        output = output or _Output(scratch / "merged.parquet", schema)
                        output.add(each, self._source)
                if output is not None:
                    yield from self._close(output, scratch)
            finally:
                if output is not None:
                    output.file.abort()  # no effect on a closed file

    def _describe(self, name: str, schema: pa.Schema) -> _Input:
        size = self._source.size(name)
        if size > WHOLE:
            with self._source.open_input(name) as source:
                return self._describe_file(name, size, _open(name, source), schema, keep=False)
        content = self._source.read(name)
        if content is None:
            raise StorageRefused(f"{name} is gone from {self._source.url}.", hint=_STOP_WRITERS)
        return self._describe_file(name, size, _open(name, pa.BufferReader(content)), schema, keep=True)

    def _describe_file(self, name: str, size: int, file: pq.ParquetFile, schema: pa.Schema, *, keep: bool) -> _Input:
        found: pq.FileMetaData = file.metadata
        compacted = parquet.read_loads(found) if layout.is_compacted(name) else None
        loads = compacted or {layout.load_id_in(name): found.num_rows}
        kept = {each: rows for each, rows in loads.items() if each not in self._landed.retired}
        if not kept:  # also if its columns are those of an older version
            return _Input(name, size, 0, kept)
        if not file.schema_arrow.equals(schema) or any((name, each) not in self._landed.rows for each in kept):
            return _Input(name, size, sum(kept.values()), copied=kept if len(kept) < len(loads) else None)
        for each, rows in kept.items():
            if rows != self._landed.rows[name, each]:
                raise _damaged_error(
                    name, f"it has {rows} rows of load {each}, its receipt {self._landed.rows[name, each]}"
                )
        data = size - found.serialized_size
        return _Input(name, size, sum(kept.values()), kept, len(kept) < len(loads), data, file if keep else None)

    def _loads_of(self, name: str) -> Mapping[str, int]:
        with self._target.open_input(name) as source:
            return parquet.read_loads(_open(name, source).metadata) or {}

    def _locate(self, each: _Input, name: str, found: Mapping[str, int]) -> MovedFile:
        """Return the location of a file that an earlier run has merged."""
        if any(found.get(load_id) != rows for load_id, rows in (each.loads or {}).items()):
            raise differs_error(self._target, name)
        return MovedFile(each.name, each.bytes, name, self._target.size(name), each.rows)

    def _copy(self, each: _Input, scratch: Path, there: bool) -> MovedFile:
        """Copy a file unless an earlier run has done it (`there`); return its location."""
        if each.copied is not None:
            return self._copy_loads(each, each.copied, scratch, there)
        if not there:
            copied = copy_file(self._source, self._target, each.name, scratch)
            if copied != each.bytes:
                raise StorageRefused(
                    f"{each.name} of {self._source.url} changed while it was copied.",
                    hint=_STOP_WRITERS,
                )
        if self._target.size(each.name) != each.bytes:
            raise differs_error(self._target, each.name)
        return MovedFile(each.name, each.bytes, each.name, each.bytes, each.rows)

    def _copy_loads(self, each: _Input, kept: Mapping[str, int], scratch: Path, there: bool) -> MovedFile:
        """Copy a compacted file without its retired loads, as `_copy` does."""
        if not there:
            with self._source.open_input(each.name) as source:
                written = compacted_files.write_loads(_open(each.name, source), scratch / "kept.parquet", kept)
            self._target.publish(written.path, each.name)
            written.path.unlink(missing_ok=True)
        if self._loads_of(each.name) != kept:
            raise differs_error(self._target, each.name)
        return MovedFile(each.name, each.bytes, each.name, self._target.size(each.name), each.rows)

    def _close(self, output: _Output, scratch: Path) -> Iterator[MovedFile]:
        """Publish a merged file; a single input that is merged whole is copied unchanged."""
        if len(output.inputs) == 1 and not output.inputs[0].cut:
            output.file.abort()
            yield self._copy(output.inputs[0], scratch, there=False)
            return
        written = output.file.close(loads=output.loads)
        name = layout.compacted_path(output.inputs[0].name.rpartition("/")[0], next(iter(output.loads)))
        if not self._target.publish(written.path, name) and self._loads_of(name) != output.loads:
            raise differs_error(self._target, name)
        written.path.unlink(missing_ok=True)
        for each in output.inputs:
            yield MovedFile(each.name, each.bytes, name, written.bytes, each.rows)


def copy_file(source: Storage, target: Storage, name: str, scratch: Path) -> int:
    """Publish a file of one root in another root under the same name, only if absent; return its size in bytes."""
    copy = scratch / "copy"
    with source.open_input(name) as opened, copy.open("wb") as out:
        copyfileobj(opened, out, BLOCK)
    size = copy.stat().st_size
    target.publish(copy, name)
    copy.unlink(missing_ok=True)
    return size


class _Output:
    """A merged file that is being written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.file = parquet.ParquetFile(path, schema)
        self.inputs: list[_Input] = []
        self.loads: dict[str, int] = {}
        self._columns = schema.names
        self._data = self._arrow = 0

    def has_room(self, each: _Input, size: int) -> bool:
        """Return whether the file stays within `size` bytes if this input is added."""
        written, waiting = self.file.progress
        return written + waiting * self._data // max(1, self._arrow) + each.data <= size

    def add(self, each: _Input, source: Storage) -> None:
        """Add the rows of an old file; at most one row group of it is in memory."""
        assert each.loads is not None
        if each.file is not None:
            self._add(each, each.file)
        else:
            with source.open_input(each.name) as opened:
                self._add(each, _open(each.name, opened))
        self.inputs.append(_Input(each.name, each.bytes, each.rows, each.loads, each.cut))
        self.loads.update(each.loads)
        self._data += each.data

    def _add(self, each: _Input, file: pq.ParquetFile) -> None:
        found: Counter[str] = Counter()
        for batch in compacted_files.batches(file, self._columns, ROWS, loads=each.loads if each.cut else None):
            for counted in pc.value_counts(batch.column("load_id")).to_pylist():
                found[counted["values"]] += counted["counts"]
            self._arrow += batch.nbytes
            self.file.write(batch)
        if found != each.loads:
            raise _damaged_error(each.name, "its rows are not those of the loads that it stands for")


def _open(name: str, source: IO[bytes] | pa.BufferReader) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (OSError, pa.ArrowInvalid) as error:
        raise _damaged_error(name, f"it is no readable Parquet file ({error})") from error


def _damaged_error(name: str, why: str) -> StorageRefused:
    return StorageRefused(
        f"{name} cannot be compacted: {why}.",
        hint="Restore it from a backup, or move it out of the table. Then compact again.",
    )


def differs_error(target: Storage, name: str) -> StorageRefused:
    """Return the error that the new root holds different content under this name."""
    return StorageRefused(
        f"{name} in {target.url} differs from the file that this compaction writes.",
        hint="Another process has written to that root: remove it, or compact into another root.",
    )
