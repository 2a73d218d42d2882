"""One load becomes visible in one step, and what cannot be published is kept.

Order, so that a crash between any two lines leaves a state from which the next run goes on: page_errors first (they are
provisional until the documents are there), then the documents' file under its final name, which is the commit, then the
done record, then the retirement of older loads of the same slot.

Imports: accounting, arrays, compacted_files, errors, layout, ledger, models, parquet, receipt, schemas, staging,
storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from weblake import compacted_files, layout, models
from weblake.accounting import PageError
from weblake.errors import StorageRefused
from weblake.layout import Layout
from weblake.ledger import Intent, Ledger, LoadRecords
from weblake.receipt import LandedFile, Receipt
from weblake.staging import Staged
from weblake.storage import Storage
from weblake.tables import arrays, parquet, schemas

DOCUMENTS, PAGE_ERRORS = layout.LOAD_TABLES


@dataclass(frozen=True, slots=True)
class Landing:
    """What a landing came to."""

    receipt: Receipt
    #: When it had landed, if an earlier run did it; None for this one.
    landed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """One root: its storage, its ledger and its layout."""

    storage: Storage
    ledger: Ledger
    layout: Layout

    @classmethod
    def at(cls, storage: Storage) -> Dataset:
        """The dataset in this storage."""
        return cls(storage, Ledger(storage), Layout(storage))

    def preflight(self, partition: Mapping[str, str] | None, load_id: str = "0" * 16) -> None:
        """Proves that a load can be recorded, published and kept here, before anything is paid.

        Raises:
            StorageRefused: It cannot, or the tables have another set of partition keys.
        """
        layout.check_partition(partition or {})
        self.storage.preflight(DOCUMENTS)
        self.storage.preflight_file(layout.refused_path(PAGE_ERRORS, load_id))  # both tables' are kept in one folder
        for table in layout.LOAD_TABLES:
            self.storage.preflight_file(layout.load_path(table, partition, datetime.now(UTC), load_id))
            self.layout.claim(table, tuple(partition) if partition else layout.DEFAULT_KEYS)

    def path(self, table: str, intent: Intent) -> str:
        """The final name of a load's file in a table."""
        return layout.load_path(table, intent.partition, intent.created(), intent.load_id)


def find(dataset: Dataset, load_id: str) -> Landing | None:
    """A load that has landed before, without a word to the service; None where it has not.

    A file under its final name counts even if the run that published it died on the very next line.
    """
    done = dataset.ledger.done(load_id)
    if done is not None:
        replaced = done.get("retired")
        for older in replaced if isinstance(replaced, list) else ():
            _retire(dataset, older, by=load_id)  # the run that wrote the record may have died before it came to this
        gone = dataset.ledger.retired(load_id)
        if gone is not None:
            _retire(dataset, load_id, by=gone.by)  # likewise
        return Landing(Receipt.from_dict(done), str(done["at"]))
    intent = dataset.ledger.intent(load_id)
    # Settled, and not only there: a done record must not outlive what it stands for.
    if intent is None or not dataset.storage.settled(dataset.path(DOCUMENTS, intent)):
        return None
    receipt = _finish(dataset, intent, _receipt_of(dataset, dataset.path(DOCUMENTS, intent)))
    for table in layout.LOAD_TABLES:  # a promotion that died half-way leaves the name that it moved from
        dataset.storage.delete(layout.refused_path(table, load_id))
    return Landing(receipt, intent.created_at)


def find_job(dataset: Dataset, kind: str, job_id: str) -> Landing | None:
    """The landing of a batch or crawl, as whichever load it was; None where it has not landed."""
    by = dataset.ledger.lander(kind, job_id)
    return None if by is None else find(dataset, by)


class LandsAs(Exception):
    """Another load has begun to publish this job: as that one it lands, or not at all."""

    def __init__(self, load_id: str) -> None:
        super().__init__(load_id)
        self.load_id = load_id


def publish(dataset: Dataset, intent: Intent, staged: Staged) -> Receipt:
    """Publishes a staged load and returns its receipt; of two writers of one load, both return the one that won.

    Raises:
        LandsAs: Its job is published as another load; nothing was.
        StorageRefused: The storage failed; or another job's documents stand under this load's name.
    """
    _take(dataset, intent, staged.receipt)
    storage, name = dataset.storage, dataset.path(DOCUMENTS, intent)
    errors = dataset.path(PAGE_ERRORS, intent)
    receipt = staged.receipt
    there = receipt.stored > 0 and storage.settled(name)  # whoever was first has said which pages failed, too
    before = None if there else storage.read(errors)
    if not there and staged.account.rows:
        storage.replace(errors, _write_errors(staged))
    elif before is not None:
        storage.delete(errors)  # of a run that died before its documents were there, and saw it otherwise
    if there or (receipt.stored and not storage.publish(staged.written.path, name)):
        other = _receipt_of(dataset, name)
        if not there:
            _put_back(storage, errors, before, other, staged.written.path)
        if other.job_id != receipt.job_id:
            raise StorageRefused(
                f"{name} holds job {other.job_id} and not {receipt.job_id}, under the same load id.",
                hint="Nothing was overwritten. Land this job with another --key.",
            )
        receipt = other
    elif staged.account.rows and not _is_of(storage.read(errors), receipt):
        storage.replace(errors, _write_errors(staged))  # of a second writer, who read it otherwise
    return _finish(dataset, intent, receipt)


