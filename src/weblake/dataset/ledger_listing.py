"""Reads the whole ledger of a root: for lists of loads, tables and watchers. Landing a load never does this.

A ledger may hold a hundred thousand loads. Names are listed in pages and kept as one number and a few flags per load
(about 100 bytes). Records are read once; to sort them, their JSON is kept (about 1 KB a load). An unreadable record is
reported with its load and does not affect other loads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import TypeVar

import msgspec

from weblake.dataset import parallel
from weblake.dataset.layout import LEDGER
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Done, Intent, Retired
from weblake.errors import StorageRefused
from weblake.receipt import Receipt

#: Flags of the records that exist of a load.
INTENT, START, JOB, DONE, RETIRED, OWNER, LANDER, RETURNED, STOPPED, LATER_START, VOID = (1 << bit for bit in range(11))
_STEPS = {
    "": INTENT,
    ".start-1": START,
    ".job": JOB,
    ".done": DONE,
    ".retired": RETIRED,
    ".owner": OWNER,
    ".lander": LANDER,
    ".returned": RETURNED,
    ".stopped": STOPPED,
}
_NAME = re.compile(
    rf"{LEDGER}/(?P<load_id>[0-9a-f]{{16}})(?P<step>\.start-[1-9]\d*(?:\.void)?|\.owner|\.lander|\.job|\.done|"
    r"\.returned|\.stopped|\.retired)?\.json"
)
#: Time of a load with an unreadable record: before all others.
_UNKNOWN = datetime.min.replace(tzinfo=timezone.utc)

A = TypeVar("A")
B = TypeVar("B")


class LoadRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one load."""

    load_id: str
    #: Read only for a load that has not landed.
    intent: Intent | None = None
    done: Done | None = None
    retired: Retired | None = None
    #: Why a record of the load could not be read; the message names the file. All other records are None then.
    unreadable: str | None = None

    def at(self) -> str:
        """Return when the load landed, or when its intent was recorded; empty if that could not be read."""
        return self.done.at if self.done else self.intent.created_at if self.intent else ""


def steps(ledger: Ledger) -> dict[int, int]:
    """Return the flags of the records of each load (INTENT | START | ...), by the load id as an integer.

    Raises:
        StorageRefused: The root cannot be listed.
    """
    found: dict[int, int] = {}
    for page in ledger.storage.pages(LEDGER):
        for name in page:
            match = _NAME.fullmatch(name)
            if match:
                number = int(match["load_id"], 16)
                step = match["step"] or ""
                has = _STEPS.get(step) or (VOID if step.endswith(".void") else LATER_START)
                found[number] = found.get(number, 0) | has
    return found


def loads(ledger: Ledger) -> Iterator[LoadRecords]:
    """Yield all loads ordered by the time they landed, or by the time of their intent if they have not landed.

    Loads with an unreadable record come first.

    Raises:
        StorageRefused: The root cannot be listed.
    """
    known = steps(ledger)
    found: list[tuple[datetime, str, bytes]] = []
    for records in loads_of(ledger, known):
        at = datetime.fromisoformat(records.at()) if records.at() else _UNKNOWN
        found.append((at, records.load_id, msgspec.json.encode(records)))  # a third of the memory of the objects
    known.clear()
    for _, _, encoded in sorted(found):
        yield msgspec.json.decode(encoded, type=LoadRecords)


def loads_of(ledger: Ledger, known: Mapping[int, int]) -> Iterator[LoadRecords]:
    """Yield the loads that `steps` has listed, in no particular order."""

    def read(item: tuple[int, int]) -> LoadRecords:
        load_id = id_of(item[0])
        try:
            done = ledger.done(load_id) if item[1] & DONE else None
            intent = ledger.intent(load_id) if done is None else None
            retired = ledger.retired(load_id) if item[1] & RETIRED else None
        except StorageRefused as error:
            return LoadRecords(load_id=load_id, unreadable=error.message)
        return LoadRecords(load_id=load_id, intent=intent, done=done, retired=retired)

    return read_each(ledger, (item for item in known.items() if item[1] & (INTENT | DONE)), read)


def has_landed(ledger: Ledger, known: Mapping[int, int], load_id: str) -> bool:
    """Return whether a load has landed, according to the result of `steps` or the ledger."""
    return bool(known.get(int(load_id, 16), 0) & DONE) or ledger.done(load_id) is not None


def landed_files(ledger: Ledger, numbers: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the load id and the path of each file of those loads, of these, that have landed and were not replaced.

    `numbers` are load ids as integers.

    Raises:
        StorageRefused: A record of one of these loads cannot be read.
    """
    for load in loads_of(ledger, dict.fromkeys(numbers, DONE | RETIRED)):
        if load.unreadable is not None:
            raise StorageRefused(load.unreadable, hint="Restore the record from a backup.")
        if load.done is not None and load.retired is None:
            yield from ((load.load_id, file.path) for file in Receipt.from_dict(load.done.receipt).files)


def read_each(ledger: Ledger, items: Iterable[A], read: Callable[[A], B]) -> Iterator[B]:
    """Yield the result of `read` for each item, in order; `read` is called in several threads."""
    return parallel.in_order(items, read, threads=parallel.readers(ledger.storage))


def id_of(number: int) -> str:
    """Return the load id of an integer that `steps` returned."""
    return f"{number:016x}"
