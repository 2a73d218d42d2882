"""Records of a compaction, and the listing of the old root that they refer to.

    _weblake/compaction.json    start of the compaction, written before any other file
    _weblake/compacted.json     result of the compaction; its presence marks the root as complete

Both records are in the new root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TypeVar

import msgspec

from weblake.arrow import schemas
from weblake.dataset import layout
from weblake.errors import StorageRefused
from weblake.remedies import Remedy
from weblake.storage import Storage

#: Folders that are copied unchanged, beside the ledger.
_COPIED_FOLDERS = (layout.REFUSED, layout.SUBMITTED, layout.LISTS, layout.PENDING_ACTIVITY)
#: Folders whose files may be replaced under the same name: their size is part of the digest, to detect a change.
_REPLACED_FOLDERS = ("usage_periods", "activity", layout.REFUSED, layout.SUBMITTED, layout.LISTS)
_VERSION = 1
#: Maximum number of file names in an error message.
_NAMED = 3


class TableFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, files and bytes of one table, before and after."""

    rows: int = 0
    files_before: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes: int = 0


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a compaction, recorded in the new root; its presence marks that root as complete."""

    #: URLs of the old root and the new root at the time of the compaction.
    root: str
    to: str
    file_size: int
    #: When the compaction finished: ISO 8601, UTC.
    at: str
    #: Number of loads that have landed, including those retired since.
    loads: int
    #: Ids of loads that have not landed: they can be continued in either root, but only in one of them.
    open: tuple[str, ...]
    tables: dict[str, TableFiles]
    #: Digest of the listing of the old root.
    snapshot: str
    #: Loads with an unreadable record, and the reason: their files and records are copied unchanged.
    unreadable: dict[str, str] = {}
    #: Number of files that hold the records of retired loads (ledger_archive.py).
    retired_shards: int = 0
    version: int = _VERSION

    def to_dict(self) -> dict[str, object]:
        """Return the result as a JSON-ready dict, without internal fields."""
        shown: dict[str, object] = msgspec.to_builtins(self)
        return {name: value for name, value in shown.items() if name not in ("snapshot", "version", "retired_shards")}


class CompactionStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start of a compaction, recorded in the new root."""

    snapshot: str
    file_size: int
    root: str
    version: int = _VERSION


T = TypeVar("T", CompactionStart, Compacted)


@dataclass(frozen=True, slots=True)
class RootListing:
    """Listing of the old root: file names, number of records and a digest."""

    tables: Mapping[str, list[str]]
    beside: list[str]
    #: Number of files in its ledger and its archive.
    records: int
    #: Whether the record of the tables' path keys exists.
    layout: bool
    digest: str

    def names(self) -> set[str]:
        """Return the names of all files except those of the ledger."""
        return {*self.beside, *(name for names in self.tables.values() for name in names)}


def begin_compaction(source: Storage, target: Storage, held: RootListing, file_size: int) -> Compacted | None:
    """Record the start of a compaction unless it is on record; return its result if it has finished, else None.

    Raises:
        StorageRefused: The new root holds something else, a compaction with another file size or of another listing.
    """
    mine = CompactionStart(snapshot=held.digest, file_size=file_size, root=source.url)
    if target.read(layout.COMPACTION) is None:
        there = target.list("")
        if there:
            raise StorageRefused(
                f"{target.url} is not empty: it contains {there[0]}.",
                hint="Compact into an empty root; existing files are not merged.",
            )
        target.preflight("documents")
        target.create(layout.COMPACTION, msgspec.json.encode(mine))
    started = read(target, layout.COMPACTION, CompactionStart)
    if started is None:
        raise StorageRefused(f"{layout.COMPACTION} vanished from {target.url}.", hint="Compact into another root.")
    if started.file_size != file_size:
        raise StorageRefused(
            f"{target.url} is compacted to files of {started.file_size:,} bytes, not {file_size:,}.",
            hint=Remedy("Go on with {file_size} {size}, or compact into another root.", {"size": started.file_size}),
        )
    done = read(target, layout.COMPACTED, Compacted)
    if started.snapshot == held.digest:
        return done
    if done is None:
        raise changed_error(source, target, [])
    raise StorageRefused(
        f"{target.url} holds what {done.root} held at {done.at}, and {source.url} holds something else.",
        hint="Compact into another root; that one is complete, and loads may have landed in it since.",
    )


def list_files(storage: Storage) -> RootListing:
    """Return the listing of a root that a compaction reads."""
    tables = {table: parquet_files(storage, table) for table in schemas.TABLES}
    beside = [name for folder in _COPIED_FOLDERS for name in storage.list(folder)]
    digest = 0
    for name in chain(beside, *tables.values()):
        size = storage.size(name) if name.startswith(tuple(f"{folder}/" for folder in _REPLACED_FOLDERS)) else 0
        digest ^= _digest_of(name, size)
    records = 0
    for page in chain(storage.pages(layout.LEDGER), storage.pages(layout.RETIRED)):
        records += len(page)
        for name in page:
            digest ^= _digest_of(name)
    return RootListing(tables, beside, records, storage.exists(layout.LAYOUT), f"{digest:032x}")


def _digest_of(name: str, size: int = 0) -> int:
    """Return a digest of one file. Digests are combined independently of their order, so names need not be sorted."""
    return int.from_bytes(blake2b(f"{name}\0{size}".encode(), digest_size=16).digest(), "big")


def parquet_files(storage: Storage, table: str) -> list[str]:
    """Return the Parquet files of a table, sorted by folder, then by name."""
    names = (name for name in storage.list(table) if layout.is_data(name))
    return sorted(names, key=lambda name: (folder_of(name), name))


def folder_of(name: str) -> str:
    """Return the folder of a file."""
    return name.rpartition("/")[0]


def read(storage: Storage, name: str, kind: type[T]) -> T | None:
    """Return one of the two records, or None if it does not exist.

    Raises:
        StorageRefused: The record cannot be read.
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
            f"The record {name} of {storage.url} cannot be read: it is damaged, or of another version of weblake.",
            hint="Upgrade weblake, or compact into another root.",
        )
    return found


def changed_error(source: Storage, target: Storage, names: list[str]) -> StorageRefused:
    """Return the error that the old root has changed since the compaction began, with the names of changed files."""
    which = f" ({', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''})" if names else ""
    return StorageRefused(
        f"{source.url} has changed since its compaction into {target.url} began{which}.",
        hint="Stop the pipelines that land there, and compact into another root. This one is incomplete; remove it.",
    )
