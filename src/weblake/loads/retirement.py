"""Retire a load: remove its rows because a later load of its slot has replaced it."""

from __future__ import annotations

from collections.abc import Sequence

from weblake.dataset import registered_tables
from weblake.dataset.root import DOCUMENTS, Dataset
from weblake.dataset.slots import SlotEntry
from weblake.receipt import Receipt


def retire(dataset: Dataset, entry: SlotEntry, *, by: str, tables: Sequence[str]) -> None:
    """Record that another load has replaced a load, and remove its files; safe to repeat.

    The records are written first and the entry in the index is removed last, so that an interrupted retirement is
    found and finished. The documents are removed before the page errors, so documents are never visible without the
    errors of their load. Of the load, only the entry is read: its records may be damaged, or of a newer version.

    `tables` are the ids of the dataset's tables (Delta Lake, Iceberg), listed before. If there is one, the files are
    kept, because the table names them until it has taken the load out, and its older versions do so for longer.
    `weblake.read` leaves them out from now on.
    """
    storage, files = dataset.storage, _files(entry)
    _keep(dataset, entry.load_id, files, tables)
    dataset.ledger.record_retirement(entry.load_id, entry.receipt, at=entry.at, by=by, version=entry.version)
    # A table that was registered meanwhile may have added the load before this record existed. Where no table is left,
    # the removal of the last one may not have seen the kept files.
    current = registered_tables.table_ids(storage)
    _keep(dataset, entry.load_id, files, [table for table in current if table not in tables])
    for name in () if current else files:
        storage.delete(name)
    if tables and not current:
        registered_tables.TableRecords(dataset.ledger).forget_kept(entry.load_id)
    dataset.slots.remove(entry)


def _keep(dataset: Dataset, load_id: str, files: Sequence[str], tables: Sequence[str]) -> None:
    """Note that tables have to take a load out, and that its files exist until then; nothing without tables."""
    if tables:
        registered_tables.mark_uncommitted(dataset.storage, tables, load_id, registered_tables.REMOVED)
        registered_tables.keep_files(dataset.ledger, load_id, files)


def files_exist(dataset: Dataset, entry: SlotEntry) -> bool:
    """Return whether the files of a load exist, other than those that are kept for the dataset's tables."""
    exist = any(dataset.storage.exists(name) for name in _files(entry))
    return exist and registered_tables.TableRecords(dataset.ledger).kept(entry.load_id) is None


def _files(entry: SlotEntry) -> list[str]:
    """Return the names of the files with rows of a load, documents first."""
    listed = (file.path for file in Receipt.from_dict(entry.receipt).files)
    return sorted({entry.path(DOCUMENTS), *listed}, key=lambda name: (not name.startswith(f"{DOCUMENTS}/"), name))
