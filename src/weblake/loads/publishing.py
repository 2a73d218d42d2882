"""Publish a staged load in one step, or keep a load that may not be published.

The order lets the next run continue after a crash between any two steps: the note in the slot index that the load is
being published, page_errors (provisional until the documents exist), then the documents' file under its final name,
which is the commit, then the steps of recovery.py: the entry in the slot index, the done record, the retirement of
older loads of the slot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from weblake.api import models
from weblake.arrow import arrays, parquet, schemas
from weblake.dataset import layout
from weblake.dataset.landed_loads import receipt_of
from weblake.dataset.records import Intent
from weblake.dataset.root import DOCUMENTS, PAGE_ERRORS, Dataset
from weblake.errors import Remedy, StorageRefused
from weblake.loads.accounting import PageError
from weblake.loads.recovery import finish, recover, remove_refused
from weblake.loads.staging import Staged
from weblake.receipt import Receipt
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
    file = staged.written.path
    publish_documents = partial(dataset.storage.publish, file)
    return _commit(dataset, intent, staged.receipt, _page_errors(staged), publish_documents, file.parent)


def refuse(dataset: Dataset, intent: Intent, staged: Staged) -> bool:
    """Store a checked load that may not be published, so that `promote` can publish it later without the service.

    Return whether it was refused for the first time.
    """
    storage, kept = dataset.storage, layout.refused_path(DOCUMENTS, intent.load_id)
    is_first = not storage.exists(kept)
    kept_errors, errors = layout.refused_path(PAGE_ERRORS, intent.load_id), _page_errors(staged)
    if errors is None:
        storage.delete(kept_errors)
    else:
        _replace(storage, kept_errors, errors, staged.written.path.parent)
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
    errors = storage.read(kept_errors) if receipt.has_page_errors else None
    if receipt.has_page_errors and not _belongs_to(errors, receipt):
        return None
    with storage.scratch() as scratch:
        move = partial(storage.move, kept)
        return _commit(dataset, intent, receipt, errors, move, scratch, was_refused=True).receipt


def _commit(
    dataset: Dataset,
    intent: Intent,
    receipt: Receipt,
    errors: bytes | None,
    publish_documents: Callable[[str], bool],
    scratch: Path,
    *,
    was_refused: bool = False,
) -> Published:
    """Publish a load: its page errors, then its documents, then the steps of recovery.py.

    Args:
        dataset: The dataset.
        intent: The load.
        receipt: Its receipt.
        errors: The file of its page errors, or None if it has none.
        publish_documents: Publishes its documents under a name, if it has any; returns False if the name is taken.
        scratch: A directory that only this run uses.
        was_refused: Whether its files are those of a refused load, which are to be removed.
    """
    storage, load_id = dataset.storage, intent.load_id
    name, errors_name = dataset.path(DOCUMENTS, intent), dataset.path(PAGE_ERRORS, intent)
    published: Receipt | None = None
    if receipt.stored and storage.ensure_durable(name):  # its writer has also published its page errors
        published = receipt_of(dataset, name)
        _check_same_job(name, published, receipt)  # before the claim, which would keep another load from landing it
    if receipt.job_id is not None:  # so that no other load can publish it
        by = dataset.ledger.claim_landing(receipt.kind, receipt.job_id, load_id)
        if by != load_id:
            raise JobClaimed(by)
    is_first = False
    if published is None:
        if dataset.ledger.done(load_id) is not None:
            return Published(_landed_meanwhile(dataset, load_id), is_first=False)
        dataset.slots.announce(intent)
        before = storage.read(errors_name)
        if errors is not None:
            _replace(storage, errors_name, errors, scratch)
        elif before is not None:
            storage.delete(errors_name)  # from a run that died before its commit and had a different account
        is_first = not receipt.stored or publish_documents(name)
        published = receipt if is_first else receipt_of(dataset, name)
        _settle_errors(storage, errors_name, published, errors if is_first else before, scratch)
        _check_same_job(name, published, receipt)
    if was_refused and published.stored:  # before the done record, after which no run looks at them again
        remove_refused(dataset, load_id)
    done = finish(dataset, intent, published)  # without documents, the done record is the commit
    if was_refused and not published.stored:
        remove_refused(dataset, load_id)
    return Published(Receipt.from_dict(done.receipt), is_first)


def _settle_errors(storage: Storage, name: str, winner: Receipt, errors: bytes | None, scratch: Path) -> None:
    """Make the page errors those of the load that was published, if another writer has replaced or removed them.

    `winner` is the receipt of that load. `errors` are the page errors of its writer as far as this writer knows them.
    """
    if not winner.has_page_errors:
        if storage.exists(name):
            storage.delete(name)
    elif errors is not None and _belongs_to(errors, winner) and not _belongs_to(storage.read(name), winner):
        _replace(storage, name, errors, scratch)


def _replace(storage: Storage, name: str, data: bytes, scratch: Path) -> None:
    ready = scratch / "page_errors.parquet"
    ready.write_bytes(data)
    storage.replace(name, ready)


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


def _page_errors(staged: Staged) -> bytes | None:
    """Return the file of the page errors of a staged load, or None if it has none."""
    if not staged.account.rows:
        return None
    receipt = staged.receipt
    rows = [_error_row(row, receipt) for row in staged.account.rows]
    path = staged.written.path.with_name("page_errors.parquet")
    footer = json.dumps(receipt.to_dict(files=False)).encode()
    return parquet.write_table(path, arrays.table(schemas.PAGE_ERRORS, rows), footer).path.read_bytes()


def _belongs_to(errors: bytes | None, receipt: Receipt) -> bool:
    """Return whether this file of page errors was written with a load that has this receipt."""
    found = None if errors is None else parquet.read_receipt(BytesIO(errors))
    return found is not None and Receipt.from_dict(found) == replace(receipt, files=())


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
