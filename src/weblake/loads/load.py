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
from pathlib import Path

from weblake import events
from weblake.api.job_kinds import JOB_KINDS
from weblake.credentials import redact_error
from weblake.dataset import landed_loads
from weblake.dataset.records import Intent, Job
from weblake.dataset.root import Dataset, LandedLoad
from weblake.errors import (
    AskPerson,
    DeadlineExceeded,
    JobGone,
    LoadIncomplete,
    Remedy,
    RetryLater,
    StorageRefused,
    WeblakeError,
)
from weblake.jobs import cancelling
from weblake.jobs.polling import SEEN_TRIES, JobRef, OverBudget, wait
from weblake.jobs.retry import RetryPolicy, with_message
from weblake.loads import list_sources, publishing, recovery, sent_lists, starts
from weblake.loads.accounting import Reconciler
from weblake.loads.completeness import (
    another_job_remedy,
    completeness_error,
    limit_error,
    record_stopped,
    require_documents,
    start_afresh_remedy,
    stopped_at,
)
from weblake.loads.download import FlowRunner
from weblake.loads.intents import StartedLoad, complete_remedy, recorded_request, start_load
from weblake.loads.load_request import LoadRequest, Terms
from weblake.loads.staging import Staged, stage_document, stage_job
from weblake.receipt import Receipt

#: Seconds in which a 404 means "not there yet": for a job just started, and for a job started elsewhere.
JUST_STARTED_S, ELSEWHERE_S = 10.0, 3.0
#: Seconds that a job has at a limit to be cancelled and to end, and as many again at its time limit to be downloaded.
GRACE_S = 900.0