def refuse(dataset: Dataset, intent: Intent, staged: Staged) -> None:
    """Keeps a checked load that may not be published, so that allowing it later needs no service."""
    storage = dataset.storage
    errors = layout.refused_path(PAGE_ERRORS, intent.load_id)
    if staged.account.rows:
        storage.replace(errors, _write_errors(staged))
    else:
        storage.delete(errors)
    storage.replace(layout.refused_path(DOCUMENTS, intent.load_id), staged.written.path)


def promote(dataset: Dataset, load_id: str) -> Receipt | None:
    """Publishes a load that was refused before, without the service; None where there is none. Raises as `publish`."""
    storage, intent = dataset.storage, dataset.ledger.intent(load_id)
    kept = layout.refused_path(DOCUMENTS, load_id)
    if intent is None or not storage.exists(kept):
        return None
    receipt = _receipt_of(dataset, kept)  # as its footer has it, which a run that finishes this one goes by
    _take(dataset, intent, receipt)
    kept_errors, errors = layout.refused_path(PAGE_ERRORS, load_id), dataset.path(PAGE_ERRORS, intent)
    if storage.exists(kept_errors) and not storage.move(kept_errors, errors):
        storage.delete(kept_errors)  # a run that was killed between the two had moved an equal one
    if receipt.stored:
        storage.move(kept, dataset.path(DOCUMENTS, intent))
    done = _finish(dataset, intent, receipt)
    storage.delete(kept)
    return done


def _take(dataset: Dataset, intent: Intent, receipt: Receipt) -> None:
    """Claims the job for this load: from here on nobody publishes it as another one."""
    if receipt.job_id is not None:
        by = dataset.ledger.land_as(receipt.kind, receipt.job_id, intent.load_id)
        if by != intent.load_id:
            raise LandsAs(by)


@dataclass(frozen=True, slots=True)
class Landed:
    """One line of a dataset's history."""

    receipt: Receipt
    at: str
    retired_by: str | None
    #: Older loads whose place it took: whoever copies what is new has to drop these.
    retired: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """JSON-ready: the receipt, when it landed, what it retired, and what retired it."""
        more = {"landed_at": self.at, "retired": list(self.retired), "retired_by": self.retired_by}
        return self.receipt.to_dict() | more


def history(dataset: Dataset, since: str | None = None) -> list[Landed]:
    """What has landed, oldest first; with `since`, only what came after that load.

    The order is that of the writers' clocks: whoever must miss none compares load ids with those that it has.

    Raises:
        StorageRefused: There is no such load, so that nobody can say what came after it.
    """
    rows: list[Landed] = []
    replaced: dict[str, list[str]] = {}
    for load in dataset.ledger.loads():
        if load.done is None:
            continue
        by = load.retired.by if load.retired else None
        if by is not None:  # one that landed while the other was writing its own record is not in that
            replaced.setdefault(by, []).append(load.load_id)
        older = dict.fromkeys([*load.done.retired, *replaced.get(load.load_id, ())])
        rows.append(Landed(Receipt.from_dict(load.done.receipt), load.done.at, by, tuple(older)))
    if since is None:
        return rows
    ids = [row.receipt.load_id for row in rows]
    if since not in ids:
        raise StorageRefused(f"Load {since[:40]} has not landed here.", hint="Leave --since out to see all loads.")
    return rows[ids.index(since) + 1 :]


