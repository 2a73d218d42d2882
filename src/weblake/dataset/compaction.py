"""Compaction: rewrites the small files of a dataset into files of a chosen size in a new root, reading the old one.

    list the old root -> record the compaction -> tables, folder by folder -> refused files and lists of URLs
      -> the ledger (compacted_ledger.py) -> layout -> check that the old root has not changed -> record completion

Until the last record exists, the new root is not a dataset: nothing can be read from it or landed in it. Intents are
copied last, so a process that finds an intent finds all records of its load, and a process that finds none is refused
before it has paid. After a kill at any point, the same command continues and has the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain, groupby

import msgspec

from weblake.arrow import schemas
from weblake.dataset import layout, ledger_listing
from weblake.dataset.compacted_ledger import LedgerCopy
from weblake.dataset.compaction_record import (
    Compacted,
    RootListing,
    TableFiles,
    begin_compaction,
    changed_error,
    folder_of,
    list_files,
    parquet_files,
    read,
)
from weblake.dataset.ledger import Ledger
from weblake.dataset.ledger_listing import DONE, INTENT, id_of, read_each
from weblake.dataset.merging import LedgerContents, Merge, MovedFile, copy_file, differs_error
from weblake.dataset.records import utc_now
from weblake.dataset.registered_tables import TableRecords
from weblake.errors import InvalidOption, StorageRefused
from weblake.remedies import Remedy
from weblake.storage import BACKENDS, RootPath, Storage, open_storage

#: Default size of a new file, in bytes.
FILE_SIZE = 256_000_000


def compact(
    root: RootPath,
    *,
    to: RootPath,
    file_size: int = FILE_SIZE,
    progress: Callable[[int, int], None] = lambda done, of: None,
    storage_options: Mapping[str, object] | None = None,
    to_storage_options: Mapping[str, object] | None = None,
) -> Compacted:
    """Rewrite a dataset into a new root with its small files merged, and return the result.

    Every row, load id, path key and ledger record is kept. The new root is complete when this function returns, not
    before. It replaces the old root: stop all runs that land in the old root first. An interrupted compaction
    continues with the same call; a finished compaction is not repeated.

    Args:
        root: The dataset; it is only read.
        to: The new root, which must be empty.
        file_size: Maximum size of a new file, in bytes. A load is never split, and a file that is this large already
            is copied unchanged.
        progress: Called with the number of files done and the total number of files.
        storage_options: Options for the file system of `root`, as fsspec takes them.
        to_storage_options: The same for `to`.

    Raises:
        InvalidOption: `file_size` is not a number of bytes.
        StorageRefused: `root` holds no complete dataset, `to` holds something else or one root is within the other,
            `root` changed during the compaction, or a file or record cannot be read or written.
    """
    if isinstance(file_size, bool) or not isinstance(file_size, int) or file_size < 1:
        raise InvalidOption(
            f"file_size is {file_size!r}, not a number of bytes.", hint="Give a whole number, such as 256_000_000."
        )
    source = open_storage(root, storage_options=storage_options)
    target = open_storage(to, storage_options=to_storage_options)
    _check_separate(source, target)
    layout.check_whole(source)
    held = list_files(source)
    if not held.names() and not held.records and not held.layout:
        raise layout.no_dataset(source)
    done = begin_compaction(source, target, held, file_size)
    return done or _Compaction(source, target, held, file_size, progress).run()


class _Compaction:
    """One run of a compaction."""

    def __init__(
        self, source: Storage, target: Storage, held: RootListing, file_size: int, progress: Callable[[int, int], None]
    ) -> None:
        self._source, self._target, self._held, self._size = source, target, held, file_size
        self._progress = progress
        self._known = ledger_listing.steps(Ledger(source))
        self._ledger = LedgerCopy(source, target, self._known)
        self._loads = 0
        self._unreadable: dict[str, str] = {}
        #: The files that hold the rows now, by the old files' names: their names and bytes.
        self._moved: dict[str, tuple[str, int]] = {}

    def run(self) -> Compacted:
        """Run all steps and return the result; steps that an earlier run has completed are skipped."""
        try:
            return self._run()
        except StorageRefused:
            self._check_unchanged()  # a file that has gone is missing because a load was replaced meanwhile
            raise

    def _run(self) -> Compacted:
        tables = self._tables()
        self._copy_other_files()
        shards = self._ledger.archive()
        self._ledger.copy(self._moved)
        if self._held.layout:
            self._copy_layout()
        still_open = self._open()
        self._check_unchanged()
        done = Compacted(
            root=self._source.url,
            to=self._target.url,
            file_size=self._size,
            at=utc_now(),
            loads=self._loads,
            open=still_open,
            tables=tables,
            snapshot=self._held.digest,
            unreadable=self._unreadable,
            retired_shards=shards,
        )
        self._target.create(layout.COMPACTED, msgspec.json.encode(done))
        return read(self._target, layout.COMPACTED, Compacted) or done

    def _tables(self) -> dict[str, TableFiles]:
        landed = self._landed()
        self._check_files(landed)
        merge = Merge(self._source, self._target, landed, self._size)
        count, done = sum(map(len, self._held.tables.values())), 0
        found = {}
        for table, names in self._held.tables.items():
            there = {folder: list(each) for folder, each in groupby(parquet_files(self._target, table), folder_of)}
            count_of = _Count()
            for folder, files in groupby(names, folder_of):
                for each in merge.folder(list(files), schemas.TABLES[table], there.get(folder, ())):
                    count_of.add(each)
                    if each.new is not None:
                        self._moved[each.old] = (each.new, each.new_bytes)
                    done += 1
                    self._progress(done, count)
            found[table] = count_of.to_table_files()
        return found

    def _copy_other_files(self) -> None:
        """Copy refused files and lists of URLs, one at a time through disk because they may be large."""
        there = set(self._target.list("_weblake"))
        with self._target.scratch() as scratch:
            for name in self._held.beside:
                if name not in there:
                    copy_file(self._source, self._target, name, scratch)
                if self._target.size(name) != self._source.size(name):
                    raise differs_error(self._target, name)

    def _copy_layout(self) -> None:
        data = self._source.read(layout.LAYOUT)
        if data is None:
            raise changed_error(self._source, self._target, [layout.LAYOUT])
        if not self._target.create(layout.LAYOUT, data) and self._target.read(layout.LAYOUT) != data:
            raise differs_error(self._target, layout.LAYOUT)

    def _check_unchanged(self) -> None:
        now = list_files(self._source)
        if now.digest != self._held.digest:
            raise changed_error(self._source, self._target, sorted(now.names() ^ self._held.names()))

    def _landed(self) -> LedgerContents:
        """Return the files and loads on record in the ledger; mark the loads that can be archived."""
        rows: dict[tuple[str, str], int] = {}
        retired: set[str] = set()
        ledger = Ledger(self._source)
        for load in chain(ledger_listing.archived_loads(ledger), ledger_listing.loads_of(ledger, self._known)):
            if load.unreadable is not None:
                self._unreadable[load.load_id] = load.unreadable
            if load.retired is not None:
                retired.add(load.load_id)
            if load.done is None:
                continue
            self._loads += 1
            retired.update(load.done.retired)
            if load.retired is not None and int(load.load_id, 16) in self._known:
                self._ledger.retires(load)
            files = load.done.receipt.get("files")
            for file in files if isinstance(files, list) and load.retired is None else ():
                rows[file["path"], load.load_id] = file["rows"]
        return LedgerContents(rows, retired)

    def _check_files(self, landed: LedgerContents) -> None:
        """Refuse a dataset whose Delta Lake or Iceberg table has taken over rows.

        The table's own maintenance merges files, and then deletes the files of the dataset that it does not need any
        more. The new root would lack these rows, and the table is not copied.
        """
        there = self._held.names()
        gone = [each for each in landed.rows if each[0] not in there and each[1] not in landed.retired]
        tables = {each.table: each for each in TableRecords(Ledger(self._source)).tables()} if gone else {}
        for name, load_id in sorted(gone):
            table = tables.get(name.partition("/")[0])
            if table is not None:
                raise StorageRefused(
                    f"{self._source.url} has no file {name} of load {load_id} any more: the {table.format} table "
                    f"{table.name} may have its rows in a file of its own, which is not copied.",
                    hint=Remedy(
                        "Restore the file from a backup; or, if the rows may stay in the table alone, remove the table "
                        "from the dataset with {remove_table}, and compact again."
                    ),
                )

    def _open(self) -> tuple[str, ...]:
        """Return the ids of the loads that have not landed and whose job no other load has landed, sorted."""
        ledger = Ledger(self._source)
        started = (id_of(each) for each, has in self._known.items() if has & INTENT and not has & DONE)

        def is_open(load_id: str) -> tuple[str, bool]:
            try:
                job = ledger.job(load_id)
                by = ledger.landing_load(job.kind, job.job_id) if job is not None else None
                return load_id, by is None or not ledger_listing.has_landed(ledger, self._known, by)
            except StorageRefused as error:
                self._unreadable[load_id] = error.message
                return load_id, True

        return tuple(sorted(load_id for load_id, found in read_each(ledger, started, is_open) if found))


class _Count:
    """Counts of the files and rows of one table."""

    def __init__(self) -> None:
        self._rows = self._files = self._bytes = 0
        self._new: dict[str, int] = {}

    def add(self, moved: MovedFile) -> None:
        self._rows += moved.rows
        self._files += 1
        self._bytes += moved.old_bytes
        if moved.new is not None:
            self._new[moved.new] = moved.new_bytes

    def to_table_files(self) -> TableFiles:
        return TableFiles(
            rows=self._rows,
            files_before=self._files,
            files=len(self._new),
            bytes_before=self._bytes,
            bytes=sum(self._new.values()),
        )


def _check_separate(source: Storage, target: Storage) -> None:
    """Raise StorageRefused if one of the two roots is within the other."""
    (one, account), (other, other_account) = _place(source), _place(target)
    if "" not in (account, other_account) and account != other_account:
        return
    if one.startswith(other) or other.startswith(one):
        raise StorageRefused(
            f"One of the roots {target.url} and {source.url} is inside the other.",
            hint="Give a new root beside the old one: the old one is only read.",
        )


def _place(storage: Storage) -> tuple[str, str]:
    """Return the path of a root with a slash at its end, the same for all spellings of it, and its account if named."""
    local = storage.local_path("x")
    if local is not None:
        return f"{local.parent.resolve()}".rstrip("/") + "/", ""
    scheme, _, rest = storage.url.partition("://")
    backend, _ = BACKENDS.get(scheme, (scheme, ""))
    bucket, _, path = rest.partition("/")
    container, _, account = bucket.partition("@")
    return f"{backend}://{container}/{path}".rstrip("/") + "/", account
