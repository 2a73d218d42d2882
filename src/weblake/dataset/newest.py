"""The newest version of each page, and the order in which loads landed.

A version is a row of `documents`; the newest is the one of the load that began last (`loaded_at`, then the load id),
and of several rows of one load the last one. The files are the index: their small columns are read, and memory holds
one row of these for each page.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.dataset import arrow_files, layout, ledger_listing, prefetch
from weblake.dataset.ledger import Ledger
from weblake.errors import InvalidOption, StorageRefused
from weblake.storage import Storage

#: A place in the order of landing: the time of the done record, and the load id for equal times.
Moment: TypeAlias = tuple[datetime, str]
#: A load id or a time: a datetime, or its text in ISO 8601. A time without a zone is in UTC.
When: TypeAlias = str | datetime
#: After every load id, for the moment of a time.
AFTER_IDS = "~"
#: Bits of the number of a row within its file.
_ROW_BITS = 32
_BATCH_ROWS = 1 << 16
#: Rows that are collected at least before the older versions among them are dropped.
_MIN_ROWS = 1 << 20
_UNKNOWN = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Landings:
    """When each load has landed, and when another load has replaced it."""

    landed: Mapping[str, Moment]
    replaced: Mapping[str, Moment]

    @classmethod
    def of(cls, ledger: Ledger, known: Mapping[int, int]) -> Landings:
        """Read the records of the loads that `ledger_listing.steps` has listed.

        Raises:
            StorageRefused: A record cannot be read.
        """
        landed: dict[str, Moment] = {}
        by: dict[str, str] = {}
        for load in ledger_listing.loads_of(
            ledger, {load: has for load, has in known.items() if has & ledger_listing.DONE}
        ):
            if load.unreadable is not None:
                raise StorageRefused(load.unreadable, hint="Restore the record from a backup.")
            if load.done is not None:
                landed[load.load_id] = datetime.fromisoformat(load.done.at), load.load_id
                by |= dict.fromkeys(load.done.retired, load.load_id)
                if load.retired is not None:
                    by[load.load_id] = load.retired.by
        return cls(
            landed, {old: max(landed[old], landed[new]) for old, new in by.items() if {old, new} <= landed.keys()}
        )

    def moment(self, when: When) -> Moment:
        """Return the moment at which a load had landed, or the moment of a time.

        Raises:
            InvalidOption: The text is neither a time nor the id of a load that has landed.
        """
        if isinstance(when, str) and when in self.landed:
            return self.landed[when]
        try:
            time = datetime.fromisoformat(when) if isinstance(when, str) else when
        except ValueError:
            raise InvalidOption(
                f"{str(when)[:40]!r} is neither a load that has landed here nor a time.",
                hint="Give the load id of a receipt, or a time in ISO 8601, such as 2026-11-21T06:00:00Z.",
            ) from None
        return time if time.tzinfo else time.replace(tzinfo=timezone.utc), AFTER_IDS

    def at(self, moment: Moment) -> set[str]:
        """Return the loads that had landed at a moment and were not replaced."""
        return {
            load_id
            for load_id, landed in self.landed.items()
            if landed <= moment and not (load_id in self.replaced and self.replaced[load_id] <= moment)
        }


def without_replaced(known: Mapping[int, int], files: Iterable[str]) -> list[str]:
    """Return the files without those of replaced loads; `known` are the flags that `ledger_listing.steps` returns."""
    return [name for name in files if not known.get(int(layout.load_id_in(name), 16), 0) & ledger_listing.RETIRED]


@dataclass(slots=True)
class Versions:
    """Collects rows of `documents` with `page_key`, `load_id` and `row`, and keeps the newest of each page."""

    #: The columns of the rows beside these three.
    columns: Sequence[str] = ()
    #: The pages to collect; None for all.
    among: pa.Array | None = None
    #: When each load began.
    began: dict[str, datetime] = field(default_factory=dict)
    _tables: list[pa.Table] = field(default_factory=list)
    _pending: int = 0
    _kept: int = 0

    def add(self, rows: pa.Table, began: datetime) -> None:
        """Add rows of one load, which began at this time."""
        if rows.num_rows:
            self.began[rows["load_id"][0].as_py()] = began
            self._tables.append(rows)
            self._pending += rows.num_rows
            if self._pending > max(_MIN_ROWS, self._kept):
                self.newest()

    def merged(self, other: Versions) -> Versions:
        """Return the versions of both."""
        return Versions(self.columns, None, {**self.began, **other.began}, [self.newest(), other.newest()])

    def newest(self) -> pa.Table:
        """Return the newest row of each page, in no particular order."""
        import pyarrow.compute as pc

        table = pa.concat_tables([_schema(self.columns).empty_table(), *self._tables])
        if self.among is not None:
            table = table.filter(pc.is_in(table["page_key"], value_set=self.among))
        order = pa.array(sorted(self.began, key=lambda load_id: (self.began[load_id], load_id)), pa.string())
        number = pc.index_in(table["load_id"], value_set=order).cast(pa.int64())
        rank = pc.add(pc.shift_left(number, _ROW_BITS), table["row"])
        best = pa.table({"page_key": table["page_key"], "rank": rank}).group_by("page_key").aggregate([("rank", "max")])
        table = table.filter(pc.is_in(rank, value_set=best["rank_max"])).combine_chunks()
        self._tables, self._pending, self._kept = [table], 0, table.num_rows
        return table


def collect(
    storage: Storage,
    names: Mapping[str, str],
    columns: Sequence[str] = (),
    counts: Callable[[pa.Array], pa.Array] | None = None,
) -> Iterator[tuple[pa.Table, datetime]]:
    """Yield versions of pages, with the time at which their load began: `page_key`, `load_id`, `row`, and the columns.

    Args:
        storage: The storage of the root.
        names: The load id of each file, which is one of `documents` or has the versions of a replaced load.
        columns: Further columns.
        counts: Returns of status codes which count, as booleans; None: all. A row without a page never counts.

    Raises:
        StorageRefused: A file cannot be read or no longer exists.
    """
    import pyarrow.compute as pc

    made_schema = _schema(columns)
    read_names = dict.fromkeys(["page_key", *columns, "status_code", "loaded_at"])
    schema = pa.schema([schemas.DOCUMENTS.field(name) for name in read_names])

    def read(name: str, source: prefetch.Source) -> Iterator[tuple[pa.Table, datetime]]:
        first = 0
        for batch in version_batches(pq.ParquetFile(source), name, schema):
            numbers = pa.py_buffer(array("q", range(first, first + batch.num_rows)))
            first += batch.num_rows
            row = pa.Array.from_buffers(pa.int64(), batch.num_rows, [None, numbers])
            load_id = pa.repeat(pa.scalar(names[name]), batch.num_rows)
            made = [batch.column("page_key"), load_id, row, *(batch.column(each) for each in columns)]
            kept = pc.is_valid(batch.column("page_key"))
            if counts is not None:
                kept = pc.and_(kept, counts(batch.column("status_code")))
            yield (
                pa.Table.from_arrays(made, schema=made_schema).filter(kept),
                batch.column("loaded_at")[0].as_py() or _UNKNOWN,
            )

    return prefetch.in_order(storage, list(names), read)


def _schema(columns: Sequence[str]) -> pa.Schema:
    """Return the columns of versions: their page, load and number in its file, and columns of `documents`."""
    own = [("page_key", pa.string()), ("load_id", pa.string()), ("row", pa.int64())]
    return pa.schema([*own, *(schemas.DOCUMENTS.field(name) for name in columns)])


def version_batches(file: pq.ParquetFile, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the rows of a file of `documents`, or of the versions of a replaced load."""
    if name.startswith(f"{layout.REPLACED}/"):
        yield from file.iter_batches(_BATCH_ROWS, columns=schema.names)
    else:
        yield from (batch for batch in arrow_files.rows(file, name, schema, _BATCH_ROWS) if batch.num_rows)


def newest_rows(storage: Storage, names: Sequence[str], *, successful: bool) -> dict[str, array[int]]:
    """Return the files that have the newest version of a page, with the sorted numbers of these rows.

    With `successful`, versions with a status of 400 or more, or without one, do not count.

    Raises:
        StorageRefused: A file cannot be read or no longer exists.
    """
    import pyarrow.compute as pc

    versions = Versions()
    files = {name: layout.load_id_in(name) for name in names}
    for rows, began in collect(storage, files, counts=(lambda status: pc.less(status, 400)) if successful else None):
        versions.add(rows, began)
    newest = versions.newest()
    if not newest.num_rows:
        return {}
    newest = newest.sort_by([("load_id", "ascending"), ("row", "ascending")]).combine_chunks()
    numbers = array("q", memoryview(newest["row"].chunk(0).buffers()[1]).cast("q")[: newest.num_rows])
    found: dict[str, array[int]] = {}
    first = 0
    for each in sorted(pc.value_counts(newest["load_id"]).to_pylist(), key=lambda each: str(each["values"])):
        found[each["values"]] = numbers[first : first + each["counts"]]
        first += each["counts"]
    return {name: found[load_id] for name, load_id in files.items() if load_id in found}
