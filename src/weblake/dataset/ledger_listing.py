"""Reads the whole ledger of a root: for lists of loads, compaction and watchers. Landing a load never does this.

A ledger may hold millions of records. Names are listed in pages and kept as one number and a few flags per load (about
100 bytes). Records are read once, stored in a temporary file, and yielded one load at a time. An unreadable record is
reported with its load and does not affect other loads.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import chain, islice
from typing import IO, TypeVar

import msgspec

from weblake.compat import read_time
from weblake.dataset.layout import LEDGER, check_whole
from weblake.dataset.ledger import READERS, Done, Intent, Ledger, Retired
from weblake.errors import StorageRefused

#: Flags of the records that exist of a load.
INTENT, START, JOB, DONE, RETIRED, OWNER, LANDER, LATER_START, VOID = (1 << bit for bit in range(9))
_STEPS = {
    "": INTENT,
    ".start-1": START,
    ".job": JOB,
    ".done": DONE,
    ".retired": RETIRED,
    ".owner": OWNER,
    ".lander": LANDER,
}
_NAME = re.compile(
    rf"{LEDGER}/(?P<load_id>[0-9a-f]{{16}})(?P<step>\.start-[1-9]\d*(?:\.void)?|\.owner|\.lander|\.job|\.done|"
    r"\.retired)?\.json"
)
#: Number of items that are submitted to the threads at a time.
_AT_ONCE = 256
#: Maximum bytes of records in memory; beyond that they are in a temporary file.
_IN_MEMORY = 8 << 20
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)

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
        StorageRefused: The root cannot be listed, or is the unfinished result of a compaction.
    """
    check_whole(ledger.storage)
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


def names_of(has: int) -> list[str]:
    """Return the name suffixes of these records, except later starts and voids, whose suffixes hold numbers."""
    return [step for step, flag in _STEPS.items() if has & flag]


def loads(ledger: Ledger) -> Iterator[LoadRecords]:
    """Yield all loads ordered by the time they landed, or by the time of their intent if they have not landed.

    Loads with an unreadable record come first.

    Raises:
        StorageRefused: The root cannot be listed, or the machine's temporary directory has no space for the records.
    """
    known = steps(ledger)
    with _Waiting() as waiting:
        for records in chain(archived_loads(ledger), loads_of(ledger, known)):
            waiting.add(records)
        known.clear()
        yield from waiting.in_order()


def loads_of(ledger: Ledger, known: Mapping[int, int]) -> Iterator[LoadRecords]:
    """Yield the loads that `steps` has listed, in no particular order."""

    def read(item: tuple[int, int]) -> LoadRecords:
        load_id = id_of(item[0])
        try:
            done = ledger.done_record(load_id) if item[1] & DONE else None
            intent = ledger.intent(load_id) if done is None else None
            retired = ledger.retired(load_id) if item[1] & RETIRED else None
        except StorageRefused as error:
            return LoadRecords(load_id=load_id, unreadable=error.message)
        return LoadRecords(load_id=load_id, intent=intent, done=done, retired=retired)

    return read_each(ledger, (item for item in known.items() if item[1] & (INTENT | DONE)), read)


def has_landed(ledger: Ledger, known: Mapping[int, int], load_id: str) -> bool:
    """Return whether a load has landed, according to the result of `steps`, the ledger or the archive."""
    return bool(known.get(int(load_id, 16), 0) & DONE) or ledger.done_record(load_id) is not None


def archived_loads(ledger: Ledger) -> Iterator[LoadRecords]:
    """Yield the loads that a compaction has moved into the archive, in no particular order."""
    for shard in map(ledger.archive.shard, range(ledger.archive.count())):
        for name, data in shard.items():
            if name.endswith(".done.json"):
                load_id = name[:16]
                retired = shard.get(f"{load_id}.retired.json")
                try:
                    yield LoadRecords(
                        load_id=load_id,
                        done=ledger.decode_record(f"{LEDGER}/{name}", data, load_id, Done),
                        retired=None
                        if retired is None
                        else ledger.decode_record(f"{LEDGER}/{load_id}.retired.json", retired, load_id, Retired),
                    )
                except StorageRefused as error:
                    yield LoadRecords(load_id=load_id, unreadable=error.message)


def read_each(ledger: Ledger, items: Iterable[A], read: Callable[[A], B]) -> Iterator[B]:
    """Yield the result of `read` for each item, in order; `read` is called in several threads."""
    local = ledger.storage.local_path("x") is not None  # local reads are bound by the processor, not by a network
    return do_each(items, read, max(2, os.cpu_count() or 1) if local else READERS)


def do_each(items: Iterable[A], do: Callable[[A], B], threads: int = READERS) -> Iterator[B]:
    """Yield the result of `do` for each item, in order; `threads` threads process a limited number of items ahead."""
    left = iter(items)
    with ThreadPoolExecutor(threads, "weblake-ledger") as pool:
        while some := [*islice(left, _AT_ONCE)]:
            yield from pool.map(do, some)


def id_of(number: int) -> str:
    """Return the load id of an integer that `steps` returned."""
    return f"{number:016x}"


class _Waiting:
    """Temporary file of load records that sorts them by time."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by __exit__
        self._bytes = 0
        #: Of each load: microseconds since 1970, load id and offset in the file, packed into one integer for sorting.
        self._order: list[int] = []

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, records: LoadRecords) -> None:
        at = (read_time(records.at()) - _EPOCH) // _MICROSECOND if records.at() else -1 << 60
        self._order.append((at << 104) | (int(records.load_id, 16) << 40) | self._bytes)
        with _translate_errors():
            self._bytes += self._file.write(msgspec.json.encode(records) + b"\n")

    def in_order(self) -> Iterator[LoadRecords]:
        self._order.sort()
        for each in self._order:
            with _translate_errors():
                self._file.seek(each & ((1 << 40) - 1))
                line = self._file.readline()
            yield msgspec.json.decode(line, type=LoadRecords)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageRefused(
            f"The records of the ledger could not be sorted in {tempfile.gettempdir()}: {error.strerror or error}.",
            hint="Free space there, or set TMPDIR to a directory with space.",
        ) from error
