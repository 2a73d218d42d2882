"""Divides the loads that wait for a table into batches, one for each commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

from weblake.dataset import ledger_listing
from weblake.dataset.ledger_listing import DONE, INTENT
from weblake.dataset.registered_tables import ADDED, REMOVED, RegisteredTable, mark_uncommitted
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.tables.formats import LakeTable, file_of

#: Loads, with their entries under `_weblake/uncommitted`.
Batch = Mapping[str, frozenset[str]]

#: Loads of one commit.
LOADS_PER_COMMIT = 1000
#: Bytes of the files that one commit adds if it has to copy their rows: deltalake holds these in memory, several times.
COPIED_PER_COMMIT = 64 << 20


def with_entry(dataset: Dataset, table: RegisteredTable, lake: LakeTable, entries: Batch) -> Iterator[Batch]:
    """Divide the loads that have an entry into batches, one for each commit.

    A replaced load and the one in its place are in the same batch. If the table's own maintenance has merged files, a
    commit of such a pair copies the rows that it adds: these batches have few bytes, and come after the other loads. So
    do loads that are about to replace others.
    """
    replaced = [load_id for load_id, found in entries.items() if REMOVED in found]
    copies = bool(entries) and lake.has_merged_files()
    replacing = ledger_listing.read_by_id(dataset.ledger, entries if copies else (), partial(_replaces, dataset))
    if not copies and len(entries) <= LOADS_PER_COMMIT:
        replaced = []  # all are in one commit anyway
    current = dict(ledger_listing.read_by_id(dataset.ledger, replaced, partial(_current, dataset)))
    together: dict[str, list[str]] = {load_id: [] for load_id in entries}
    for load_id in entries:
        together.setdefault(current.get(load_id, load_id), []).append(load_id)
    pairs = {*current.values(), *(load_id for load_id, replaces in replacing if replaces)}
    sized = sorted(pairs) if copies else []
    bytes_of = dict(ledger_listing.read_by_id(dataset.ledger, sized, partial(_bytes_of, dataset, table)))
    for kind in ([each for each in together if each not in pairs], [each for each in together if each in pairs]):
        batch, size = dict[str, frozenset[str]](), 0
        for load_id in kind:
            size += bytes_of.get(load_id, 0)
            if batch and (size > COPIED_PER_COMMIT or len(batch) + len(together[load_id]) > LOADS_PER_COMMIT):
                yield batch
                batch, size = {}, bytes_of.get(load_id, 0)
            batch |= {each: entries[each] for each in together[load_id]}
        if batch:
            yield batch


def _current(dataset: Dataset, load_id: str) -> str:
    """Return the load that is in the place of a replaced one; itself if a record cannot be read."""
    try:
        return dataset.ledger.current_load(load_id)
    except StorageRefused:
        return load_id


def _replaces(dataset: Dataset, load_id: str) -> bool:
    """Return whether a load replaces others; False if it has not landed, or its record cannot be read."""
    try:
        done = dataset.ledger.done(load_id)
    except StorageRefused:
        return False
    return done is not None and bool(done.retired)


def _bytes_of(dataset: Dataset, table: RegisteredTable, load_id: str) -> int:
    """Return the size of a load's file in the table; 0 if it has none, or its record cannot be read."""
    try:
        done = dataset.ledger.done(load_id)
    except StorageRefused:
        return 0
    return 0 if done is None else file_of(table, load_id, Receipt.from_dict(done.receipt)).bytes


def without_entry(dataset: Dataset, table: RegisteredTable, entries: Batch) -> Iterator[Batch]:
    """Yield the landed loads that have no entry, in batches.

    A load that has not landed by then gets an entry: its landing may have begun before the table was registered, and
    would not create one.
    """
    waiting = _landed_without_entry(dataset, table, entries)
    while batch := dict.fromkeys(islice(waiting, LOADS_PER_COMMIT), frozenset[str]()):
        yield batch


def _landed_without_entry(dataset: Dataset, table: RegisteredTable, entries: Batch) -> Iterator[str]:
    for number, has in ledger_listing.steps(dataset.ledger).items():
        load_id = ledger_listing.id_of(number)
        if load_id in entries:
            continue
        if has & DONE:
            yield load_id
        elif has & INTENT:
            mark_uncommitted(dataset.storage, [table.table_id], load_id, ADDED)
