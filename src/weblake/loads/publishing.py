"""Publish a staged load in one step, or keep a load that may not be published.

Order, so that a crash between any two lines leaves a state from which the next run goes on: page_errors first (they are
provisional until the documents are there), then the documents' file under its final name, which is the commit, then
what recovery.py does: the entry in the index of slots, the done record, the retirement of older loads of the slot.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from weblake.api import models
from weblake.dataset import layout, ledger_listing
from weblake.dataset.landed_loads import find as find
from weblake.dataset.landed_loads import find_job as find_job
from weblake.dataset.landed_loads import receipt_of
from weblake.dataset.ledger import Intent
from weblake.dataset.root import DOCUMENTS as DOCUMENTS
from weblake.dataset.root import PAGE_ERRORS as PAGE_ERRORS
from weblake.dataset.root import Dataset as Dataset
from weblake.dataset.root import Landing as Landing
from weblake.errors import StorageRefused
from weblake.loads.accounting import PageError
from weblake.loads.recovery import finish
from weblake.loads.staging import Staged
from weblake.receipt import Receipt
from weblake.remedies import Remedy
from weblake.storage import Storage
from weblake.tables import arrays, parquet, schemas

_LOG = logging.getLogger(__name__)


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
        other = receipt_of(dataset, name)
        if not there:
            _put_back(storage, errors, before, other, staged.written.path)
        if other.job_id != receipt.job_id:
            raise StorageRefused(
                f"{name} holds job {other.job_id} and not {receipt.job_id}, under the same load id.",
                hint=Remedy("Nothing was overwritten. Land this job {as_another_load}."),
            )
        receipt = other
    elif staged.account.rows and not _is_of(storage.read(errors), receipt):
        storage.replace(errors, _write_errors(staged))  # of a second writer, who read it otherwise
    return finish(dataset, intent, receipt)


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
    receipt = receipt_of(dataset, kept)  # as its footer has it, which a run that finishes this one goes by
    _take(dataset, intent, receipt)
    kept_errors, errors = layout.refused_path(PAGE_ERRORS, load_id), dataset.path(PAGE_ERRORS, intent)
    if storage.exists(kept_errors) and not storage.move(kept_errors, errors):
        storage.delete(kept_errors)  # a run that was killed between the two had moved an equal one
    if receipt.stored:
        storage.move(kept, dataset.path(DOCUMENTS, intent))
    done = finish(dataset, intent, receipt)
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


def history(
    dataset: Dataset, since: str | None = None, *, unreadable: Callable[[str, str], None] | None = None
) -> Iterator[Landed]:
    """Yield what has landed, oldest first; with `since`, only what came after that load.

    The order is that of the writers' clocks: to miss none, compare load ids with those that you have. The whole
    ledger is read before the first load is yielded; memory holds a few numbers of each load.

    Args:
        dataset: The dataset.
        since: A load id.
        unreadable: Called with each load that cannot be read, which is left out, and why; the message names the file.
            By default it is logged as a warning.

    Raises:
        StorageRefused: The ledger cannot be listed; or there is no load `since`, so it is unknown what came
            after it.
    """
    replaced: dict[str, list[str]] = {}
    passed = since is None
    for load in ledger_listing.loads(dataset.ledger):
        if load.unreadable is not None:
            (unreadable or _warn)(load.load_id, load.unreadable)
        if load.done is None:
            continue
        by = load.retired.by if load.retired else None
        if by is not None:  # one that landed while the other was writing its own record is not in that
            replaced.setdefault(by, []).append(load.load_id)
        older = dict.fromkeys([*load.done.retired, *replaced.pop(load.load_id, ())])
        if passed:
            yield Landed(Receipt.from_dict(load.done.receipt), load.done.at, by, tuple(older))
        passed = passed or load.load_id == since
    if not passed:
        raise StorageRefused(
            f"Load {str(since)[:40]} has not landed here.", hint=Remedy("Leave {since} out to see all loads.")
        )


def _warn(load_id: str, why: str) -> None:
    _LOG.warning("Load %s is left out: %s", load_id, why)


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