def _finish(dataset: Dataset, intent: Intent, receipt: Receipt) -> Receipt:
    """Puts the load on record as done and retires what it replaces; safe to repeat."""
    storage = dataset.storage
    files = []
    for table, rows in ((DOCUMENTS, receipt.stored), (PAGE_ERRORS, None)):
        name = dataset.path(table, intent)
        if storage.exists(name):
            files.append(LandedFile(name, _rows(dataset, name) if rows is None else rows, storage.size(name)))
    receipt = replace(receipt, files=tuple(files))
    rivalling = intent.slot is not None and receipt.stored > 0  # one without a document takes nobody's place
    landed = {load.load_id: load for load in dataset.ledger.loads() if load.done is not None} if rivalling else {}
    older, newer = _rivals(intent, landed.values())
    if newer is not None:  # before the done record: a run that finds that one goes by what is on record
        dataset.ledger.record_retired(intent.load_id, newer)
    done = Receipt.from_dict(dataset.ledger.record_done(intent.load_id, receipt.to_dict(), retired=older))
    if rivalling and dataset.ledger.landed() - landed.keys() - {intent.load_id}:
        # Of two that land at the same moment neither sees the other's record before it has written its own: the second
        # one does now.
        late = [load for load in dataset.ledger.loads() if load.done is not None and load.load_id not in landed]
        more, newest = _rivals(intent, late)
        older, newer = older + more, newer or newest
    for load_id in older:
        _retire(dataset, load_id, by=intent.load_id)
    if newer is not None:
        _retire(dataset, intent.load_id, by=newer)
    return done


def _rivals(intent: Intent, landed: Iterable[LoadRecords]) -> tuple[list[str], str | None]:
    """Landed loads of the slot (design: "Slots"): those that this one takes the place of, and one that took its own.

    The second is there where a job that was started later was over first.
    """
    older: list[str] = []
    newer: str | None = None
    for load in landed:
        other = load.intent
        if other is None or load.done is None or other.load_id == intent.load_id:
            continue
        if _replaces(intent, other):
            older.append(other.load_id)
        elif load.done.receipt.get("stored") and _replaces(other, intent):
            newer = other.load_id
    return older, newer


def _replaces(newer: Intent, older: Intent) -> bool:
    return (
        newer.slot == older.slot
        and older.created() < newer.created()
        and (newer.slot_has_partition or (older.run == newer.run and older.generation < newer.generation))
    )


def _retire(dataset: Dataset, load_id: str, *, by: str) -> None:
    """Removes the files of a load whose place another one has taken; the record comes first."""
    ledger, storage = dataset.ledger, dataset.storage
    ledger.record_retired(load_id, by)
    intent = ledger.intent(load_id)
    if intent is not None:
        for table in (DOCUMENTS, PAGE_ERRORS):
            storage.delete(dataset.path(table, intent))
    done = ledger.done(load_id)
    for file in Receipt.from_dict(done).files if done is not None else ():
        if layout.is_compacted(file.path):  # it lies there beside loads that stay
            compacted_files.take_out(storage, file.path, load_id, ledger.retired_loads)


def _receipt_of(dataset: Dataset, name: str) -> Receipt:
    with dataset.storage.open_input(name) as source:
        found = parquet.read_receipt(source)
    if found is None:
        raise StorageRefused(
            f"{name} is no file of weblake: its footer holds no receipt.",
            hint="Move it away; weblake overwrites nothing that it did not write.",
        )
    return Receipt.from_dict(found)


def _rows(dataset: Dataset, name: str) -> int:
    with dataset.storage.open_input(name) as source:
        return parquet.count_rows(source, name)


def _write_errors(staged: Staged) -> Path:
    receipt = staged.receipt
    rows = [_error_row(row, receipt) for row in staged.account.rows]
    path = staged.written.path.with_name("page_errors.parquet")
    footer = json.dumps(receipt.to_dict(files=False)).encode()
    return parquet.write_table(path, arrays.table(schemas.PAGE_ERRORS, rows), footer).path


def _is_of(errors: bytes | None, receipt: Receipt) -> bool:
    """Whether this file of page errors was written with a load of this account."""
    told = None if errors is None else parquet.read_receipt(BytesIO(errors))
    return told is not None and Receipt.from_dict(told) == replace(receipt, files=())


def _put_back(storage: Storage, errors: str, before: bytes | None, winner: Receipt, beside: Path) -> None:
    """Leaves of the page errors what belongs to the load that won; what this writer put there may not."""
    if _is_of(storage.read(errors), winner):
        return
    if before is not None and _is_of(before, winner):
        kept = beside.with_name("page_errors-before.parquet")
        kept.write_bytes(before)
        storage.replace(errors, kept)
    elif not winner.failed + winner.robots_blocked + winner.rejected + winner.missing:
        storage.delete(errors)


def _error_row(row: PageError, receipt: Receipt) -> Mapping[str, object]:
    return {
        "load_id": receipt.load_id,
        "job_id": receipt.job_id,
        "job_kind": receipt.kind,
        "url": row.url,
        "outcome": row.outcome,
        "code": row.code,
        "error": row.error,
        "occurred_at": models.parse_time(row.occurred_at) if row.occurred_at else None,
    }
