"""Archive of the ledger: the records of the retired loads of a compacted root, in few files.

    _weblake/retired/<shard>.json.gz    records by name, for the loads whose ids belong to this shard

A compaction moves the records of retired loads to the archive, so that the folder of the ledger holds live and open
loads only. A retry of such a load still finds its records, so it is not bought again. The files are written before the
root is complete and never change; `_weblake/compacted.json` records the number of shards. Loads that are retired later
keep their records in the ledger until the next compaction.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from weblake.dataset import layout
from weblake.errors import StorageRefused
from weblake.storage import Storage

#: Maximum number of ids (of loads, or of jobs under which loads are filed) in a shard.
SHARD_IDS = 2000
#: Shards that are cached in memory: those of a load and of its job, and two more.
_HELD = 4
_LEVEL = 6


class _Compacted(msgspec.Struct):
    retired_shards: int = 0


class LedgerArchive:
    """The archived records of one root."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._count: int | None = None
        #: Whether the root is known to be the complete result of a compaction; once True it stays True.
        self.is_whole = False
        #: Returns the records of one shard, by their names below the ledger.
        self.shard: Callable[[int], Mapping[str, bytes]] = lru_cache(_HELD)(self._read_shard)

    def read(self, name: str) -> bytes | None:
        """Return the content of a record, by its name below the root, or None if it is not archived.

        Raises:
            StorageRefused: The archive cannot be read, so it is unknown whether the record exists.
        """
        folder, _, own = name.rpartition("/")
        if folder != layout.LEDGER or self.count() == 0:
            return None
        return self.shard(int(own[:16], 16) % self.count()).get(own)

    def count(self) -> int:
        """Return the number of shards; 0 in a root without an archive."""
        if self._count is None:
            data = self._storage.read(layout.COMPACTED)
            try:
                self._count = 0 if data is None else msgspec.json.decode(data, type=_Compacted).retired_shards
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise self._damaged(layout.COMPACTED) from error
            self.is_whole = data is not None
        return self._count

    def _read_shard(self, number: int) -> Mapping[str, bytes]:
        name = layout.retired_path(number)
        data = self._storage.read(name)
        if data is None:
            raise self._damaged(name, "gone")
        try:
            records = msgspec.json.decode(gzip.decompress(data), type=dict[str, msgspec.Raw])
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._damaged(name) from error
        return {own: bytes(record) for own, record in records.items()}

    def _damaged(self, name: str, how: str = "damaged") -> StorageRefused:
        return StorageRefused(
            f"The record {name} of {self._storage.url} is {how}.",
            hint="It records which loads were paid for and retired. Restore it from a backup.",
        )


def shards_for(ids: int, *, at_least: int) -> int:
    """Return the number of shards for a number of ids: 0 or a power of two, at least `at_least`."""
    count = at_least
    while count * SHARD_IDS < ids:
        count = max(1, 2 * count)
    return count


def encode_shard(records: Mapping[str, bytes]) -> bytes:
    """Return the content of a shard, which is deterministic: equal records give equal bytes."""
    whole = {name: msgspec.Raw(records[name]) for name in sorted(records)}
    return gzip.compress(msgspec.json.encode(whole), _LEVEL, mtime=0)
