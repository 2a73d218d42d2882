"""Land a load: one request in, one Parquet file out, exactly once, paid once.

    request -> record intent -> start -> record job id -> wait -> download chunks -> one file on scratch -> account
          -> publish in one step -> receipt

A run may crash after any step: the next run repeats the sequence and finds in the ledger, or under the file's final
name, which steps are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from weblake.api.job_kinds import JOB_KINDS
from weblake.api.operation import Operation
from weblake.dataset.ledger import Intent, Job, Start, new_nonce, utc_now
from weblake.errors import (
    CreditsExhausted,
    DeadlineExceeded,
    JobEnded,
    JobGone,
    LoadIncomplete,
    StorageRefused,
    WeblakeError,
)
from weblake.jobs.polling import JobRef, OverBudget, wait
from weblake.loads import list_sources, publishing, recovery, sent_lists, starts
from weblake.loads.accounting import Reconciler
from weblake.loads.crawl_costs import find_possible_cost
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest, Terms, check_cost
from weblake.loads.load_request import ProgressCallbacks as ProgressCallbacks
from weblake.loads.load_request import note as note
from weblake.loads.publishing import Dataset, LandedLoad
from weblake.loads.staging import Identity, Staged, stage_document, stage_job
from weblake.receipt import Receipt
from weblake.remedies import Remedy
from weblake.steps import Response

#: Seconds in which a 404 means "not there yet": for a job just started, and for a job started elsewhere.
JUST_STARTED_S, ELSEWHERE_S = 10.0, 3.0
#: Seconds that a job cancelled at its time limit has to end and to be downloaded.
SETTLE_S = 900.0
#: Most missing URLs that a message names.
NAMED = 3
#: Message if the caller's request differs from the request that the job was started with.
CHANGED = "has changed since the job was started; landing what was sent"


#: The result of `start_load`: the intent, the job, and the document if the start response contained it.
StartedLoad: TypeAlias = tuple[Intent, Job, bytes | None]


def start_load(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    *,
    max_credits: float | None = None,
    until: float | None = None,
    on_message: Callable[[str], None] = note,
) -> StartedLoad:
    """Record the intent and start its job, or return the job that an earlier run started.

    `until` is the deadline of the reads before and after a start, in monotonic seconds; a start has its own deadline.
    `on_message` is called with the possible cost of a crawl without a limit, before its start.

    Raises:
        CreditsExhausted: The job is not started yet, and would cost more than `max_credits`.
        StorageRefused: The root cannot hold the load; nothing was paid.
        WeblakeError: The service refused the start, or it is unknown whether the job was started.
    """
    ledger = dataset.ledger
    if max_credits is not None:
        last = ledger.last_start(request.load_id)
        if last is None or last.void:  # a started job is already paid for, so the limit does not apply
            check_cost(request.pages, request.price, max_credits)
    possible = find_possible_cost(client, dataset, request)
    if possible is not None:
        on_message(f"{possible} Give a `limit`, or `max_credits`.")
    intent, is_new = ledger.intent(request.load_id), False
    if intent is None:
        dataset.preflight(request.partition, request.load_id)
        replay = client.run(starts.preflight(client.retry, until)) if request.start is not None else None
        ours = _intent(request, client.service, replay)
        intent = ledger.record_intent(ours)
        is_new = intent.writer == ours.writer
    if request.start is None:
        assert request.job_id is not None
        at = utc_now()
        ledger.own(request.kind, request.job_id, request.load_id)
        job = Job(load_id=request.load_id, job_id=request.job_id, kind=request.kind, at=at, writer=new_nonce())
        return intent, ledger.record_job(job), None
    plan = starts.Plan(
        intent,
        request.start,
        request.endpoint,
        is_new,
        until,
        client.service,
        request_sha256=request.request_sha,
        first_target=request.first_target,
        keep_urls=partial(_keep_urls, dataset, request),
        rebuild=partial(_rebuild_request, dataset, request, intent),
    )
    job, document = client.run(starts.start(plan, ledger, client.retry))
    return intent, job, document


def _keep_urls(dataset: Dataset, request: LoadRequest) -> str | None:
    """Store the list of URLs of a batch before it is sent."""
    if request.with_urls is None or request.submitted is None:
        return None
    if request.source is not None:
        list_sources.note(dataset, request.source, request.load_id)
    return sent_lists.keep(dataset.storage, request.load_id, request.submitted)


def _drop_lists(dataset: Dataset, request: LoadRequest, intent: Intent, job: Job) -> None:
    """Remove the stored lists of a load that has landed."""
    if job.urls is not None:  # also removes the list of a run that died before it recorded its start
        sent_lists.drop(dataset.storage, job.load_id, (job.urls, intent.urls, _digest_of(request)))
    elif intent.submitted is not None:
        sent_lists.drop(dataset.storage, request.load_id)
    if request.source is not None:
        list_sources.forget(dataset, request.source, request.load_id)


def _digest_of(request: LoadRequest) -> str | None:
    """Return the digest of the URL list of a batch, or None."""
    return sent_lists.digest_of(request.submitted) if request.with_urls is not None and request.submitted else None


def _rebuild_request(
    dataset: Dataset, request: LoadRequest, intent: Intent, start: Start
) -> Callable[[str], Operation[object]] | None:
    """Return a function that builds the request of a recorded start, or None if it had other options than this one."""
    sent = start.request_sha256 or intent.request_sha256
    if sent == request.request_sha:
        return request.start
    if start.urls is None or request.with_urls is None:
        return None
    same = request.with_urls(sent_lists.read(dataset.storage, request.load_id, start.urls))
    return same.start if same.request_sha == sent else None


def land(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    terms: Terms | None = None,
    callbacks: ProgressCallbacks | None = None,
    *,
    started_load: StartedLoad | None = None,
) -> LandedLoad:
    """Land a load request and return its receipt.

    If the load has landed before, nothing is changed and no request is sent. A load that an earlier run left
    unfinished is finished. `started_load` is the result of `start_load` for this request, if the caller called it
    after `find_landed` returned None: then neither is called again.

    Raises:
        LoadIncomplete: The load is not complete; nothing was published, the checked file is kept, and `receipt` has
            the counts. Also if all pages failed: then their errors were published.
        JobEnded: The job failed or was cancelled.
        DeadlineExceeded: The time limit passed; the job continues, and the same call resumes the load.
        WeblakeError: Any other error; the same call resumes the load.
    """
    known = Receipt(load_id=request.load_id, kind=request.kind, job_id=request.job_id)
    callbacks = callbacks or ProgressCallbacks()

    def on_start(job_id: str) -> None:
        nonlocal known
        known = replace(known, job_id=job_id)
        callbacks.on_start(job_id)

    try:
        return _land(client, dataset, request, terms or Terms(), replace(callbacks, on_start=on_start), started_load)
    except WeblakeError as error:
        error.receipt = error.receipt or known
        raise


def find_landed(dataset: Dataset, request: LoadRequest, terms: Terms) -> LandedLoad | None:
    """Return a landed load, or publish and return a refused one if the terms now allow it; None if neither exists.

    Raises:
        LoadIncomplete: The load has landed, and all of its pages failed.
    """
    earlier = recovery.recover(dataset, request.load_id) or _recover_by_job(dataset, request)
    if earlier is None and terms.allow_partial:
        with suppress(publishing.JobClaimed):  # the caller then lands the job as the other load, with the service
            refused = publishing.promote(dataset, request.load_id)
            earlier = None if refused is None else LandedLoad(refused)
    if earlier is not None and request.kind == "batch_scrape":
        sent_lists.drop(dataset.storage, request.load_id)  # a run that died after the commit did not remove it
        if request.source is not None:
            list_sources.forget(dataset, request.source, request.load_id)
    return None if earlier is None else _require_documents(earlier)


def _recover_by_job(dataset: Dataset, request: LoadRequest) -> LandedLoad | None:
    """Return the load as which another command has landed the request's job, or None."""
    job = dataset.ledger.job(request.load_id)
    job_id = request.job_id or (job and job.job_id)
    return recovery.recover_job(dataset, request.kind, job_id) if job_id else None


