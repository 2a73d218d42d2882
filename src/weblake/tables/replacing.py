"""Commits to a table the files of usage_periods and activity, which the dataset replaces in place.

    files that were replaced -> their content -> the table's files: which content it has -> one commit

A table must not name a file whose content changes, so it gets copies. The name of a copy says of which file and of
which content it is: the table's own list of files is the only record of what it holds, and a commit that is repeated
after a crash or a lost reply finds that nothing has to be done. The table is read before the files in each attempt, and
of two commits of the same file at the same time one fails, so an older content never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice

from weblake.compat import read_time
from weblake.dataset import layout, parallel
from weblake.dataset.identity import content_digest
from weblake.dataset.registered_tables import (
    REPLACEMENT,
    RegisteredTable,
    TableRecords,
    file_id_of,
    is_replacement_done,
)
from weblake.dataset.root import Dataset
from weblake.tables.attempts import Attempts
from weblake.tables.batches import LOADS_PER_COMMIT
from weblake.tables.changes import append_only_error
from weblake.tables.committing import SyncResult
from weblake.tables.formats import CommitConflict, LakeTable, LoadFile


@dataclass(slots=True)
class _Progress:
    """What a sync has seen and committed."""

    #: Digest of the content that the table has, by file id.
    seen: dict[str, str] = field(default_factory=dict)
    #: Paths of files whose content was added, and of those whose earlier content was taken out.
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    rows: int = 0
    #: Paths of files of which an append-only table has an earlier content, by file id.
    held: dict[str, str] = field(default_factory=dict)


def sync_files(dataset: Dataset, table: RegisteredTable, lake: LakeTable, *, everything: bool = False) -> SyncResult:
    """Commit the newest content of each file that was replaced since the last sync, and return what was done.

    `everything`: look at each file, and not only at those that have an entry. In the first day of a table, each sync
    does so: a replacement that began before the table was registered has no entry.

    Raises:
        StorageRefused: The table was changed so that files cannot be added; a file or a record cannot be read; the
            table is append-only and a content has to be taken out, and all other files are committed; or other programs
            committed at each attempt.
    """
    records = TableRecords(dataset.ledger)
    began = datetime.now(timezone.utc)
    complete = records.is_complete(table)
    entries = records.uncommitted(table)
    paths = (
        {file_id_of(path): path for path in files_of(dataset, table)} if entries or everything or not complete else {}
    )
    waiting = iter([path for each, path in paths.items() if each in entries or everything or not complete])
    done = _Progress()
    while batch := list(islice(waiting, LOADS_PER_COMMIT)):
        _commit(dataset, table, lake, batch, done)
    records.forget_uncommitted(
        table,
        [
            (file_id, entry)
            for file_id, found in entries.items()
            for entry in sorted(found)
            if file_id not in done.held and is_replacement_done(entry, done.seen.get(file_id), began)
        ],
    )
    if done.held:  # the other files are committed
        raise append_only_error(lake.location, done.held.values())
    if not complete and began - read_time(table.at) > REPLACEMENT:
        records.record_complete(table)
    return SyncResult(
        format=table.format,
        table=table.table,
        identifier=table.identifier,
        location=lake.location,
        version=lake.version,
        added=tuple(done.added),
        removed=tuple(done.removed),
        rows=done.rows,
        table_rows=lake.count_rows(),
    )


def files_of(dataset: Dataset, table: RegisteredTable) -> list[str]:
    """Return the paths of the files of a table's folder in the dataset."""
    return [name for name in dataset.storage.list(table.table) if layout.is_data(name)]


def _commit(dataset: Dataset, table: RegisteredTable, lake: LakeTable, paths: Sequence[str], done: _Progress) -> None:
    """Commit those files of a batch whose content the table does not have."""
    copies: dict[tuple[str, str], LoadFile] = {}  # an attempt can commit what an earlier one has copied
    attempts = Attempts(table, lake)
    for _ in attempts:
        try:
            there = lake.contents()
            seen: dict[str, str] = {}
            held: dict[str, str] = {}
            new: dict[str, LoadFile] = {}
            for path, data in read_files(dataset, paths):  # after the table: see above
                file_id, digest = file_id_of(path), content_digest(data)
                if lake.append_only and there.get(file_id, (digest,)) != (digest,):
                    held[file_id] = path
                    continue
                seen[file_id] = digest
                if there.get(file_id) == (digest,):
                    continue
                if (file_id, digest) not in copies:
                    copies[file_id, digest] = lake.copy(path, data)
                new[path] = copies[file_id, digest]
            if new:
                lake.replace(list(new.values()))
        except CommitConflict as conflict:
            attempts.failed = str(conflict)
            continue
        done.seen |= seen
        done.held |= held
        done.added += new
        done.removed += [path for path, file in new.items() if file.load_id in there]
        done.rows += sum(file.rows for file in new.values())
        return
    raise AssertionError("the last attempt returns or raises")


def read_files(dataset: Dataset, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each file that exists; threads read a few files ahead."""
    threads = parallel.readers(dataset.storage)
    read = parallel.in_order(paths, dataset.storage.read, threads=threads, most=threads)
    for path, data in zip(paths, read, strict=True):
        if data is not None:
            yield path, data
