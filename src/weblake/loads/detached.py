"""Loads that one process starts and another process lands, possibly hours later and on another machine.

The list of URLs that was sent is stored with the load (sent_lists.py), so the landing process can detect missing URLs.
"""

from __future__ import annotations

from weblake.api.job_kinds import JOB_KINDS, job_kind
from weblake.dataset.root import Dataset, LandedLoad
from weblake.errors import AskPerson, JobGone, Remedy
from weblake.loads import load
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest, Terms


def collect(client: FlowRunner, dataset: Dataset, load_id: str, terms: Terms | None = None) -> LandedLoad:
    """Wait for a load that was started by `intents.start_load`, land it, and return it; otherwise as `load.land`.

    Raises:
        AskPerson: The ledger has no record that its job was started, or the job was started at a service other than
            the client's.
        StorageRefused: The list of URLs that was sent is missing or damaged.
        WeblakeError: As `load.land`.
    """
    request = _request_of(dataset, load_id)
    try:
        return load.land(client, dataset, request, terms)
    except JobGone as error:
        intent = dataset.ledger.intent(load_id)
        service = None if intent is None else dataset.ledger.service_of(intent)
        if service in (None, client.service):
            raise
        raise AskPerson(
            f"Job {request.job_id} of load {load_id} was started at {service}, and {client.service} has no such job.",
            hint=Remedy("Set {base_url} to the service that it was started at."),
        ) from error


def _request_of(dataset: Dataset, load_id: str) -> LoadRequest:
    intent, job = dataset.ledger.intent(load_id), dataset.ledger.job(load_id)
    if intent is None or job is None or intent.kind not in JOB_KINDS:
        raise AskPerson(
            f"{dataset.storage.url} has no record that load {load_id} was started.",
            hint=Remedy(
                "Give the root that it was started in. If its record is lost, land its job by its id, with {land}; "
                "starting it again is paid again."
            ),
        )
    return LoadRequest(
        kind=job_kind(intent.kind).name,
        load_id=load_id,
        job_id=job.job_id,
        partition=intent.partition,
    )
