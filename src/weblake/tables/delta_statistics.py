"""The statistics of a load's file for the log of a Delta Lake table, from the end of the file."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.errors import StorageRefused
from weblake.storage import Storage
from weblake.tables.formats import LoadFile, first_line

#: Columns whose minimum, maximum and number of nulls the log holds: readers skip files by them.
PRUNED = (
    *("load_id", "url", "source_url", "status_code", "position", "loaded_at", "outcome", "occurred_at"),
    *("period_start", "period_end", "reported_at", "endpoint", "created_at"),
)
#: Bytes from the end of a file that are read first; the metadata of a load of one row group has about 15 kB.
_FOOTER = 64 << 10


def read_footer(storage: Storage, file: LoadFile) -> pq.FileMetaData:
    """Return the metadata at the end of a file; its size is known, so one request reads it.

    Raises:
        StorageRefused: The file cannot be read, or is not the Parquet file that landed.
    """
    assert file.path is not None
    wanted = _FOOTER
    while True:
        end = storage.read_range(file.path, max(0, file.bytes - wanted), file.bytes)
        # The last eight bytes are the length of the metadata before them and a magic number.
        wanted = int.from_bytes(end[-8:-4], "little") + 8
        if wanted <= len(end) or len(end) == file.bytes:
            break
    try:
        return pq.read_metadata(pa.BufferReader(end))
    except pa.ArrowInvalid as error:
        raise StorageRefused(
            f"{file.path} is not the Parquet file that landed: {first_line(error)}.",
            hint="Restore it from a backup.",
        ) from error


def statistics_of(metadata: pq.FileMetaData) -> dict[str, object]:
    """Return the statistics of a file in the form of the log: rows, minima, maxima and nulls of PRUNED columns."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    complete = dict.fromkeys(PRUNED, True)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name = column.path_in_schema
            if name not in complete:
                continue
            found = column.statistics
            if found is None or not found.has_min_max:
                complete[name] &= found is not None and found.null_count == group.num_rows
                nulls[name] = nulls.get(name, 0) + (found.null_count if found is not None else 0)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            lowest[name] = min(lowest.get(name, found.min), found.min)
            highest[name] = max(highest.get(name, found.max), found.max)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _json(value) for name, value in lowest.items() if complete[name]},
        "maxValues": {name: _json(value) for name, value in highest.items() if complete[name]},
        "nullCount": {name: value for name, value in nulls.items() if complete[name]},
    }


def _json(value: object) -> object:
    if isinstance(value, datetime):
        # Not by strftime, which writes a year before 1000 with fewer than four digits.
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return value
