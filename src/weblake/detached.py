"""A load that one process starts and another one lands, perhaps hours later and on another machine.

Whoever lands a batch has to know what was sent, or nobody could tell what is missing. So the list goes beside the
ledger before the job is started, and away once the load has landed. It holds URLs and nothing else of the request.

Imports: errors, layout, ledger, load, orders, publishing, staging.
"""

from __future__ import annotations

import gzip

import msgspec

from weblake import layout, load, publishing
from weblake.download import Runs
from weblake.errors import AskPerson, JobGone, StorageRefused
from weblake.ledger import Intent, Job
from weblake.orders import Order, Terms
from weblake.publishing import Dataset, Landing


def detach(
    client: Runs, dataset: Dataset, order: Order, *, max_credits: float | None = None, until: float | None = None
) -> tuple[Intent, Job]:
    """Starts a batch or crawl that `collect` lands; asked again it finds what is on record. Raises as `load.begin`."""
    if order.submitted is not None:
        last = dataset.ledger.last_start(order.load_id)
        if last is None or last.void:  # a start that was sent has the list that it was sent with
            _keep(dataset, order.load_id, order.submitted)
    intent, job, _ = load.begin(client, dataset, order, max_credits=max_credits, until=until)
    return intent, job


def collect(
    client: Runs, dataset: Dataset, load_id: str, terms: Terms | None = None, watch: load.Watch | None = None
) -> Landing:
    """Waits for a load that was started by `detach`, lands it, and returns its receipt; otherwise as `load.land`.

    Raises:
        AskPerson: It is not on record that its job was started, or it was at another service than the client's.
        StorageRefused: The list of what was sent is gone.
        WeblakeError: As `load.land`.
    """
    order = _order(dataset, load_id)
    try:
        landing = load.land(client, dataset, order, terms, watch)
    except JobGone as error:
        intent = dataset.ledger.intent(load_id)
        if intent is None or intent.service in (None, client.service):
            raise
        raise AskPerson(
            f"Job {order.job_id} of load {load_id} was started at {intent.service}, and {client.service} has no such "
            "job.",
            hint="Point the connection to the service that it was started at.",
        ) from error
    dataset.storage.delete(layout.submitted_path(load_id))
    return landing


def _order(dataset: Dataset, load_id: str) -> Order:
    intent, job = dataset.ledger.intent(load_id), dataset.ledger.job(load_id)
    if intent is None or job is None or intent.kind not in ("batch_scrape", "crawl"):
        raise AskPerson(
            f"It is not on record at {dataset.storage.url} that load {load_id} was started.",
            hint="Run again what starts it: it finds out, and buys nothing twice.",
        )
    return Order(
        kind="crawl" if intent.kind == "crawl" else "batch_scrape",
        load_id=load_id,
        job_id=job.job_id,
        submitted=_submitted(dataset, intent, job),
        partition=intent.partition,
    )


def _keep(dataset: Dataset, load_id: str, urls: tuple[str, ...]) -> None:
    with dataset.storage.scratch() as scratch:
        file = scratch / "submitted.json.gz"
        file.write_bytes(gzip.compress(msgspec.json.encode(urls), 3, mtime=0))
        dataset.storage.replace(layout.submitted_path(load_id), file)


def _submitted(dataset: Dataset, intent: Intent, job: Job) -> tuple[str, ...] | None:
    if intent.submitted is None or publishing.find(dataset, intent.load_id) is not None:
        return None
    name = layout.submitted_path(intent.load_id)
    data = dataset.storage.read(name)
    if data is None:
        raise StorageRefused(
            f"The list of what load {intent.load_id} submitted is gone ({name} of {dataset.storage.url}).",
            hint=f"Restore it, or land what the service has of job {job.job_id} with `weblake land`.",
        )
    try:
        return msgspec.json.decode(gzip.decompress(data), type=tuple[str, ...])
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise StorageRefused(
            f"The list of what load {intent.load_id} submitted is damaged ({name} of {dataset.storage.url}).",
            hint=f"Restore it, or land what the service has of job {job.job_id} with `weblake land`.",
        ) from error
