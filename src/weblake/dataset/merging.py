"""The files of one folder of a table, merged into files of a chosen size in another root.

Files are taken in the order of their names and each load stays in one file, its rows together and in their order. What
a file holds and where the next one begins follow from the old files alone, so that a run that was killed is gone on
with by another one, file by file, and comes to the same.

Merged is what the ledger knows to have landed, with the columns of its table. Anything else (a file whose run died
before it was on record, or that somebody else put there) and whatever is as large as the size already is copied byte
for byte. What a later load has retired is left out, as its rows would be gone if the run that retired them had lived.
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

from weblake.dataset import compacted_files, layout
from weblake.dataset.prefetch import each_ahead
from weblake.errors import StorageRefused
from weblake.storage import Storage
from weblake.tables import parquet

#: Files that are opened ahead, and the bytes up to which one is read whole by that: small files on object stores cost
#: a round trip each, and little else.
AHEAD, WHOLE = 16, 2 << 20
#: Rows that are read at once, and bytes that are copied at once.
ROWS, BLOCK = 1024, 1 << 20


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the rows of an old file lie now."""

    old: str
    old_bytes: int
    #: The new file; None where a retirement left nothing of the old one.
    new: str | None
    new_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class LedgerContents:
    """The files and loads on record in the ledger of the source root."""

    #: Rows by the file and the load whose they are, as receipts have them; of loads that are not retired.
    rows: Mapping[tuple[str, str], int]
    #: Loads whose place later ones have taken.
    retired: Collection[str]


@dataclass(frozen=True, slots=True)
class _Input:
    """One old file."""

    name: str
    bytes: int
    rows: int
    #: What is to be merged of it: rows by load; None where the file is copied as it is.
    loads: Mapping[str, int] | None = None
    #: Whether loads of it are left out.
    cut: bool = False
    #: Bytes without the footer.
    data: int = 0
    file: pq.ParquetFile | None = None


