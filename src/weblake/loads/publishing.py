"""Publish a staged load in one step, or keep a load that may not be published.

The order lets the next run continue after a crash between any two steps: the note in the slot index that the load is
being published, page_errors (provisional until the documents exist), then the documents' file under its final name,
which is the commit, then the steps of recovery.py: the entry in the slot index, the done record, the retirement of
older loads of the slot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from weblake.api import models
from weblake.arrow import arrays, parquet, schemas
from weblake.dataset import layout
from weblake.dataset.landed_loads import receipt_of
from weblake.dataset.records import Intent
from weblake.dataset.root import DOCUMENTS, PAGE_ERRORS, Dataset
from weblake.errors import StorageRefused
from weblake.loads.accounting import PageError
from weblake.loads.recovery import finish, recover, remove_refused
from weblake.loads.staging import Staged
from weblake.receipt import Receipt
from weblake.remedies import Remedy
from weblake.storage import Storage


class JobClaimed(Exception):
    """The job is claimed by another load, which has begun to publish it; `load_id` names that load."""

    def __init__(self, load_id: str) -> None:
        super().__init__(load_id)
        self.load_id = load_id


class Published(NamedTuple):
    """A load that has been published."""

    receipt: Receipt
    #: Whether this writer has published it; False if another one was faster.
    is_first: bool


def publish(dataset: Dataset, intent: Intent, staged: Staged) -> Published:
    """Publish a staged load; two writers of one load both return the receipt of the first.

    Raises:
        JobClaimed: Another load publishes the job; nothing was published here.
        StorageRefused: The storage failed; or the load's file holds the documents of another job.
    """
    storage, name = dataset.storage, dataset.path(DOCUMENTS, intent)
    errors = dataset.path(PAGE_ERRORS, intent)
    receipt = staged.receipt
    there = receipt.stored > 0 and storage.ensure_durable(name)  # the first writer has also published its page errors
    if there:  # before the claim, which would keep another load from landing the job
        _check_same_job(name, receipt_of(dataset, name), receipt)
    _claim_job(dataset, intent, receipt)
    if not there and dataset.ledger.done(intent.load_id) is not None:
        return Published(_landed_meanwhile(dataset, intent.load_id), is_first=False)
    if not there:
        dataset.slots.announce(intent)
    before = None if there else storage.read(errors)
    if not there and staged.account.rows:
        storage.replace(errors, _write_errors(staged))
    elif before is not None:
        storage.delete(errors)  # from a run that died before its commit and had a different account
    is_first = not there and (not receipt.stored or storage.publish(staged.written.path, name))
    if not is_first:
        other = receipt_of(dataset, name)
        if not there:
            _restore_errors(storage, errors, before, other, staged.written.path.with_name("page_errors-before.parquet"))
        _check_same_job(name, other, receipt)
        receipt = other
    elif not staged.account.rows:
        _remove_errors(storage, errors)
    elif not _belongs_to(storage.read(errors), receipt):
        storage.replace(errors, _write_errors(staged))  # a second writer with a different account replaced them
    return Published(finish(dataset, intent, receipt), is_first)


def refuse(dataset: Dataset, intent: Intent, staged: Staged) -> bool:
    """Store a checked load that may not be published, so that `promote` can publish it later without the service.

    Return whether it was refused for the first time.
    """
    storage, kept = dataset.storage, layout.refused_path(DOCUMENTS, intent.load_id)
    is_first = not storage.exists(kept)
    errors = layout.refused_path(PAGE_ERRORS, intent.load_id)
    if staged.account.rows:
        storage.replace(errors, _write_errors(staged))
    else:
        storage.delete(errors)
    storage.replace(kept, staged.written.path)
    return is_first


def promote(dataset: Dataset, load_id: str) -> Receipt | None:
    """Publish a load that was refused before, and return its receipt; None if there is none. Raises as `publish`.

    The result is also None if its two files do not belong together, because a run was killed while it refused the load
    once more: then the job is read again.
    """
    storage, intent = dataset.storage, dataset.ledger.intent(load_id)
    kept, kept_errors = (layout.refused_path(table, load_id) for table in (DOCUMENTS, PAGE_ERRORS))
    if intent is None or not storage.exists(kept):
        return None
    receipt = receipt_of(dataset, kept)  # from the footer, as a run that finishes an interrupted one reads it
    name, errors = dataset.path(DOCUMENTS, intent), dataset.path(PAGE_ERRORS, intent)
    rows = storage.read(kept_errors) if receipt.has_page_errors else None
    if receipt.has_page_errors and not _belongs_to(rows, receipt):
        return None
    _claim_job(dataset, intent, receipt)
    there = receipt.stored > 0 and storage.ensure_durable(name)
    if not there and dataset.ledger.done(load_id) is not None:
        return _landed_meanwhile(dataset, load_id)
    if not there:
        dataset.slots.announce(intent)
    before = None if there else storage.read(errors)
    with storage.scratch() as scratch:
        if not there and rows is not None:
            _replace(storage, errors, scratch / "page_errors.parquet", rows)
        elif before is not None:
            storage.delete(errors)  # from a run that died before its commit and had a different account
        if there or (receipt.stored and not storage.move(kept, name)):  # another run has published the load meanwhile
            receipt = receipt_of(dataset, name)
            _restore_errors(storage, errors, before, receipt, scratch / "page_errors-before.parquet")
        elif rows is None:
            _remove_errors(storage, errors)
        elif not _belongs_to(storage.read(errors), receipt):
            _replace(storage, errors, scratch / "page_errors-again.parquet", rows)
    if receipt.stored:  # before the done record, after which no run looks at them again
        remove_refused(dataset, load_id)
        return finish(dataset, intent, receipt)
    done = finish(dataset, intent, receipt)  # without documents, this record is the commit
    remove_refused(dataset, load_id)
    return done


def _landed_meanwhile(dataset: Dataset, load_id: str) -> Receipt:
    """Return the receipt of a load that another run has landed since this one began, and a later load has replaced."""
    landed = recover(dataset, load_id)
    assert landed is not None
    remove_refused(dataset, load_id)
    return landed.receipt


def _check_same_job(name: str, there: Receipt, receipt: Receipt) -> None:
    if there.job_id != receipt.job_id:
        raise StorageRefused(
            f"{name} holds job {there.job_id} and not {receipt.job_id}, under the same load id.",
            hint=Remedy("Nothing was overwritten. Land this job by its id, with {land}."),
        )


def _claim_job(dataset: Dataset, intent: Intent, receipt: Receipt) -> None:
    """Claim the job for this load, so that no other load can publish it; raise JobClaimed if another one has it."""
    if receipt.job_id is not None:
        by = dataset.ledger.claim_landing(receipt.kind, receipt.job_id, intent.load_id)
        if by != intent.load_id:
            raise JobClaimed(by)


def _write_errors(staged: Staged) -> Path:
    receipt = staged.receipt
    rows = [_error_row(row, receipt) for row in staged.account.rows]
    path = staged.written.path.with_name("page_errors.parquet")
    footer = json.dumps(receipt.to_dict(files=False)).encode()
    return parquet.write_table(path, arrays.table(schemas.PAGE_ERRORS, rows), footer).path


def _belongs_to(errors: bytes | None, receipt: Receipt) -> bool:
    """Return whether this file of page errors was written with a load that has this receipt."""
    found = None if errors is None else parquet.read_receipt(BytesIO(errors))
    return found is not None and Receipt.from_dict(found) == replace(receipt, files=())


def _restore_errors(storage: Storage, errors: str, before: bytes | None, winner: Receipt, ready: Path) -> None:
    """Restore the page errors of the writer that published first, if this writer has replaced them.

    `ready` is the path of a scratch file, which does not exist yet.
    """
    if _belongs_to(storage.read(errors), winner):
        return
    if before is not None and _belongs_to(before, winner):
        _replace(storage, errors, ready, before)
    elif not winner.has_page_errors:
        storage.delete(errors)


def _remove_errors(storage: Storage, errors: str) -> None:
    """Remove the page errors of a second writer with a different account, if it has written any."""
    if storage.exists(errors):
        storage.delete(errors)


def _replace(storage: Storage, name: str, ready: Path, data: bytes) -> None:
    ready.write_bytes(data)
    storage.replace(name, ready)


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
