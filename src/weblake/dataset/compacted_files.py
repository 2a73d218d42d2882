"""Files that hold several loads, as `weblake compact` writes them: the rows of some loads out of one, and a load taken
out of one because a later load has its place.

Such a file names its loads and their rows in its footer, in the order in which they lie. Which file holds a load is in
the ledger: its done record names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.dataset import layout
from weblake.errors import StorageRefused
from weblake.storage import Storage
from weblake.tables import parquet

_LOAD_ID = "load_id"
#: Rows that are held at once while a file is written anew.
_ROWS = 1024
#: Bytes of a row group, not compressed, that is read in one go.
_LITTLE = 1 << 20
#: How often one run writes a file anew while others go on retiring loads of it.
ROUNDS = 50


def batches(
    file: pq.ParquetFile,
    columns: Sequence[str],
    batch_size: int,
    *,
    loads: Collection[str] | None = None,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches of these columns, which it has; with `loads` only the rows of these.

    Row groups that hold none of the loads are not read: rows lie in the order of their loads, which statistics show.
    """
    groups = range(file.num_row_groups) if row_groups is None else row_groups
    if loads is None:
        yield from _batches(file, groups, columns, batch_size)
        return
    import pyarrow.compute as pc  # a third of a small job's time, and no landing of one needs it

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
    # What fits into a batch is read as a row group: that takes Arrow half the time, which many small files show.
    if len(groups) == 1:
        group = file.metadata.row_group(groups[0])
        if 0 < group.num_rows <= batch_size and group.total_byte_size <= _LITTLE and columns:
            yield from file.read_row_group(groups[0], columns=list(columns), use_threads=False).to_batches()
            return
    yield from file.iter_batches(batch_size=batch_size, row_groups=list(groups), columns=list(columns))


def load_batches(
    file: pq.ParquetFile, name: str, load_id: str, columns: Sequence[str], batch_size: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one load out of a file that its receipt names, whether it is the load's own or holds others, too."""
    loads = (load_id,) if layout.is_compacted(name) else None
    return batches(file, columns, batch_size, loads=loads)


def take_out(storage: Storage, name: str, load_id: str, retired: Callable[[], Collection[str]]) -> None:
    """Writes a compacted file anew without a load whose place another one has; nothing where it is not in there.

    The file is replaced whole and in one step. Any number of runs may do so at once: each looks again after it has
    replaced the file, so that whoever comes last has seen every retirement that was on record before.

    Args:
        storage: Where it lies.
        name: The file.
        load_id: The load; its retirement is on record.
        retired: Reads which loads are on record as retired.

    Raises:
        StorageRefused: The storage failed; or others retire loads of this file without end.
    """
    for attempt in range(ROUNDS):
        if not storage.exists(name):
            return  # it went with the last of its loads
        with storage.open_input(name) as source, _opened(source, name) as file:
            held = parquet.read_loads(file.metadata) or {}
            if attempt == 0 and load_id not in held:
                return
            gone = set(retired())
            kept = {each: rows for each, rows in held.items() if each not in gone}
            if len(kept) == len(held):
                return
            if kept:
                _keep(storage, name, file, kept)
        if not kept:
            storage.delete(name)
    raise StorageRefused(
        f"Others go on retiring loads of {name} in {storage.url}.",
        hint="Run it again: what is retired is on record, and the next run takes it out.",
    )


def _keep(storage: Storage, name: str, file: pq.ParquetFile, kept: Mapping[str, int]) -> None:
    schema = file.schema_arrow.remove_metadata()
    with storage.scratch() as scratch, parquet.ParquetFile(scratch / "kept.parquet", schema) as out:
        for batch in batches(file, schema.names, _ROWS, loads=kept):
            out.write(batch)
        storage.replace(name, out.close(loads=kept).path)


def _opened(source: IO[bytes], name: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageRefused(
            f"{name} is no usable Parquet file: {error}.", hint="Restore it from a backup: it holds several loads."
        ) from error


def _may_hold(group: pq.RowGroupMetaData, loads: Collection[str]) -> bool:
    """Whether a row group may hold rows of one of these loads, by its statistics."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == _LOAD_ID:
            stats = column.statistics
            return stats is None or not stats.has_min_max or any(stats.min <= each <= stats.max for each in loads)
    return True
