"""Index of the landed loads of each slot, so that landing a load reads only the records of its own slot.

    _weblake/slots/<group>/<load_id>.json         a landed load that has not been retired
    _weblake/slots/<group>/<load_id>.publishing   a load that a run began to publish

A group holds the loads that may replace each other: all loads of a slot with a partition value, or the loads of one
run in a slot without one. An entry is created after the documents are published and before the group is listed, so of
two loads that land at the same time at least one sees the other. It is removed at the end of a retirement. The note
that a load is being published is created before the documents, so the next load of the group finds a load whose run
died before it created the entry.

An entry holds all data that retiring its load needs. Later versions may add fields and never change the meaning of a
field, so a load can be retired even if its other records are damaged or were written by a newer weblake
(docs/decisions/040-slot-index.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from weblake.dataset import layout
from weblake.dataset.identity import load_id_of
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent, Record, UtcTime, new_nonce, utc_now
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.storage import Storage

_LOG = logging.getLogger("weblake.landing")
T = TypeVar("T")


class SlotEntry(Record, frozen=True, kw_only=True):
    """Index entry of a landed load of a slot."""

    slot: str
    slot_has_partition: bool
    generation: int
    run: str | None
    #: When the load's intent was recorded.
    created_at: UtcTime
    #: Path keys and values in their order; None for the default, `load_date`.
    partition: dict[str, str] | None
    #: When the load landed.
    at: UtcTime
    receipt: dict[str, object]

    @property
    def group(self) -> str:
        """The id of the group of loads in which this load may be replaced."""
        return group_of(self.slot, self.run, has_partition=self.slot_has_partition)

    @property
    def name(self) -> str:
        """The path of the entry, relative to the root."""
        return layout.slot_entry_path(self.group, self.load_id)

    def created(self) -> datetime:
        """Return `created_at` as an aware datetime in UTC."""
        return datetime.fromisoformat(self.created_at)

    def path(self, table: str) -> str:
        """Return the path of the load's own file in a table, relative to the root."""
        return layout.load_path(table, self.partition, self.created(), self.load_id)

    def replaces(self, other: SlotEntry) -> bool:
        """Return whether this load replaces another one of its group. A load without a document replaces no load."""
        return bool(self.receipt.get("stored")) and succeeds(self, other)