def land(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    terms: Terms | None = None,
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

    def on_job(job_id: str) -> None:
        nonlocal known
        known = replace(known, job_id=job_id)

    observe, begun = client.retry.observe, time.monotonic()
    with events.of_load(request.load_id):
        landing: LandedLoad | None = None
        failure: BaseException | None = None
        try:
            observe(events.LoadStarted(kind=request.kind))
            landing = _land(client, dataset, request, terms or Terms(), on_job, started_load)
            return landing
        except BaseException as error:
            failure = error
            raise
        finally:
            observe(_end_event(known, landing, failure, time.monotonic() - begun))
            if isinstance(failure, JobGone) and failure.receipt is None and known.job_id is not None:
                failure.remedy = failure.remedy.followed_by(another_job_remedy(known))
            if isinstance(failure, WeblakeError):
                redact_error(failure, client.redact)  # it may quote the service
                complete_remedy(failure, dataset, request, known.job_id)
                failure.receipt = failure.receipt or known


def collect(client: FlowRunner, dataset: Dataset, load_id: str, terms: Terms | None = None) -> LandedLoad:
    """Wait for a load that was started by `intents.start_load`, land it, and return it; otherwise as `land`.

    Raises:
        AskPerson: The ledger has no record that its job was started, or the job was started at a service other than
            the client's.
        StorageRefused: The list of URLs that was sent is missing or damaged.
        WeblakeError: As `land`.
    """
    request = recorded_request(dataset, load_id)
    if request is None or request.kind not in JOB_KINDS:
        raise AskPerson(
            f"{dataset.storage.url} has no record that load {load_id} was started.",
            hint=Remedy(
                "Give the root that it was started in. If its record is lost, land its job by its id, with {land}; "
                "starting it again is paid again."
            ),
        )
    try:
        return land(client, dataset, request, terms)
    except JobGone as error:
        intent = dataset.ledger.intent(load_id)
        service = None if intent is None else dataset.ledger.service_of(intent)
        if service in (None, client.service):
            raise
        raise AskPerson(
            f"Job {request.job_id} of load {load_id} was started at {service}, and {client.service} has no such job.",
            hint=Remedy("Set {base_url} to the service that it was started at."),
        ) from error


def _end_event(
    known: Receipt, landing: LandedLoad | None, failure: BaseException | None, seconds: float
) -> events.LoadEnd:
    if landing is not None:
        receipt, before = landing.receipt, landing.landed_at is not None
        return events.LoadFinished(
            kind=known.kind, job_id=receipt.job_id, receipt=receipt, landed_before=before, seconds=seconds
        )
    error, counts = type(failure).__name__, failure.receipt if isinstance(failure, WeblakeError) else None
    if counts is None:
        return events.LoadFailed(kind=known.kind, job_id=known.job_id, error=error, seconds=seconds)
    return events.LoadRefused(kind=known.kind, job_id=counts.job_id, receipt=counts, error=error, seconds=seconds)


def find_landed(dataset: Dataset, request: LoadRequest, terms: Terms) -> LandedLoad | None:
    """Return a landed load, or publish and return a refused one if the terms now allow it; None if neither exists.

    A request of which no URL is due has landed.

    Raises:
        LoadIncomplete: The load has landed, and all of its pages failed.
        StorageRefused: The load has landed, and a file of it is gone, although no later load has replaced it.
    """
    if request.nothing_due:
        receipt = Receipt(request.load_id, request.kind, status="completed", complete=True, credits_used=0.0)
        return LandedLoad(replace(receipt, fresh=request.fresh or 0))
    job = None if request.job_id is None else (request.kind, request.job_id)
    earlier = recovery.recover(dataset, request.load_id, job)
    if earlier is None and terms.allow_partial:
        with suppress(publishing.JobClaimed):  # the caller then lands the job as the other load, with the service
            refused = publishing.promote(dataset, request.load_id)
            earlier = None if refused is None else LandedLoad(refused)
    if earlier is None:
        return None
    intent = dataset.ledger.intent(request.load_id) if request.kind == "batch_scrape" else None
    if intent is not None:  # a run that died after the commit did not remove its lists
        _drop_lists(dataset, request, intent.load_id, intent.urls)
    landed_loads.require_files(dataset, earlier.receipt)
    return require_documents(earlier)


def _land(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    terms: Terms,
    on_job: Callable[[str], None],
    started_load: StartedLoad | None = None,
) -> LandedLoad:
    until = time.monotonic() + terms.timeout_s
    if started_load is None:
        earlier = find_landed(dataset, request, terms)
        if earlier is not None:
            return earlier
        started_load = start_load(client, dataset, request, max_credits=terms.max_credits, until=until, ends_at=until)
    intent, job, document = started_load
    ref = JobRef(job.kind, job.job_id)
    on_job(job.job_id)
    if terms.ends_job:
        until = time.monotonic() + terms.timeout_s - job.age_s()
    original = _job_as_started(dataset, request, job)
    try:
        sent = sent_lists.list_of_job(dataset, request, intent, original, client.retry.observe)
    except StorageRefused:
        earlier = find_landed(dataset, request, terms)  # another process may have landed it and removed the list
        if earlier is None:
            raise
        return earlier
    late, used = False, 0.0

    def read(intent: Intent, scratch: Path) -> LandedLoad:
        reconciler = Reconciler(sent, original.rejected)
        staged = stage_job(client, intent, ref, reconciler, scratch, until=until)
        passed = (late, used)
        if staged.receipt.status == "cancelled" and not any(passed):  # an earlier run or a trigger may have done it
            passed = stopped_at(dataset.ledger.stopped(job.load_id), terms)
        landing = _publish_or_refuse(client, dataset, intent, staged, terms, late=passed[0], used=passed[1])
        _drop_lists(dataset, request, original.load_id, original.urls, intent.urls)
        return landing

    with dataset.storage.scratch() as scratch:  # before the wait: a root that is deleted meanwhile is not recreated
        if document is not None or request.kind not in JOB_KINDS:
            raw = _read_document(client, job, document)
            staged = stage_document(intent, ref, Reconciler(request.submitted), scratch, raw)
            return _publish_or_refuse(client, dataset, intent, staged, terms)
        used = _wait_for_end(client, dataset, request, job, terms, until)
        late = time.monotonic() >= until
        if terms.ends_job or terms.reads_late:  # the time limit applies to the job only; its results are landed anyway
            until = max(until, time.monotonic() + GRACE_S)
        try:
            return read(intent, scratch)
        except publishing.JobClaimed as other:
            by = other.load_id
    return _land_as(dataset, by, job, read)


def _read_document(client: FlowRunner, job: Job, document: bytes | None) -> bytes:
    """Return the document of a single page: that of the response to its start if given, otherwise read it."""
    asked = time.monotonic()
    raw = document if document is not None else client.run(starts.read_scrape(job.job_id, client.retry))
    seconds = time.monotonic() - asked
    client.retry.observe(
        events.ChunkRead(kind=job.kind, job_id=job.job_id, documents=1, bytes=len(raw), seconds=seconds)
    )
    return raw


def _land_as(dataset: Dataset, by: str, job: Job, read: Callable[[Intent, Path], LandedLoad]) -> LandedLoad:
    """Land a job as the load that has claimed it, because the process that claimed it may have died."""
    landing, its = recovery.recover(dataset, by), dataset.ledger.intent(by)
    if landing is not None:
        return require_documents(landing)
    if its is None:
        raise StorageRefused(
            f"Job {job.job_id} is being landed as load {by}, whose intent is not on record.",
            hint="Nothing was published. Restore `_weblake/ledger` from a backup.",
        )
    with dataset.storage.scratch() as scratch:
        return read(its, scratch)


def _job_as_started(dataset: Dataset, request: LoadRequest, job: Job) -> Job:
    """Return the job record of the load that started the job; it may be another load if the job is landed by its id."""
    owner = dataset.ledger.owner(job.kind, job.job_id) if request.start is None and job.urls is None else None
    theirs = dataset.ledger.job(owner) if owner is not None and owner != job.load_id else None
    return theirs or job


def _drop_lists(dataset: Dataset, request: LoadRequest, load_id: str, *digests: str | None) -> None:
    """Remove the stored lists of a load that has landed: that of the request, and those with these digests."""
    sent_lists.drop(dataset.storage, load_id, (sent_lists.digest_of_request(request), *digests))
    if request.source is not None:
        list_sources.forget(dataset, request.source, request.load_id)


def _wait_for_end(
    client: FlowRunner,
    dataset: Dataset,
    request: LoadRequest,
    job: Job,
    terms: Terms,
    until: float,
) -> float:
    """Wait for the end of the job; cancel it at a limit of the terms, which `limit_error` reports later.

    Return the credits with which the job passed `max_credits`, or 0: a service may report fewer of a cancelled job.
    """
    ref = JobRef(request.kind, job.job_id)
    unseen = JUST_STARTED_S - job.age_s() if request.start is not None else ELSEWHERE_S
    flow = wait(
        ref,
        client.retry,
        until=until,
        unseen_s=unseen,
        poll_s=terms.poll_s,
        max_credits=terms.max_credits,
        until_deadline=terms.ends_job,
    )
    try:
        client.run(flow)
        return 0.0
    except OverBudget as over:
        used = over.used
    except DeadlineExceeded:
        if not terms.ends_job:
            raise
        used = 0.0
    until = max(until, time.monotonic() + GRACE_S)
    record_stopped(dataset, job.load_id, terms, used)
    _cancel(client, ref, until)
    client.run(wait(ref, client.retry, until=until, unseen_s=0.0, poll_s=terms.poll_s))
    return used


def _cancel(client: FlowRunner, ref: JobRef, until: float) -> None:
    """Cancel a job that has passed a limit, with as many tries as a poll has: until then it costs more."""
    try:
        client.run(cancelling.cancel(ref, client.retry, RetryPolicy(tries=SEEN_TRIES, cap_s=30.0, until=until)))
    except RetryLater as error:
        raise with_message(
            error,
            f"{ref} has passed its limit and was not cancelled, so it goes on: {error.message}",
            Remedy("{run_again} to cancel it."),
        ) from error


def _publish_or_refuse(
    client: FlowRunner,
    dataset: Dataset,
    intent: Intent,
    staged: Staged,
    terms: Terms,
    *,
    late: bool = False,
    used: float = 0.0,
) -> LandedLoad:
    """Publish a staged load and return it; or keep it as a refused load and raise the reason."""
    account, observe = staged.account, client.retry.observe
    trouble = limit_error(staged.receipt, terms, late=late, used=used) or completeness_error(staged, terms)
    if account.submitted == 0 and account.stored == 0:
        raise LoadIncomplete(
            f"Job {staged.receipt.job_id} ended without attempting a single page; nothing was published.",
            hint=Remedy("Check the URL and the limits of the crawl.").followed_by(start_afresh_remedy(staged.receipt)),
        )
    if trouble is not None and not terms.allow_partial:
        if publishing.refuse(dataset, intent, staged):
            observe(events.LoadAccounted(receipt=staged.receipt))
        trouble.receipt = staged.receipt
        raise trouble
    begun = time.monotonic()
    receipt, is_first = publishing.publish(dataset, intent, staged)
    if is_first:  # otherwise the run that has published the load reports it
        observe(events.LoadAccounted(receipt=receipt))
        observe(
            events.FilesPublished(
                paths=tuple(file.path for file in receipt.files),
                rows=sum(file.rows for file in receipt.files),
                bytes=sum(file.bytes for file in receipt.files),
                seconds=time.monotonic() - begun,
            )
        )
        if staged.unrendered:
            observe(events.LoadMessage(load_id=receipt.load_id, text=staged.unrendered))
    return require_documents(LandedLoad(receipt), account.rows)
