"""Finds which pages of a list have landed lately. The files of `documents` are the index: no other records are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import layout, ledger_listing, newest, prefetch
from weblake.dataset.root import DOCUMENTS, Dataset

#: Page keys that are collected at least before they are compared, because each comparison makes a hash table of them.
_MIN_ROWS = 1 << 20
#: In the order of the file, so that what is read ahead on an object store is used.
_SCHEMA = pa.schema([schemas.DOCUMENTS.field(name) for name in ("status_code", "loaded_at", "page_key")])


def without_fresh(
    dataset: Dataset, keys: pa.Array, since: datetime | None, *, without: Collection[str] = ()
) -> pa.Array:
    """Return those of the page keys of which no page with a status below 400 has landed since a time.

    The newest files are read first, until all keys are found. Of a file whose load began before, only the footer is
    read: a path key does not tell, because its value may be chosen by the user. Memory holds the keys, and as many of
    the dataset, or a million.

    Args:
        dataset: The dataset.
        keys: Distinct page keys.
        since: Only loads that began at this time or later; None for all.
        without: Loads that do not count. Loads that were replaced never do.

    Raises:
        StorageRefused: A file cannot be read, or a load was replaced meanwhile.
    """
    known = ledger_listing.steps(dataset.ledger)
    files = [name for name in reversed(dataset.storage.list(DOCUMENTS)) if layout.is_data(name)]
    current = newest.without_replaced(known, files)
    names = [name for name in current if layout.load_id_in(name) not in without]

    def read(name: str, source: prefetch.Source) -> Iterator[pa.Array]:
        file = pq.ParquetFile(source)
        if since is not None and _ends_before(file, since):
            return
        for batch in newest.version_batches(file, name, _SCHEMA):
            counts = pc.less(batch.column("status_code"), 400)
            if since is not None:
                counts = pc.and_(counts, pc.greater_equal(batch.column("loaded_at"), pa.scalar(since)))
            yield batch.column("page_key").filter(counts)

    found: list[pa.Array] = []
    rows = 0
    for some in prefetch.in_order(dataset.storage, names, read):
        found.append(some)
        rows += len(some)
        if rows >= max(_MIN_ROWS, len(keys)):
            keys, found, rows = _without(keys, found), [], 0
            if not len(keys):
                break
    return _without(keys, found)


def _without(keys: pa.Array, found: list[pa.Array]) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(found)))) if found else keys


def _ends_before(file: pq.ParquetFile, since: datetime) -> bool:
    """Return whether the statistics of a file say that its load began before a time; False if it has none."""
    for group in range(min(file.num_row_groups, 1)):  # all rows of a file are of one load
        columns = file.metadata.row_group(group)
        for number in range(columns.num_columns):
            statistics = columns.column(number).statistics
            if columns.column(number).path_in_schema == "loaded_at" and statistics and statistics.has_min_max:
                return bool(statistics.max < since)
    return False
