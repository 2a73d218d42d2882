"""What is on record of a compaction in the root that it makes, and what it is of: two files.

    _weblake/compaction.json    what is being made, before anything else is there
    _weblake/compacted.json     what came of it: the root is whole

Both lie in the new root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TypeVar

import msgspec

from weblake.dataset import layout
from weblake.errors import StorageRefused
from weblake.remedies import Remedy
from weblake.storage import Storage
from weblake.tables import schemas

#: What is copied as it is, beside the ledger.
_BESIDE = (layout.REFUSED, layout.SUBMITTED, layout.LISTS, layout.PENDING_ACTIVITY)
#: What may be replaced under its name: there a change shows in the size.
_REPLACED = ("usage_periods", "activity", layout.REFUSED, layout.SUBMITTED, layout.LISTS)
_VERSION = 1
#: Names that a message shows.
_NAMED = 3


class TableFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one table."""

    rows: int = 0
    files_before: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes: int = 0


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction came to; it stands in the new root, and its being there makes that one whole."""

    #: The old root and the new one, as they were called.
    root: str
    to: str
    file_size: int
    #: When it was done: ISO 8601, UTC.
    at: str
    #: Loads that have landed, also those retired since.
    loads: int
    #: Loads that have not landed: either root can go on with them, and only one should.
    open: tuple[str, ...]
    tables: dict[str, TableFiles]
    #: What it is a compaction of.
    snapshot: str
    #: Loads with a record that cannot be read, and why: their files and records are copied as they are.
    unreadable: dict[str, str] = {}
    #: In how many files the records of retired loads are (ledger_archive.py).
    retired_shards: int = 0
    version: int = _VERSION

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, for people and programs."""
        shown: dict[str, object] = msgspec.to_builtins(self)
        return {name: value for name, value in shown.items() if name not in ("snapshot", "version", "retired_shards")}


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What is being made in the new root."""

    snapshot: str
    file_size: int
    root: str
    version: int = _VERSION


T = TypeVar("T", Begun, Compacted)


@dataclass(frozen=True, slots=True)
class Held:
    """What the old root holds, by name."""

    tables: Mapping[str, list[str]]
    beside: list[str]
    #: How many records its ledger and its archive have.
    records: int
    #: Whether there is a record of the tables' path keys.
    layout: bool
    digest: str

    def names(self) -> set[str]:
        """All files but those of the ledger."""
        return {*self.beside, *(name for names in self.tables.values() for name in names)}


def begin(source: Storage, target: Storage, held: Held, file_size: int) -> Compacted | None:
    """Puts on record what is to be made, or finds that it is being made, or, which it returns, that it is."""
    mine = Begun(snapshot=held.digest, file_size=file_size, root=source.url)
    if target.read(layout.COMPACTION) is None:
        there = target.list("")
        if there:
            raise StorageRefused(
                f"{target.url} holds something already, such as {there[0]}.",
                hint="Compact into a root that holds nothing: what is there is not merged with it.",
            )
        target.preflight("documents")
        target.create(layout.COMPACTION, msgspec.json.encode(mine))
    begun = read(target, layout.COMPACTION, Begun)
    if begun is None:
        raise StorageRefused(f"{layout.COMPACTION} vanished from {target.url}.", hint="Compact into another root.")
    if begun.file_size != file_size:
        raise StorageRefused(
            f"{target.url} is compacted to files of {begun.file_size:,} bytes, not {file_size:,}.",
            hint=Remedy("Go on with {file_size} {size}, or compact into another root.", {"size": begun.file_size}),
        )
    done = read(target, layout.COMPACTED, Compacted)
    if begun.snapshot == held.digest:
        return done
    if done is None:
        raise changed(source, target, [])
    raise StorageRefused(
        f"{target.url} holds what {done.root} held at {done.at}, and {source.url} holds something else.",
        hint="Compact into another root; that one is whole, and may have been landed in since.",
    )


def look(storage: Storage) -> Held:
    """What a root holds that a compaction is made from."""
    tables = {table: parquet_files(storage, table) for table in schemas.TABLES}
    beside = [name for folder in _BESIDE for name in storage.list(folder)]
    digest = 0
    for name in chain(beside, *tables.values()):
        size = storage.size(name) if name.startswith(tuple(f"{folder}/" for folder in _REPLACED)) else 0
        digest ^= _digest_of(name, size)
    records = 0
    for page in chain(storage.pages(layout.LEDGER), storage.pages(layout.RETIRED)):
        records += len(page)
        for name in page:
            digest ^= _digest_of(name)
    return Held(tables, beside, records, storage.exists(layout.LAYOUT), f"{digest:032x}")


def _digest_of(name: str, size: int = 0) -> int:
    """A number for one file. Those of many are combined without regard to their order, so they need not be sorted."""
    return int.from_bytes(blake2b(f"{name}\0{size}".encode(), digest_size=16).digest(), "big")


def parquet_files(storage: Storage, table: str) -> list[str]:
    """The files of a table, sorted, folder by folder."""
    names = (name for name in storage.list(table) if name.endswith(".parquet"))
    return sorted(names, key=lambda name: (folder_of(name), name))


def folder_of(name: str) -> str:
    """The folder in which a file lies."""
    return name.rpartition("/")[0]


def read(storage: Storage, name: str, kind: type[T]) -> T | None:
    """One of the two records, or None where it is not there.

    Raises:
        StorageRefused: It cannot be read.
    """
    data = storage.read(name)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError):
        found = None
    if found is None or found.version != _VERSION:
        raise StorageRefused(
            f"The record {name} of {storage.url} cannot be read: it is damaged, or of another weblake.",
            hint="Upgrade weblake, or compact into another root.",
        )
    return found


def changed(source: Storage, target: Storage, names: list[str]) -> StorageRefused:
    """The error that the old root is not any more what the new one was begun from, with what has changed."""
    which = f" ({', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''})" if names else ""
    return StorageRefused(
        f"{source.url} has changed since its compaction into {target.url} began{which}.",
        hint="Stop what lands there, and compact into another root; this one never became whole and can be removed.",
    )