class Merge:
    """From one root into another one."""

    def __init__(self, source: Storage, target: Storage, landed: LedgerContents, file_size: int) -> None:
        self._source, self._target, self._landed, self._size = source, target, landed, file_size

    def folder(self, names: Sequence[str], schema: pa.Schema, there: Collection[str]) -> Iterator[Moved]:
        """Merges the files of one folder, and tells of each old file where its rows are once they are there.

        Args:
            names: The files, sorted.
            schema: The columns of their table.
            there: What an earlier run has put into this folder of the new root.

        Raises:
            StorageRefused: A file cannot be read, is not as its receipt says, or the new root is written by others.
        """
        there = set(there)
        merged = {name: self._loads_of(name) for name in sorted(there) if layout.is_compacted(name)}
        held = {load_id: name for name, loads in merged.items() for load_id in loads}
        output: _Output | None = None
        with self._target.scratch() as scratch:
            try:
                for _, each in each_ahead(names, lambda name: self._describe(name, schema), AHEAD, AHEAD):
                    if each.loads is not None and not each.loads:
                        yield Moved(each.name, each.bytes, None, 0, 0)
                    elif each.loads and set(each.loads) <= held.keys():
                        name = held[next(iter(each.loads))]
                        yield self._placed(each, name, merged[name])
                    elif each.name in there or each.loads is None or (each.bytes >= self._size and not each.cut):
                        yield self._copied(each, scratch, each.name in there)
                    else:
                        if output is not None and not output.has_room(each, self._size):
                            yield from self._closed(output, scratch)
                            output = None
                        output = output or _Output(scratch / "merged.parquet", schema)
                        output.add(each, self._source)
                if output is not None:
                    yield from self._closed(output, scratch)
            finally:
                if output is not None:
                    output.file.abort()  # does nothing to a file that was closed

    def _describe(self, name: str, schema: pa.Schema) -> _Input:
        size = self._source.size(name)
        if size > WHOLE:
            with self._source.open_input(name) as source:
                return self._described_by(name, size, _open(name, source), schema, keep=False)
        content = self._source.read(name)
        if content is None:
            raise StorageRefused(f"{name} is gone from {self._source.url}.", hint="Compact a root that nobody changes.")
        return self._described_by(name, size, _open(name, pa.BufferReader(content)), schema, keep=True)

    def _described_by(self, name: str, size: int, file: pq.ParquetFile, schema: pa.Schema, *, keep: bool) -> _Input:
        found: pq.FileMetaData = file.metadata
        compacted = parquet.read_loads(found) if layout.is_compacted(name) else None
        own = layout.load_id_in(name)
        if compacted is None and own in self._landed.retired:
            return _Input(name, size, 0, {}, cut=True)
        loads = compacted or {own: found.num_rows}
        kept = {each: rows for each, rows in loads.items() if each not in self._landed.retired}
        if not file.schema_arrow.equals(schema) or any((name, each) not in self._landed.rows for each in kept):
            return _Input(name, size, found.num_rows)
        for each, rows in kept.items():
            if rows != self._landed.rows[name, each]:
                raise _damaged(name, f"it has {rows} rows of load {each}, its receipt {self._landed.rows[name, each]}")
        data = size - found.serialized_size
        return _Input(name, size, sum(kept.values()), kept, len(kept) < len(loads), data, file if keep else None)

    def _loads_of(self, name: str) -> Mapping[str, int]:
        with self._target.open_input(name) as source:
            return parquet.read_loads(_open(name, source).metadata) or {}

    def _placed(self, each: _Input, name: str, found: Mapping[str, int]) -> Moved:
        """What an earlier run has done."""
        if any(found.get(load_id) != rows for load_id, rows in (each.loads or {}).items()):
            raise strange(self._target, name)
        return Moved(each.name, each.bytes, name, self._target.size(name), each.rows)

    def _copied(self, each: _Input, scratch: Path, there: bool) -> Moved:
        if not there:
            copied = copy_file(self._source, self._target, each.name, scratch)
            if copied != each.bytes:
                raise StorageRefused(
                    f"{each.name} of {self._source.url} changed while it was copied.",
                    hint="Compact a root that nobody changes.",
                )
        if self._target.size(each.name) != each.bytes:
            raise strange(self._target, each.name)
        return Moved(each.name, each.bytes, each.name, each.bytes, each.rows)

    def _closed(self, output: _Output, scratch: Path) -> Iterator[Moved]:
        if len(output.inputs) == 1 and not output.inputs[0].cut:
            output.file.abort()
            yield self._copied(output.inputs[0], scratch, there=False)
            return
        written = output.file.close(loads=output.loads)
        name = layout.compacted_path(output.inputs[0].name.rpartition("/")[0], next(iter(output.loads)))
        if not self._target.publish(written.path, name) and self._loads_of(name) != output.loads:
            raise strange(self._target, name)
        written.path.unlink(missing_ok=True)
        for each in output.inputs:
            yield Moved(each.name, each.bytes, name, written.bytes, each.rows)


def copy_file(source: Storage, target: Storage, name: str, scratch: Path) -> int:
    """Publishes a file of one root in another one under the same name, if that is free; returns its bytes."""
    copy = scratch / "copy"
    with source.open_input(name) as opened, copy.open("wb") as out:
        copyfileobj(opened, out, BLOCK)
    size = copy.stat().st_size
    target.publish(copy, name)
    copy.unlink(missing_ok=True)
    return size


class _Output:
    """One new file while it is written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.file = parquet.ParquetFile(path, schema)
        self.inputs: list[_Input] = []
        self.loads: dict[str, int] = {}
        self._columns = schema.names
        self._data = self._arrow = 0

    def has_room(self, each: _Input, size: int) -> bool:
        """Whether the file stays within the size with this one, too."""
        written, waiting = self.file.progress
        return written + waiting * self._data // max(1, self._arrow) + each.data <= size

    def add(self, each: _Input, source: Storage) -> None:
        """Adds a file's rows; memory holds one row group of it."""
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
            raise _damaged(each.name, "its rows are not those of the loads that it stands for")


def _open(name: str, source: IO[bytes] | pa.BufferReader) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (OSError, pa.ArrowInvalid) as error:
        raise _damaged(name, f"it is no readable Parquet file ({error})") from error


def _damaged(name: str, why: str) -> StorageRefused:
    return StorageRefused(
        f"{name} cannot be compacted: {why}.", hint="Restore it from a backup, or move it out of the table; then again."
    )


def strange(target: Storage, name: str) -> StorageRefused:
    """The error that something else stands in the new root under this name."""
    return StorageRefused(
        f"{target.url} holds another {name} than this compaction writes.",
        hint="Remove that root, into which somebody else has written, or compact into another one.",
    )
