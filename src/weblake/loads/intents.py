"""Record the intent of a load, and start its job or find the job that an earlier run started."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TypeAlias, cast

from weblake import events
from weblake.api.job_kinds import JOB_KINDS
from weblake.dataset.records import Intent, Job, new_nonce, utc_now
from weblake.dataset.root import Dataset
from weblake.errors import Remedy, StorageRefused, WeblakeError
from weblake.loads import list_sources, sent_lists, starts
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import Kind, LoadRequest, check_cost

#: The ledger's name of the embedded service, which costs nothing.
_EMBEDDED = "embedded"

#: The result of `start_load`: the intent, the job, and the document if the start response contained it.
StartedLoad: TypeAlias = tuple[Intent, Job, bytes | None]


def start_load(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    *,
    max_credits: float | None = None,
    until: float | None = None,
    ends_at: float | None = None,
) -> StartedLoad:
    """Record the intent and start its job, or return the job that an earlier run started.

    `until` is the deadline of the reads before and after a start, up to which they wait for a pause that the service
    names; `ends_at` is the load's time limit, which ends the start, too. Both are in monotonic seconds.
    The client's observer gets the possible cost of a crawl without a limit as a LoadMessage, before its start.

    Raises:
        CreditsExhausted: The job is not started yet, and would cost more than `max_credits`.
        StorageRefused: The root cannot hold the load; nothing was paid.
        DeadlineExceeded: The time limit passed; what may have been started stays on record.
        WeblakeError: The service refused the start, or it is unknown whether the job was started.
    """
    try:
        intent, is_new, request = _find_or_record_intent(client, dataset, request, max_credits, until)
        ledger = dataset.ledger
        if request.start is None:
            assert request.job_id is not None
            at = utc_now()
            ledger.claim_job(request.kind, request.job_id, request.load_id)
            job = Job(load_id=request.load_id, job_id=request.job_id, kind=request.kind, at=at, writer=new_nonce())
            return intent, ledger.record_job(job), None
        starter = starts.JobStarter(
            request, intent, ledger, client.retry, is_new=is_new, until=until, ends_at=ends_at, service=client.service
        )
        if request.source is not None:
            starter.note_list = partial(list_sources.note, dataset.storage, request.source, request.load_id)
        with events.of_load(request.load_id):
            job, document = client.run(starter.run())
    except WeblakeError as error:
        complete_remedy(error, dataset, request)
        raise
    return intent, job, document


def recorded_request(dataset: Dataset, load_id: str) -> LoadRequest | None:
    """Return the request of a load whose job is on record, without what starts a job; None if no job is on record."""
    intent, job = dataset.ledger.intent(load_id), dataset.ledger.job(load_id)
    if intent is None or job is None:
        return None
    return LoadRequest(cast("Kind", intent.kind), load_id, job_id=job.job_id, partition=intent.partition)


def _find_or_record_intent(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    max_credits: float | None,
    until: float | None,
) -> tuple[Intent, bool, LoadRequest]:
    """Return the intent of a load, whether this call has recorded it, and the request as it is sent.

    The cost of a start that is to come is checked.
    """
    ledger = dataset.ledger
    intent = ledger.intent(request.load_id)
    request = _as_chosen(dataset, request, intent)
    if max_credits is not None:
        last = ledger.last_start(request.load_id)
        if last is None or last.void:  # a started job is already paid for, so the limit does not apply
            check_cost(request.pages, request.price, max_credits)
    possible = find_possible_cost(client, dataset, request)
    if possible is not None:
        text = f"{possible} Give a `limit`, or `max_credits`."
        client.retry.observe(events.LoadMessage(load_id=request.load_id, text=text))
    if intent is not None:
        return intent, False, request
    dataset.preflight(request.partition, request.load_id)
    preflight = client.run(starts.check_service(client.retry, until)) if request.start is not None else None
    ours = new_intent(request, client.service, preflight)
    if request.fresh is not None:  # what is due is chosen once: later runs send this list
        sent_lists.keep(dataset.storage, request.load_id, request.submitted or ())
    intent = ledger.record_intent(ours)
    return intent, intent.writer == ours.writer, _as_chosen(dataset, request, intent)


def _as_chosen(dataset: Dataset, request: LoadRequest, intent: Intent | None) -> LoadRequest:
    """Return the request with the list of URLs that were due when the intent was recorded, if that was asked."""
    if intent is None or intent.fresh is None or request.with_urls is None or intent.urls is None:
        return request
    if intent.urls == sent_lists.digest_of_request(request):
        return request
    return request.sending(sent_lists.read(dataset.storage, request.load_id, intent.urls))


def find_possible_cost(client: FlowRunner, dataset: Dataset, request: LoadRequest) -> str | None:
    """Return a sentence with the cost that a crawl without a limit may reach; None if it starts no paid job.

    It starts none if the load has landed or was started before, or if the service is the embedded one.
    """
    if not request.unlimited_pages or client.service == _EMBEDDED:
        return None
    last = dataset.ledger.last_start(request.load_id)
    if (last is not None and not last.void) or dataset.ledger.done(request.load_id) is not None:
        return None
    pages, price = request.unlimited_pages, request.unlimited_pages * request.price
    return f"This crawl has no limit: it may reach {pages:,} pages and cost up to {price:,.10g} credits."


def complete_remedy(error: WeblakeError, dataset: Dataset, request: LoadRequest, job_id: str | None = None) -> None:
    """Add to the remedy of an error what keeps the user from paying for a load twice; without effect if repeated.

    With `new` again, the same call would start another job; so would the same call with another root.
    """
    if request.new_key is not None and _is_open(dataset, request):
        named = Remedy("This load goes on with {key} {new_key} in place of {new}.", {"new_key": request.new_key})
        if named.template not in error.remedy.template:
            error.remedy = named.followed_by(error.remedy)
    if request.start is None or "{another_root}" not in error.remedy.template:
        return
    with suppress(WeblakeError):
        job = dataset.ledger.job(request.load_id)
        job_id = job_id if job is None else job.job_id
    if job_id is not None and request.kind in JOB_KINDS:
        more = Remedy(
            "Job {job_id} is paid for: to use another root, land it there by its id, with {land}.", {"job_id": job_id}
        )
    elif job_id is not None or _may_have_started(dataset, request):
        more = Remedy("Its job may be paid for: in another root, the same request is paid again.")
    else:
        return
    if more.template not in error.remedy.template:
        error.remedy = error.remedy.followed_by(more)


def _is_open(dataset: Dataset, request: LoadRequest) -> bool:
    """Return whether a load has an intent and has not landed, or has records that cannot be read."""
    try:
        return dataset.ledger.intent(request.load_id) is not None and dataset.ledger.done(request.load_id) is None
    except StorageRefused:
        return True


def _may_have_started(dataset: Dataset, request: LoadRequest) -> bool:
    """Return whether a load has a start that is not known to have been without effect, or an unreadable record."""
    try:
        last = dataset.ledger.last_start(request.load_id)
        return last is not None and not last.void
    except StorageRefused:
        return True


def new_intent(request: LoadRequest, service: str, preflight: starts.Preflight | None) -> Intent:
    """Return the intent of a request; `preflight` is None if no job will be started."""
    slot = request.slot
    return Intent(
        writer=new_nonce(),
        load_id=request.load_id,
        kind=request.kind,
        endpoint=request.endpoint or "",
        service=service,
        created_at=utc_now(),
        request_sha256=request.request_sha,
        submitted=len(request.submitted) if request.submitted is not None else None,
        first_target=request.first_target,
        urls=sent_lists.digest_of_request(request),
        fresh=request.fresh,
        partition=dict(request.partition) if request.partition is not None else None,
        slot=slot.name if slot else None,
        slot_has_partition=slot.has_partition if slot else False,
        generation=slot.generation if slot else 0,
        run=slot.run if slot else None,
        occasion=slot.occasion if slot else None,
        task=slot.task if slot else (),
        page_limit=request.page_limit,
        new_key=request.new_key,
        replay=None if preflight is None else preflight.replays,
        clock_ahead_s=None if preflight is None else preflight.clock_ahead_s,
    )
