"""Files that hold several loads, as `weblake compact` writes them: reading the rows of some loads, and removing a load.

The footer of such a file lists its loads and their row counts in file order. The done record of a load in the ledger
names the file that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import parquet
from weblake.dataset import layout
from weblake.errors import StorageRefused
from weblake.storage import Storage

_LOAD_ID = "load_id"
#: Rows in memory at once while a file is rewritten.
_ROWS = 1024
#: Largest row group that is read in one call, in uncompressed bytes.
_SMALL_GROUP = 1 << 20
#: How many times one run rewrites a file while other runs continue to retire loads of it.
ROUNDS = 50


def batches(
    file: pq.ParquetFile,
    columns: Sequence[str],
    batch_size: int,
    *,
    loads: Collection[str] | None = None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in record batches with these columns, which the file must have.

    With `loads`, only the rows of these loads. Row groups whose statistics exclude all of the loads are not read: rows
    are sorted by load.
    """
    groups = range(file.num_row_groups) if row_groups is None else row_groups
    if loads is None:
        yield from _batches(file, groups, columns, batch_size)
        return
    import pyarrow.compute as pc  # takes a third of a small job's time; landing does not need it

    wanted = pa.array(sorted(loads), pa.string())
    groups = [group for group in groups if _may_hold(file.metadata.row_group(group), loads)]
    asked = list(dict.fromkeys([*columns, _LOAD_ID]))
    for batch in _batches(file, groups, asked, batch_size):
        found = batch.filter(pc.is_in(batch.column(_LOAD_ID), value_set=wanted))
        if found.num_rows:
            yield found.select(list(columns))


def _batches(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], batch_size: int
) -> Iterator[pa.RecordBatch]:
    # A row group that fits into a batch is read whole: Arrow needs half the time, which matters with many small files.
    if len(groups) == 1:
        group = file.metadata.row_group(groups[0])
        if 0 < group.num_rows <= batch_size and group.total_byte_size <= _SMALL_GROUP and columns:
            yield from file.read_row_group(groups[0], columns=list(columns), use_threads=False).to_batches()
            return
    yield from file.iter_batches(batch_size=batch_size, row_groups=list(groups), columns=list(columns))


def load_batches(
    file: pq.ParquetFile, name: str, load_id: str, columns: Sequence[str], batch_size: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one load from a file that its receipt names: the load's own file or a compacted file."""
    loads = (load_id,) if layout.is_compacted(name) else None
    return batches(file, columns, batch_size, loads=loads)


def remove_loads(storage: Storage, name: str, retired: Callable[[], Collection[str]]) -> None:
    """Rewrite a compacted file without the loads that are retired.

    The file is replaced in one atomic step. Several runs may do so at once: each run reads the retirements again after
    it has replaced the file, so the last run has seen every retirement that was recorded before. A run that ended in
    between may have put back a load that another run had removed, so the file is also checked if its own load is gone.

    Args:
        storage: The storage of the root.
        name: The file.
        retired: Returns the ids of the loads that are recorded as retired.

    Raises:
        StorageRefused: The storage failed; or other runs still retired loads of this file after ROUNDS attempts.
    """
    for _ in range(ROUNDS):
        if not storage.exists(name):
            return  # deleted together with the last of its loads
        with storage.open_input(name) as source, _open(source, name) as file:
            held = parquet.read_loads(file.metadata) or {}
            gone = set(retired())
            kept = {each: rows for each, rows in held.items() if each not in gone}
            if len(kept) == len(held):
                return
            if kept:
                with storage.scratch() as scratch:
                    storage.replace(name, write_loads(file, scratch / "kept.parquet", kept).path)
        if not kept:
            storage.delete(name)
    raise StorageRefused(
        f"Other processes keep changing {name} in {storage.url}.",
        hint="Run it again: the retirement is on record, and the next run removes the rows.",
    )


def write_loads(file: pq.ParquetFile, path: Path, kept: Mapping[str, int]) -> parquet.Written:
    """Write those rows of a compacted file that belong to these loads to a new file with the same columns."""
    schema = file.schema_arrow.remove_metadata()
    with parquet.ParquetFile(path, schema) as out:
        for batch in batches(file, schema.names, _ROWS, loads=kept):
            out.write(batch)
        return out.close(loads=kept, version=parquet.read_version(file.metadata))


def _open(source: IO[bytes], name: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageRefused(
            f"{name} is not a usable Parquet file: {error}.", hint="Restore it from a backup: it holds several loads."
        ) from error


def _may_hold(group: pq.RowGroupMetaData, loads: Collection[str]) -> bool:
    """Return whether a row group may hold rows of one of these loads, according to its statistics."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == _LOAD_ID:
            stats = column.statistics
            return stats is None or not stats.has_min_max or any(stats.min <= each <= stats.max for each in loads)
    return True