def _land(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    terms: Terms,
    callbacks: ProgressCallbacks,
    started_load: StartedLoad | None = None,
) -> LandedLoad:
    until = time.monotonic() + terms.timeout_s
    if started_load is None:
        earlier = find_landed(dataset, request, terms)
        if earlier is not None:
            return earlier
        started_load = start_load(
            client, dataset, request, max_credits=terms.max_credits, until=until, on_message=callbacks.on_message
        )
    intent, job, document = started_load
    callbacks.on_start(job.job_id)
    if terms.ends_job:
        until = time.monotonic() + terms.timeout_s - intent.age_s()
    original = _job_as_started(dataset, request, job)
    try:
        sent = _sent_list(dataset, request, intent, original, callbacks)
    except StorageRefused:
        earlier = find_landed(dataset, request, terms)  # another process may have landed it and removed the list
        if earlier is None:
            raise
        return earlier
    late = False
    found: list[Response] = []  # the first chunk, if the poll that saw the end of the job returned it

    def read(intent: Intent, scratch: Path) -> LandedLoad:
        reconciler = Reconciler(sent, original.rejected)
        staged = stage_job(
            client,
            _identity(intent, job),
            reconciler,
            scratch,
            until=until,
            on_chunk=callbacks.on_chunk,
            first=found.pop() if found else None,
        )
        landing = _publish_or_refuse(dataset, intent, staged, terms, late=late)
        _drop_lists(dataset, request, intent, original)
        return landing

    with dataset.storage.scratch() as scratch:  # before the wait: a root that is deleted meanwhile is not recreated
        if document is not None or request.kind not in JOB_KINDS:
            raw = document if document is not None else client.run(starts.read_scrape(job.job_id, client.retry))
            staged = stage_document(_identity(intent, job), Reconciler(request.submitted), scratch, raw)
            return _publish_or_refuse(dataset, intent, staged, terms)
        _wait_for_end(client, request, job, terms, callbacks, until, found.append)
        late = time.monotonic() >= until
        if terms.ends_job:  # the time limit applies to the job only; its paid results are landed anyway
            until = max(until, time.monotonic() + SETTLE_S)
        try:
            return read(intent, scratch)
        except publishing.JobClaimed as other:
            by = other.load_id
    return _land_as(dataset, by, job, read)


