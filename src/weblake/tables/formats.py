"""What the table formats have in common: a load's file, the change of a commit, and the table of a result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.dataset import arrow_files, prefetch
from weblake.receipt import Receipt
from weblake.storage import Storage

#: Why a load is in a table's log, and in its records: its rows were appended, or taken out.
ADDED, REMOVED = "added", "removed"
#: Rows of a batch that is read; a large document has some hundred kilobytes.
_BATCH_ROWS = 128
#: deltalake's mark of a cause of an error, and its colours.
_CAUSE = "↳"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: What an error of an HTTP client may show: user and password of a URL, and the credential of a refused header.
_SECRET = re.compile(r"(?<=://)[^/\s@]+(?=@)|(?<=\bBearer )[^'\"\s]+|(?<=\bBasic )[^'\"\s]+")
#: Characters of an error's text that a message has.
_MAX_CHARS = 400


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


def file_of(table: str, load_id: str, receipt: Receipt) -> LoadFile:
    """Return the file of a landed load in a table of the dataset."""
    for file in receipt.files:
        if file.path.startswith(f"{table}/"):
            return LoadFile(load_id, file.path, file.rows, file.bytes)
    return LoadFile(load_id, None, 0, 0)


@dataclass(slots=True)
class Change:
    """One commit: the loads whose rows are appended, and those whose rows are taken out.

    The commit names all of them, so that no other program can commit one of them again.
    """

    storage: Storage
    #: Columns of the appended rows: those of the dataset's table, its path keys, and those of a later weblake.
    schema: pa.Schema
    add: list[LoadFile]
    remove: list[str]
    #: Those of `remove` that have rows in the table.
    present: list[str]
    #: Errors of loads whose files could not be read, by load id.
    unreadable: dict[str, Exception] = field(default_factory=dict)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the appended loads with their path keys; of a file that cannot be read, note the load."""
        loads = {file.path: file.load_id for file in self.add if file.path is not None}

        def read(name: str, source: prefetch.Source) -> Iterator[pa.RecordBatch]:
            try:
                yield from arrow_files.rows(pq.ParquetFile(source), name, self.schema, _BATCH_ROWS)
            except Exception as error:
                self.unreadable[loads[name]] = error
                raise

        return prefetch.in_order(self.storage, list(loads), read)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as one stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


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


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, for a sentence of a message; without the secrets of a URL or a header.

    deltalake's errors have their causes on further lines, broken and coloured as for a terminal: all of them are told.
    """
    text = _COLOUR.sub("", str(error))
    if _CAUSE in text:
        text = ": ".join(" ".join(cause.split()) for cause in text.split(_CAUSE))
    line = (text.splitlines() or [type(error).__name__])[0]
    return _SECRET.sub("***", line)[:_MAX_CHARS].rstrip(".")
