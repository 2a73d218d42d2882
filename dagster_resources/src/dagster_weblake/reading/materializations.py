"""The loads that an asset's materializations name, the newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from dagster_weblake.metadata import load_named_by

#: Events in a page, and partitions in one query: a database limits the number of values.
_PAGE, _PARTITIONS = 500, 500


class Materializations:
    """The materializations of one asset, the newest first."""

    def __init__(self, instance: dg.DagsterInstance, key: dg.AssetKey) -> None:
        self._instance = instance
        self._key = key

    def any(self) -> bool:
        """Return whether there is one."""
        return bool(self._instance.fetch_materializations(self._key, limit=1).records)

    def loads(self, every: bool) -> list[str]:
        """Return the load of the newest event that names one, or all loads."""
        found: list[str] = []
        for _, load in self._named(None):
            if load is not None:
                found.append(load)
                if not every:
                    break
        return found

    def loads_of(self, partitions: Sequence[str], every: bool) -> dict[str | None, list[str]]:
        """Return the loads by partition: of the newest event that names one, or all."""
        found: dict[str | None, list[str]] = {partition: [] for partition in partitions}
        for some in _chunks(partitions):
            left = set(some)
            for partition, load in self._named(some):
                if load is not None and (every or partition in left):
                    found[partition].append(load)
                    left.discard(str(partition))
                    if not left and not every:
                        break
        return found

    def materialized(self, partitions: Sequence[str]) -> set[str | None]:
        """Return the partitions that have an event."""
        found: set[str | None] = set()
        for some in _chunks(partitions):
            left = set(some)
            for partition, _ in self._named(some):
                found.add(partition)
                left.discard(str(partition))
                if not left:
                    break
        return found

    def _named(self, partitions: Sequence[str] | None) -> Iterator[tuple[str | None, str | None]]:
        """Yield the partition and the load of each event."""
        wanted = dg.AssetRecordsFilter(self._key, asset_partitions=partitions)
        cursor: str | None = None
        while True:
            page = self._instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
            for record in page.records:
                yield record.partition_key, load_named_by(record)
            if not page.has_more:
                return
            cursor = page.cursor


def _chunks(partitions: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(partitions), _PARTITIONS):
        yield partitions[first : first + _PARTITIONS]
