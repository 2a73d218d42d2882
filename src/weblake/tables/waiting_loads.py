"""Reads the records of the loads that wait for a table, and of the loads that they replace.

The done record of a load names the loads that it replaces. Their own records follow it: a sync may come in between, or
the landing may be killed there. So a sync takes out what a load replaces in the commit that adds it, and does not wait
for the retirement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from weblake.dataset import ledger_listing
from weblake.dataset.records import Done
from weblake.dataset.registered_tables import REMOVED, RegisteredTable
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.tables.batches import Batch
from weblake.tables.formats import LoadFile, file_of


@dataclass(frozen=True, slots=True)
class WaitingLoad:
    """A load that may have to be added or taken out."""

    file: LoadFile
    retired: bool = False
    #: The entries of the load under `_weblake/uncommitted`.
    entries: frozenset[str] = frozenset()
    #: The loads that it replaces; their retirement may not be on record yet.
    replaces: tuple[str, ...] = ()


def read(
    dataset: Dataset, table: RegisteredTable, batch: Batch, unreadable: dict[str, StorageRefused]
) -> list[WaitingLoad]:
    """Return the loads of a batch that have landed and whose records can be read."""

    def read_one(load_id: str) -> WaitingLoad | None:
        done = dataset.ledger.done(load_id)
        if done is None:
            return None
        return replace(_load(table, done), retired=dataset.ledger.retired(load_id) is not None, entries=batch[load_id])

    return _read_each(dataset, batch, read_one, unreadable)


def read_current(
    dataset: Dataset,
    table: RegisteredTable,
    loads: Sequence[WaitingLoad],
    in_table: Collection[str],
    unreadable: dict[str, StorageRefused],
) -> list[WaitingLoad]:
    """Return the loads that are in the place of retired ones of the table, and not among `loads`.

    They landed after the loads of the batch were listed: an old load that is taken out alone leaves a gap.
    """

    def current(load_id: str) -> str | None:
        with suppress(StorageRefused):  # a damaged record of a retirement does not keep the old rows in the table
            return dataset.ledger.current_load(load_id)
        return None

    old = [load.file.load_id for load in loads if load.retired and load.file.load_id in in_table]
    found = {load_id for _, load_id in ledger_listing.read_by_id(dataset.ledger, old, current) if load_id is not None}
    absent = sorted(found.difference(load.file.load_id for load in loads))
    return read(dataset, table, dict.fromkeys(absent, frozenset[str]()), unreadable)


def read_replaced(
    dataset: Dataset, table: RegisteredTable, load_ids: Iterable[str], unreadable: dict[str, StorageRefused]
) -> list[WaitingLoad]:
    """Return loads without an entry that are about to be replaced and whose done records can be read.

    Whether they are retired is not looked up. A load that has not landed yet is returned without a file: once it has
    landed, no sync must add it.
    """

    def read_one(load_id: str) -> WaitingLoad:
        done = dataset.ledger.done(load_id)
        return WaitingLoad(LoadFile(load_id, None, 0, 0, {})) if done is None else _load(table, done)

    return _read_each(dataset, load_ids, read_one, unreadable)


def replaced_by(loads: Sequence[WaitingLoad], known: Collection[str]) -> set[str]:
    """Return the ids of the loads that are replaced by those of `loads` that a sync is about to add.

    `known` are the loads that the table has added or taken out.
    """
    by_id = {load.file.load_id: load for load in loads if load.file.load_id not in known}
    found: set[str] = set()
    adding = [load for load in by_id.values() if not load.retired]
    while adding:
        new = set(adding.pop().replaces) - found
        found |= new
        adding += [by_id[load_id] for load_id in sorted(new) if load_id in by_id]
    return found


def as_retired(loads: Iterable[WaitingLoad], load_ids: Collection[str]) -> list[WaitingLoad]:
    """Return the loads, those with these ids as retired: the table has to name them as taken out."""
    return [
        replace(load, retired=True, entries=load.entries | {REMOVED})
        if load.file.load_id in load_ids and not load.retired
        else load
        for load in loads
    ]


def with_later_ones(dataset: Dataset, load_ids: Iterable[str], loads: Sequence[WaitingLoad]) -> set[str]:
    """Return these loads and those that have replaced them or are about to do so, one after the other."""
    later: dict[str, set[str]] = {}
    for load in loads:
        for load_id in load.replaces:
            later.setdefault(load_id, set()).add(load.file.load_id)
    found = set(load_ids)
    waiting = list(found)
    while waiting:
        load_id = waiting.pop()
        retired = dataset.ledger.retired(load_id)
        by = later.get(load_id, set()) | ({retired.by} if retired is not None else set())
        waiting += by - found
        found |= by
    return found


def _read_each(
    dataset: Dataset,
    load_ids: Iterable[str],
    read_one: Callable[[str], WaitingLoad | None],
    unreadable: dict[str, StorageRefused],
) -> list[WaitingLoad]:
    """Return what `read_one` finds; a load with a record that cannot be read is left out, its error in `unreadable`."""

    def read_readable(load_id: str) -> WaitingLoad | None:
        try:
            return read_one(load_id)
        except StorageRefused as error:
            unreadable[load_id] = error
            return None

    found = ledger_listing.read_by_id(dataset.ledger, load_ids, read_readable)
    return [load for _, load in found if load is not None]


def _load(table: RegisteredTable, done: Done) -> WaitingLoad:
    file = file_of(table, done.load_id, Receipt.from_dict(done.receipt))
    return WaitingLoad(file, replaces=done.retired)
