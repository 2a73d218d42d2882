"""What the table formats have in common: a load's file, the changes of a commit, and the interface of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class CommitConflict(Exception):
    """Another program has committed first, or the outcome of a commit is unknown: look at the table again."""


@dataclass(frozen=True, slots=True)
class LoadFile:
    """The file of one load in one table of the dataset."""

    load_id: str
    #: Path relative to the root; None for a load without rows in this table.
    path: str | None
    rows: int
    bytes: int
    #: Path keys and values, in order.
    keys: Mapping[str, str]


class LakeTable(Protocol):
    """A Delta Lake or Iceberg table. `refresh` reads its current version; the other methods are about that version."""

    @property
    def uuid(self) -> str:
        """The table's own id."""
        ...

    @property
    def version(self) -> int:
        """The version, or the id of the snapshot; -1 if nothing was committed so far."""
        ...

    @property
    def location(self) -> str:
        """The URL of the table."""
        ...

    def count_rows(self) -> int:
        """Return the number of rows of the table, from its metadata."""
        ...

    def refresh(self) -> None:
        """Read the current version of the table."""

    def added(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the table's log names as added."""
        ...

    def removed(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the table's log names as removed."""
        ...

    def commit(self, add: Sequence[LoadFile], remove: Sequence[LoadFile]) -> None:
        """Add and remove loads in one commit, on the version that `refresh` has read, and read the new version.

        The commit names each load, also one without a file, so that no other program can add it again.

        Raises:
            CommitConflict: Nothing is known to be committed.
        """

    def loads(self) -> dict[str, int]:
        """Return the number of rows of each load in the table, counted by reading its column `load_id`."""
        ...


@dataclass(frozen=True, slots=True)
class TableResult:
    """Which table a result is about."""

    format: str
    table: str
    identifier: str | None
    location: str
    #: The table's version, or the id of its snapshot.
    version: int

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return self.identifier or self.table

    def to_dict(self) -> dict[str, object]:
        """Return the result as a JSON-ready dict."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def rows_by_load(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Return the number of rows of each load; the first column of the batches is `load_id`."""
    found: dict[str, int] = {}
    for batch in batches:
        for each in batch.column(0).value_counts().to_pylist():
            found[str(each["values"])] = found.get(str(each["values"]), 0) + each["counts"]
    return found


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, for a sentence of a message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300].rstrip(".")