def _land_as(dataset: Dataset, by: str, job: Job, read: Callable[[Intent, Path], LandedLoad]) -> LandedLoad:
    """Land a job as the load that has claimed it, because the process that claimed it may have died."""
    landing, its = recovery.recover(dataset, by), dataset.ledger.intent(by)
    if landing is not None:
        return _require_documents(landing)
    if its is None:
        raise StorageRefused(
            f"Job {job.job_id} is being landed as load {by}, whose intent is not on record.",
            hint="Nothing was published. Restore `_weblake/ledger` from a backup.",
        )
    with dataset.storage.scratch() as scratch:
        return read(its, scratch)


def _sent_list(
    dataset: Dataset, request: LoadRequest, intent: Intent, job: Job, callbacks: ProgressCallbacks
) -> tuple[str, ...] | None:
    """Return the list of URLs that the job was started with, or None if only the service knows it.

    Raises:
        StorageRefused: The stored list is missing or damaged.
    """
    if request.kind != "batch_scrape":
        if request.start is not None and job.request_sha256 not in (None, request.request_sha):
            callbacks.on_message(f"Load {request.load_id}: the request {CHANGED}.")
        return request.submitted
    urls = request.submitted
    if job.urls is None:
        if request.start is None and intent.submitted is None:
            return None
        return _list_of_an_earlier_version(dataset, request, intent, callbacks)
    if urls is not None and sent_lists.digest_of(urls) == job.urls:
        if job.request_sha256 != request.request_sha:
            callbacks.on_message(f"Load {request.load_id}: the request {CHANGED}.")
        return urls
    if urls is not None:
        callbacks.on_message(f"Load {request.load_id}: the list {CHANGED}.")
    return sent_lists.read(dataset.storage, job.load_id, job.urls)


