"""The attempts of one commit to a table, while other programs commit to it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from weblake.dataset.registered_tables import RegisteredTable
from weblake.errors import StorageRefused
from weblake.remedies import Remedy
from weblake.tables.formats import CommitConflict, LakeTable

#: Attempts of one commit, while other programs commit at the same time.
TRIES = 30
#: Attempts that fail although no other program has changed the table: the catalog or the storage fails.
UNCHANGED_TRIES = 8
#: Longest pause between two attempts, in seconds.
PAUSE_S = 2.0


@dataclass(slots=True)
class Attempts:
    """The attempts of one commit: each reads the table again, after a random pause that grows.

    A commit fails because another program was first, or because the catalog or the storage fails; the errors of the
    libraries do not tell these apart, the version of the table does. So there are few attempts at an unchanged table.

    Raises:
        StorageRefused: From the iteration: all attempts have failed, or the table cannot be read, or was dropped and
            created again since the sync began.
    """

    table: RegisteredTable
    lake: LakeTable
    #: Why the last attempt has failed.
    failed: str = ""

    def __iter__(self) -> Iterator[int]:
        version: int | None = None
        unchanged = 0
        for attempt in range(TRIES):
            if attempt:
                time.sleep(random.random() * min(PAUSE_S, 0.05 * 2**attempt))  # noqa: S311 - jitter, no secret
            try:
                self.lake.refresh()
            except CommitConflict as conflict:
                self.failed = str(conflict)
                continue
            check_same(self.table, self.lake)
            unchanged = unchanged + 1 if self.lake.version == version else 0
            version = self.lake.version
            if unchanged >= UNCHANGED_TRIES:
                raise self._refused(
                    unchanged, "No other program has changed it: check its settings, its catalog and its storage."
                )
            yield attempt
        raise self._refused(TRIES, "Other programs write to the table: sync again later.")

    def _refused(self, tries: int, hint: str) -> StorageRefused:
        return StorageRefused(
            f"Nothing could be committed to the {self.table.format} table {self.table.name} in {tries} attempts: "
            f"{self.failed.rstrip('.')}.",
            hint=f"{hint} Nothing is lost or doubled.",
        )


def check_same(table: RegisteredTable, lake: LakeTable) -> None:
    """Refuse a table that has the place or the name of the registered one and is another one.

    Raises:
        StorageRefused: The table was dropped and created again.
    """
    if lake.uuid != table.uuid:
        raise StorageRefused(
            f"The {table.format} table {table.name} at {lake.location} is another one than the registered one.",
            hint=Remedy(
                "It was dropped and created again: remove it with {remove_table}, and add it with {add_table}."
            ),
        )
