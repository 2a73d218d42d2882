"""Finish a published load: its entry in the slot index, its done record, the retirement of the loads that it replaces.

Every step can be repeated, so the next run of the load, or the next load of its slot, finishes what an interrupted run
left undone.
"""

from __future__ import annotations

import logging
from functools import partial

from weblake.dataset import landed_loads, layout
from weblake.dataset.records import Done, Intent
from weblake.dataset.root import DOCUMENTS, Dataset, LandedLoad
from weblake.dataset.slots import SlotEntry, group_of_intent, replacements
from weblake.errors import StorageRefused
from weblake.receipt import Receipt

_LOG = logging.getLogger("weblake.landing")


def finish(dataset: Dataset, intent: Intent, receipt: Receipt) -> Done:
    """Record a published load as done, retire the loads that it replaces, and return the done record."""
    ledger = dataset.ledger
    receipt = landed_loads.with_files(dataset, intent, receipt)
    if intent.slot is None:
        return ledger.record_done(intent.load_id, receipt.to_dict(), version=intent.version)
    entry = dataset.slots.add(intent, receipt)
    older, newer = replacements(entry, dataset.slots.others(entry, partial(recover, dataset)))
    if newer is not None:  # before the done record, because a run that finds that one relies on the records
        ledger.record_retired(intent.load_id, newer.load_id, version=intent.version)
    replaced = [other.load_id for other in older]
    done = ledger.record_done(intent.load_id, entry.receipt, retired=replaced, at=entry.at, version=intent.version)
    for other in older:
        retire(dataset, other, by=intent.load_id)
    if newer is not None:
        retire(dataset, entry, by=newer.load_id)
    return done


def recover(dataset: Dataset, load_id: str, job: tuple[str, str] | None = None) -> LandedLoad | None:
    """Return the landed load as `landed_loads.find`, after finishing what an interrupted run of it left undone.

    Raises:
        StorageRefused: A record of the load, or its file, cannot be read.
    """
    found = landed_loads.find_done(dataset, load_id, job)
    if found is None:
        return None
    landing, done = found
    load_id = landing.receipt.load_id
    intent = dataset.ledger.intent(load_id)
    if done is None or not landing.receipt.stored:  # otherwise they were removed before the done record
        remove_refused(dataset, load_id)
    if done is not None:
        if intent is not None and intent.slot is not None:
            _finish_retirements(dataset, intent, done.retired)
        return landing
    assert intent is not None
    done = finish(dataset, intent, landing.receipt)
    return LandedLoad(Receipt.from_dict(done.receipt), done.at)


def remove_refused(dataset: Dataset, load_id: str) -> None:
    """Remove the files of a refused load that has been published; an interrupted promotion leaves them."""
    for table in layout.LOAD_TABLES:
        dataset.storage.delete(layout.refused_path(table, load_id))


def _finish_retirements(dataset: Dataset, intent: Intent, older: tuple[str, ...]) -> None:
    """Finish the retirements that a load's done record names, and the load's own retirement."""
    for load_id in older:
        _finish_retirement(dataset, intent, load_id, by=intent.load_id)
    gone = dataset.ledger.retired(intent.load_id)
    if gone is not None:
        _finish_retirement(dataset, intent, intent.load_id, by=gone.by)


def _finish_retirement(dataset: Dataset, intent: Intent, load_id: str, *, by: str) -> None:
    """Finish the retirement of a load of the same slot. A finished retirement has removed the entry in the index."""
    entry = dataset.slots.find(group_of_intent(intent), load_id)
    if entry is None:  # finished, or the index has lost it
        entry = dataset.slots.from_readable_records(load_id)
        if entry is None or not any(dataset.storage.exists(name) for name in _files(entry)):
            return
    retire(dataset, entry, by=by)


def retire(dataset: Dataset, entry: SlotEntry, *, by: str) -> None:
    """Record that another load has replaced a load, and remove its files; safe to repeat.

    The record is written first and the entry in the index is removed last, so that an interrupted retirement is found
    and finished. Before the documents are removed, it is kept which versions of pages they were (dataset/changes.py).
    They are removed before the page errors, so documents are never visible without the errors of their load. Of the
    records of the load, only the entry is read: the others may be damaged, or of a newer version.
    """
    dataset.ledger.record_retirement(entry.load_id, entry.receipt, at=entry.at, by=by, version=entry.version)
    for name in _files(entry):
        if name.startswith(f"{DOCUMENTS}/"):
            _keep_versions(dataset, entry.load_id, name)
        dataset.storage.delete(name)
    dataset.slots.remove(entry)


def _keep_versions(dataset: Dataset, load_id: str, name: str) -> None:
    """Keep which versions of pages a load had; a file that cannot be read does not keep it from being replaced."""
    from pyarrow import ArrowException

    from weblake.dataset.changes import keep_versions

    try:
        keep_versions(dataset.storage, load_id, name)
    except (StorageRefused, ArrowException, OSError) as error:
        _LOG.warning("The changes of this dataset will not name the pages of the replaced load %s: %s", load_id, error)


def _files(entry: SlotEntry) -> list[str]:
    """Return the names of the files with rows of a load, documents first."""
    listed = (file.path for file in Receipt.from_dict(entry.receipt).files)
    return sorted({entry.path(DOCUMENTS), *listed}, key=lambda name: (not name.startswith(f"{DOCUMENTS}/"), name))