def _job_as_started(dataset: Dataset, request: LoadRequest, job: Job) -> Job:
    """Return the job record of the load that started the job; it may be another load if the job is landed by its id."""
    owner = dataset.ledger.owner(job.kind, job.job_id) if request.start is None and job.urls is None else None
    theirs = dataset.ledger.job(owner) if owner is not None and owner != job.load_id else None
    return theirs or job


def _list_of_an_earlier_version(
    dataset: Dataset, request: LoadRequest, intent: Intent, callbacks: ProgressCallbacks
) -> tuple[str, ...] | None:
    """Return the list of a load that was started by an early version, which stored lists of detached loads only."""
    kept = sent_lists.read_without_digest(dataset.storage, request.load_id)
    if kept is not None:
        if request.submitted not in (None, kept):
            callbacks.on_message(f"Load {request.load_id}: the list {CHANGED}.")
        return kept
    if request.submitted is None:
        raise sent_lists.lost(dataset.storage, request.load_id)
    if intent.request_sha256 in ("", request.request_sha):
        return request.submitted
    callbacks.on_message(
        f"Load {request.load_id}: the request {CHANGED}. The list that was sent is not on record, so the load is "
        "accounted for by what the service attempted."
    )
    return None


def _identity(intent: Intent, job: Job) -> Identity:
    return Identity(intent.load_id, job.job_id, job.kind, intent.created())


def _wait_for_end(
    client: FlowRunner,
    request: LoadRequest,
    job: Job,
    terms: Terms,
    callbacks: ProgressCallbacks,
    until: float,
    keep: Callable[[Response], None],
) -> None:
    """Wait for the end of the job; cancel it at a limit of the terms, which `_limit_error` reports later."""
    ref = JobRef(request.kind, job.job_id)
    unseen = JUST_STARTED_S - job.age_s() if request.start is not None else ELSEWHERE_S
    flow = wait(
        ref,
        client.retry,
        until=until,
        unseen_s=unseen,
        poll_s=terms.poll_s,
        max_credits=terms.max_credits,
        progress=callbacks.on_poll,
        keep=keep,
    )
    try:
        client.run(flow)
        return
    except OverBudget:
        pass
    except DeadlineExceeded:
        if not terms.ends_job:
            raise
        until = time.monotonic() + SETTLE_S
    client.run(starts.cancel(ref, client.retry))
    client.run(
        wait(ref, client.retry, until=until, unseen_s=0.0, poll_s=terms.poll_s, progress=callbacks.on_poll, keep=keep)
    )


def _publish_or_refuse(
    dataset: Dataset, intent: Intent, staged: Staged, terms: Terms, *, late: bool = False
) -> LandedLoad:
    """Publish a staged load and return it; or keep it as a refused load and raise the reason."""
    account = staged.account
    trouble = _limit_error(staged.receipt, terms, late=late) or _completeness_error(staged, terms)
    if account.submitted == 0 and account.stored == 0:
        raise LoadIncomplete(
            f"Job {staged.receipt.job_id} ended without attempting a single page; nothing was published.",
            hint=Remedy("Check the URL and the limits of the crawl; {another_job} starts another one."),
        )
    if trouble is not None and not terms.allow_partial:
        publishing.refuse(dataset, intent, staged)
        trouble.receipt = staged.receipt
        raise trouble
    return _require_documents(LandedLoad(publishing.publish(dataset, intent, staged)))


