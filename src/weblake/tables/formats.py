"""What the table formats have in common: a load's file, the changes of a commit, and the interface of a table."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from weblake.dataset import layout
from weblake.dataset.identity import content_digest
from weblake.dataset.registered_tables import RegisteredTable, file_id_of
from weblake.receipt import Receipt

#: deltalake's mark of a cause of an error, and its colours.
_CAUSE = "↳"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: What an error of an HTTP client may show: user and password of a URL, and the credential of a refused header.
_SECRET = re.compile(r"(?<=://)[^/\s@]+(?=@)|(?<=\bBearer )[^'\"\s]+|(?<=\bBasic )[^'\"\s]+")
#: Characters of an error's text that a message has.
_MAX_CHARS = 400
_COPY = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})-[0-9a-f]{16}\.parquet")


class CommitConflict(Exception):
    """Another program has committed first, or the outcome of a commit is unknown: look at the table again."""


@dataclass(frozen=True, slots=True)
class LoadFile:
    """The file of one load in one table of the dataset; or a copy of a file of usage_periods or activity."""

    #: The load id; for a copy the file id.
    load_id: str
    #: Path relative to the root; None for a load without rows in this table. A copy for Iceberg has a URL.
    path: str | None
    rows: int
    bytes: int
    #: Path keys and values, in order.
    keys: Mapping[str, str]


def file_of(table: RegisteredTable, load_id: str, receipt: Receipt) -> LoadFile:
    """Return the file of a landed load in the dataset's table that a registered table is about."""
    for file in receipt.files:
        if file.path.startswith(f"{table.table}/"):
            return LoadFile(load_id, file.path, file.rows, file.bytes, layout.keys_of(file.path))
    return LoadFile(load_id, None, 0, 0, {})


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

    @property
    def dataset(self) -> str | None:
        """The URL of the dataset for which the table was created, where the table itself says so."""
        ...

    @property
    def append_only(self) -> bool:
        """Whether the version forbids to take rows out of the table, so that `commit` may only add loads."""
        ...

    def count_rows(self) -> int:
        """Return the number of rows of the table, from its metadata."""
        ...

    def refresh(self) -> None:
        """Read the current version of the table, and add the columns that it lacks.

        Raises:
            CommitConflict: Another program has changed the columns at the same time.
            StorageRefused: Another program has changed the table so that files cannot be added, or only with wrong
                values.
        """

    def added(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the table's log names as added."""
        ...

    def removed(self, load_ids: Iterable[str]) -> set[str]:
        """Return those of the loads that the table's log names as removed."""
        ...

    def with_rows(self, load_ids: Sequence[str]) -> set[str]:
        """Return those of the loads that have rows in the table; none while the log cannot have forgotten a load.

        For loads that neither the log nor our records name: a sync may have ended between its commit and its records,
        and the log's entry may have expired since.
        """
        ...

    def file_names(self) -> set[str]:
        """Return the names, without folders, of the files that the version names."""
        ...

    def has_merged_files(self) -> bool:
        """Return whether a commit that removes loads may have to copy the rows of those that it adds.

        So it is for a Delta Lake table after its own maintenance has merged files, or with deletion vectors.
        """
        ...

    def commit(self, add: Sequence[LoadFile], remove: Sequence[LoadFile]) -> None:
        """Add and remove loads in one commit, on the version that `refresh` has read, and read the new version.

        The commit names each load, also one without a file, so that no other program can add it again.

        Raises:
            CommitConflict: Nothing is known to be committed.
        """

    def contents(self) -> dict[str, tuple[str, ...]]:
        """Return the digest of each file's content in the table, by file id; more than one for a doubled file.

        This and the next two methods are for usage_periods and activity, whose files the dataset replaces in place. A
        copy carries the file id and the digest in its name, so the table's list of files tells what it holds.
        """
        ...

    def copy(self, path: str, data: bytes) -> LoadFile:
        """Copy the content of a dataset's file to a new file of the table, which no version names yet; return it."""
        ...

    def replace(self, files: Sequence[LoadFile]) -> None:
        """Commit copies, each in the place of all rows with its path keys, and read the new version.

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


def copy_name(path: str, data: bytes) -> str:
    """Return a new name for a copy of a file of the dataset: `<file_id>-<digest>-<nonce>.parquet`."""
    return f"{file_id_of(path)}-{content_digest(data)}-{secrets.token_hex(8)}.parquet"


def contents_of(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the digests by file id, from the paths of copies; files with other names are left out."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        if name := _COPY.fullmatch(path.rpartition("/")[2]):
            found[name[1]] = (*found.get(name[1], ()), name[2])
    return found


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, for a sentence of a message; without the secrets of a URL or a header.

    deltalake's errors have their causes on further lines, broken and coloured as for a terminal: all of them are told.
    """
    text = _COLOUR.sub("", str(error))
    if _CAUSE in text:
        text = ": ".join(" ".join(cause.split()) for cause in text.split(_CAUSE))
    line = (text.splitlines() or [type(error).__name__])[0]
    return _SECRET.sub("***", line)[:_MAX_CHARS].rstrip(".")
