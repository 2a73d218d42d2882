"""Deletes the files of retired loads that no table needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from weblake.compat import read_time
from weblake.dataset import layout, ledger_listing
from weblake.dataset.registered_tables import ADDED, REMOVED, KeptFiles, RegisteredTable, TableRecords, kept_loads
from weblake.dataset.root import Dataset
from weblake.tables.formats import LakeTable


def delete_kept_files(dataset: Dataset, opened: Sequence[tuple[RegisteredTable, LakeTable]] = ()) -> int:
    """Delete the files of retired loads that no table names any more, after their days; return how many.

    The tables are read after the list of files: one that was registered meanwhile keeps the files that it names. So
    does one of the opened tables whose current version names a file that it has taken out: another program has
    restored an older version.
    """
    records, storage = TableRecords(dataset.ledger), dataset.storage
    loads = sorted(kept_loads(storage))
    tables = [table for table in records.tables() if table.table in layout.LOAD_TABLES] if loads else []
    now = datetime.now(timezone.utc)

    def past(load_id: str) -> KeptFiles | None:
        kept = records.kept(load_id)
        return kept if kept is not None and all(_is_past(records, table, kept, now) for table in tables) else None

    deletable = [
        (load_id, kept) for load_id, kept in ledger_listing.read_by_id(dataset.ledger, loads, past) if kept is not None
    ]
    named = {
        f"{table.table}/{name}"
        for table, lake in (opened if deletable else ())
        if table.table in layout.LOAD_TABLES
        for name in lake.file_names()
    }
    deleted = 0
    for load_id, kept in deletable:
        if not named.isdisjoint(f"{name.partition('/')[0]}/{name.rpartition('/')[2]}" for name in kept.files):
            continue
        for name in kept.files:
            storage.delete(name)
            deleted += 1
        records.forget_kept(load_id)
    return deleted


def _is_past(records: TableRecords, table: RegisteredTable, kept: KeptFiles, now: datetime) -> bool:
    """Return whether a table took a load out longer ago than it keeps files, or was registered after that.

    A table that was registered later may have added the load all the same: it was removed and is registered again, or
    the clock of the machine that registered it is ahead.
    """
    if read_time(table.at) > read_time(kept.at) and records.committed(table, kept.load_id, ADDED) is None:
        return True
    days = timedelta(days=table.keep_days)
    if timedelta(0) <= now - read_time(kept.at) < days:  # no table has taken it out before: one request less
        return False
    gone = records.committed(table, kept.load_id, REMOVED)
    return gone is not None and now - read_time(gone.at) >= days