def _limit_error(receipt: Receipt, terms: Terms, *, late: bool) -> WeblakeError | None:
    """Return the error of the limit that stopped the job, or None; computed from the receipt, so a later run agrees."""
    if receipt.status != "cancelled":
        return None  # a job that ended by itself is paid for: a limit cannot save anything, so it lands
    kept = Remedy("What it had scraped is kept: {allow_partial} publishes it.")
    if terms.max_credits is not None and (receipt.credits_used or 0.0) > terms.max_credits:
        return CreditsExhausted(
            f"Job {receipt.job_id} had used {receipt.credits_used:g} credits, more than the limit of "
            f"{terms.max_credits:g}, and was cancelled.",
            hint=kept,
        )
    if late and terms.ends_job:
        return DeadlineExceeded(
            f"The time limit passed before job {receipt.job_id} ended, with {receipt.stored} documents; "
            "it was cancelled.",
            hint=kept,
        )
    return None


def _completeness_error(staged: Staged, terms: Terms) -> WeblakeError | None:
    """Return the error of a load that is too incomplete to publish, or None."""
    receipt, account = staged.receipt, staged.account
    if staged.gone is not None:
        return JobGone(
            f"Job {receipt.job_id} expired while it was read, after {receipt.stored} documents. {staged.gone.message}",
            hint=Remedy("What had been read is kept: {allow_partial} publishes it; {another_job} starts another job."),
            status=staged.gone.status,
            code=staged.gone.code,
        )
    if receipt.status != "completed":
        return JobEnded(
            f"Job {receipt.job_id} ended as {receipt.status!r} with {receipt.stored} documents."
            + (f" The service says: {staged.said}" if staged.said else ""),
            hint=Remedy("{allow_partial} publishes them; {another_job} starts another job."),
            job_status=receipt.status,
        )
    if account.foreign:
        return LoadIncomplete(
            f"Job {receipt.job_id} holds {account.foreign} documents of pages that were not submitted, "
            f"and {account.missing} that were are missing; nothing was published.",
            hint=Remedy("It may be another job than the one that was meant; {allow_partial} publishes it as it is."),
        )
    if account.missing > terms.missing_ratio * account.submitted:
        names = account.missing_urls()
        named = f": {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}" if names else ""
        return LoadIncomplete(
            f"{account.missing} of {account.submitted} pages are missing{named}; nothing was published.",
            hint=Remedy("{allow_partial} publishes what there is; {missing_ratio} sets a tolerance."),
        )
    if account.failed > terms.fail_ratio * account.submitted:
        return LoadIncomplete(
            f"{account.failed} of {account.submitted} pages failed, more than the tolerance of {terms.fail_ratio:g}; "
            "nothing was published.",
            hint=Remedy("{allow_partial} publishes what there is."),
        )
    return None


def _require_documents(landing: LandedLoad) -> LandedLoad:
    """Return the load if it has at least one document; raise LoadIncomplete otherwise."""
    receipt = landing.receipt
    if receipt.stored == 0:
        error = LoadIncomplete(
            f"None of the {receipt.submitted} pages could be stored: {receipt.failed} failed, "
            f"{receipt.robots_blocked} blocked by robots.txt, {receipt.rejected} rejected, {receipt.missing} missing.",
            hint=Remedy("The reasons are in page_errors; {another_job} tries again."),
        )
        error.receipt = receipt
        raise error
    return landing


def _intent(request: LoadRequest, service: str, replay: bool | None) -> Intent:
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
        urls=_digest_of(request),
        partition=dict(request.partition) if request.partition is not None else None,
        slot=slot.name if slot else None,
        slot_has_partition=slot.has_partition if slot else False,
        generation=slot.generation if slot else 0,
        run=slot.run if slot else None,
        occasion=slot.occasion if slot else None,
        task=slot.task if slot else (),
        replay=replay,
    )
