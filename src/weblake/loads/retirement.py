"""Retire a load: remove its rows because a later load of its slot has replaced it."""

from __future__ import annotations

from weblake.dataset.root import DOCUMENTS, Dataset
from weblake.dataset.slots import SlotEntry
from weblake.receipt import Receipt


def retire(dataset: Dataset, entry: SlotEntry, *, by: str) -> None:
    """Record that another load has replaced a load, and remove its files; safe to repeat.

    The record is written first and the entry in the index is removed last, so that an interrupted retirement is found
    and finished. The documents are removed before the page errors, so documents are never visible without the errors of
    their load. Of the load, only the entry is read: its records may be damaged, or of a newer version.
    """
    dataset.ledger.record_retirement(entry.load_id, entry.receipt, at=entry.at, by=by, version=entry.version)
    for name in _files(entry):
        dataset.storage.delete(name)
    dataset.slots.remove(entry)


def files_exist(dataset: Dataset, entry: SlotEntry) -> bool:
    """Return whether files of a load exist."""
    return any(dataset.storage.exists(name) for name in _files(entry))


def _files(entry: SlotEntry) -> list[str]:
    """Return the names of the files with rows of a load, documents first."""
    listed = (file.path for file in Receipt.from_dict(entry.receipt).files)
    return sorted({entry.path(DOCUMENTS), *listed}, key=lambda name: (not name.startswith(f"{DOCUMENTS}/"), name))