@dataclass(frozen=True, slots=True)
class Slots:
    """Reads and changes the slot index of one root."""

    storage: Storage
    ledger: Ledger

    def entry(self, intent: Intent) -> SlotEntry | None:
        """Return the entry of a load, or None if it has no slot, has not landed or was retired.

        Raises:
            StorageRefused: The entry cannot be read.
        """
        if intent.slot is None:
            return None
        name = layout.slot_entry_path(group_of_intent(intent), intent.load_id)
        return self.ledger.read_record(name, intent.load_id, SlotEntry)

    def members(self, group: str) -> set[str]:
        """Return the loads of a group, which a new load of it replaces: landed, or about to be published."""
        return set(map(layout.load_id_in, self.storage.list(f"{layout.SLOTS}/{group}")))

    def announce(self, intent: Intent) -> None:
        """Note that a load is about to be published; nothing for a load without a slot."""
        if intent.slot is not None:
            self.storage.create(layout.publishing_path(group_of_intent(intent), intent.load_id), b"{}")

    def add(self, intent: Intent, receipt: Receipt) -> SlotEntry:
        """Create the entry of a load that has just been published, and return the entry in the index."""
        entry = _entry(intent, receipt.to_dict(), utc_now())
        return self.ledger.create_record(entry.name, entry)[0]

    def remove(self, entry: SlotEntry) -> None:
        """Remove the entry of a load whose retirement is complete, and the note that it was being published."""
        self.storage.delete(layout.publishing_path(entry.group, entry.load_id))
        self.storage.delete(entry.name)

    def others(self, entry: SlotEntry, finish: Callable[[str], object]) -> list[SlotEntry]:
        """Return the other landed loads of a load's group.

        An unreadable load is left out with a warning that names the file, so that it does not stop other loads.

        Args:
            entry: The load's own entry.
            finish: Called with the id of each load that a run began to publish and that has no entry. If the load was
                published, it creates the entry.
        """
        names = [name.rpartition("/")[2] for name in self.storage.list(f"{layout.SLOTS}/{entry.group}")]
        landed, begun = (
            {name.removesuffix(end) for name in names if name.endswith(end)}
            for end in (layout.SLOT_ENTRY, layout.SLOT_PUBLISHING)
        )
        for load_id in sorted(begun - landed):
            self._skip_unreadable(load_id, finish)
        found = {load_id: self.find(entry.group, load_id) for load_id in sorted((landed | begun) - {entry.load_id})}
        return [other for other in found.values() if other is not None and other.group == entry.group]

    def find(self, group: str, load_id: str) -> SlotEntry | None:
        """Return the entry of another load, or None if it does not exist or cannot be read.

        Entries of any version are accepted. If the entry is damaged, it is rebuilt from the load's own records.
        """
        name = layout.slot_entry_path(group, load_id)
        data = self.storage.read(name)
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data, type=SlotEntry)
            found.created()
        except (msgspec.DecodeError, ValueError, RecursionError):
            _LOG.warning("The index entry %s of %s is damaged; reading the load's records.", name, self.storage.url)
            return self.from_readable_records(load_id)
        return found if found.load_id == load_id else self.from_readable_records(load_id)

    def from_records(self, load_id: str) -> SlotEntry | None:
        """Return the entry of a landed load, built from its intent and its done record, or None if it has no slot.

        Raises:
            StorageRefused: A record of the load cannot be read.
        """
        intent = self.ledger.intent(load_id)
        if intent is None or intent.slot is None:
            return None
        done = self.ledger.done(load_id)
        return None if done is None else _entry(intent, done.receipt, done.at)

    def from_readable_records(self, load_id: str) -> SlotEntry | None:
        """Return the same as `from_records`, or None with a warning if a record cannot be read."""
        return self._skip_unreadable(load_id, self.from_records)

    def _skip_unreadable(self, load_id: str, read: Callable[[str], T]) -> T | None:
        try:
            return read(load_id)
        except StorageRefused as error:
            _LOG.warning("Load %s was not considered for retirement: %s", load_id, error.message)
            return None


def succeeds(later: SlotEntry | Intent, other: SlotEntry | Intent) -> bool:
    """Return whether a load comes after another one in their slot, so that it replaces it if it has a document.

    The generations of one run are counted, so their order does not depend on the clocks of the machines that started
    them.
    """
    if later.slot != other.slot:
        return False
    if other.run == later.run and other.generation != later.generation:
        return other.generation < later.generation
    return later.slot_has_partition and other.created() < later.created()


def group_of(slot: str, run: str | None, *, has_partition: bool) -> str:
    """Return the id of the group of loads that may replace each other, as 16 hexadecimal digits."""
    return load_id_of("slot", slot) if has_partition else load_id_of("slot of a run", slot, run)


def group_of_intent(intent: Intent) -> str:
    """Return the id of the group of a load that has a slot."""
    assert intent.slot is not None
    return group_of(intent.slot, intent.run, has_partition=intent.slot_has_partition)


def replacements(entry: SlotEntry, others: list[SlotEntry]) -> tuple[list[SlotEntry], SlotEntry | None]:
    """Return the loads that this one replaces, and the load that replaces this one or None.

    The second exists if a job that was started later ended first.
    """
    older = [other for other in others if entry.replaces(other)]
    newer = [other for other in others if other.replaces(entry)]
    if not entry.receipt.get("stored"):  # a load without a document neither replaces a load nor is replaced
        return [], None
    return older, max(newer, key=SlotEntry.created, default=None)


def _entry(intent: Intent, receipt: dict[str, object], at: str) -> SlotEntry:
    assert intent.slot is not None
    return SlotEntry(
        load_id=intent.load_id,
        version=intent.version,
        writer=new_nonce(),
        slot=intent.slot,
        slot_has_partition=intent.slot_has_partition,
        generation=intent.generation,
        run=intent.run,
        created_at=intent.created_at,
        partition=intent.partition,
        at=at,
        receipt=receipt,
    )
