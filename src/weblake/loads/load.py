"""The story: an order in, one Parquet file out, exactly once, paid once.

    order -> intent on record -> start -> job id on record -> wait -> chunks -> one file on scratch -> account
          -> published in one step -> receipt

Every line of it may be the last one before a crash: the next run begins at the top and finds in the ledger, or under
the file's final name, what has been done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
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
from weblake.loads.accounting import Tally
from weblake.loads.crawl_costs import find_possible_cost
from weblake.loads.download import Runs
from weblake.loads.load_request import Order, Terms, check_cost
from weblake.loads.publishing import Dataset, Landing
from weblake.loads.staging import Identity, Staged, stage_document, stage_job
from weblake.receipt import Receipt
from weblake.remedies import Remedy
from weblake.steps import Reply

#: Seconds in which a job just started may not be found yet, and in which one started elsewhere may not.
JUST_STARTED_S, ELSEWHERE_S = 10.0, 3.0
#: Seconds that a job which is cancelled at its time limit has to end, and what it had scraped to land.
SETTLE_S = 900.0
#: Missing URLs that a message names.
NAMED = 3
#: What is said where the caller's request is another one than the job's.
CHANGED = "has changed since the job was started; landing what was bought"


#: What `begin` returns: the intent, the job, and the document where the start's own reply held it.
Begun: TypeAlias = tuple[Intent, Job, bytes | None]

#: Logs messages for people where the caller does not take them.
note: Callable[[str], None] = logging.getLogger("weblake.landing").warning


@dataclass(frozen=True, slots=True)
class Watch:
    """Who wants to know how it goes; each is called now and then, from the thread that lands."""

    #: With the head of each poll: status, total, completed, creditsUsed.
    polled: Callable[[Mapping[str, object]], None] = lambda head: None
    #: With the documents stored so far.
    chunk_read: Callable[[int], None] = lambda stored: None
    #: With the job's id, as soon as it is on record.
    started: Callable[[str], None] = lambda job_id: None
    #: With a message for people about this load, such as that its list of URLs has changed since it was started.
    noted: Callable[[str], None] = note


def begin(
    client: Runs,
    dataset: Dataset,
    order: Order,
    *,
    max_credits: float | None = None,
    until: float | None = None,
    noted: Callable[[str], None] = note,
) -> Begun:
    """Puts the intent on record and starts its job, or finds what an earlier run did of both.

    `until` is when the reads before and after a start are given up, in monotonic seconds; a start has its own deadline.
    `noted` is called with what a crawl that nothing limits may cost, before it is started.

    Raises:
        CreditsExhausted: It is not started yet, and would cost more than `max_credits`.
        StorageRefused: The root cannot hold the load; nothing was paid.
        WeblakeError: The service refused, or nobody can tell whether the start happened.
    """
    ledger = dataset.ledger
    if max_credits is not None:
        last = ledger.last_start(order.load_id)
        if last is None or last.void:  # what has been started is paid for: a limit has no say any more
            check_cost(order.pages, order.price, max_credits)
    possible = find_possible_cost(client, dataset, order)
    if possible is not None:
        noted(f"{possible} Give a `limit`, or `max_credits`.")
    intent, is_new = ledger.intent(order.load_id), False
    if intent is None:
        dataset.preflight(order.partition, order.load_id)
        replay = client.run(starts.preflight(client.retry, until)) if order.start is not None else None
        ours = _intent(order, client.service, replay)
        intent = ledger.begin(ours)
        is_new = intent.writer == ours.writer
    if order.start is None:
        assert order.job_id is not None
        at = utc_now()
        ledger.own(order.kind, order.job_id, order.load_id)
        job = Job(load_id=order.load_id, job_id=order.job_id, kind=order.kind, at=at, writer=new_nonce())
        return intent, ledger.record_job(job), None
    plan = starts.Plan(
        intent,
        order.start,
        order.endpoint,
        is_new,
        until,
        client.service,
        request_sha256=order.request_sha,
        first_target=order.first_target,
        keep_urls=partial(_keep_urls, dataset, order),
        rebuild=partial(_rebuilt, dataset, order, intent),
    )
    job, document = client.run(starts.start(plan, ledger, client.retry))
    return intent, job, document


def _keep_urls(dataset: Dataset, order: Order) -> str | None:
    """Store the list of URLs of a batch before it is sent."""
    if order.with_urls is None or order.submitted is None:
        return None
    if order.source is not None:
        list_sources.note(dataset, order.source, order.load_id)
    return sent_lists.keep(dataset.storage, order.load_id, order.submitted)


def _drop_lists(dataset: Dataset, order: Order, intent: Intent, job: Job) -> None:
    """Remove what was kept of the list of a load that has landed."""
    if job.urls is not None:  # and what a run has left that died before it recorded its start
        sent_lists.drop(dataset.storage, job.load_id, (job.urls, intent.urls, _digest_of(order)))
    elif intent.submitted is not None:
        sent_lists.drop(dataset.storage, order.load_id)
    if order.source is not None:
        list_sources.forget(dataset, order.source, order.load_id)


def _digest_of(order: Order) -> str | None:
    """Return the digest of the list of a batch."""
    return sent_lists.digest_of(order.submitted) if order.with_urls is not None and order.submitted else None


def _rebuilt(dataset: Dataset, order: Order, intent: Intent, start: Start) -> Callable[[str], Operation[object]] | None:
    """Return what builds the request of a start that is on record; None where it had other options than the order."""
    sent = start.request_sha256 or intent.request_sha256
    if sent == order.request_sha:
        return order.start
    if start.urls is None or order.with_urls is None:
        return None
    same = order.with_urls(sent_lists.read(dataset.storage, order.load_id, start.urls))
    return same.start if same.request_sha == sent else None


def land(
    client: Runs,
    dataset: Dataset,
    order: Order,
    terms: Terms | None = None,
    watch: Watch | None = None,
    *,
    begun: Begun | None = None,
) -> Landing:
    """Lands an order and returns its receipt.

    A load that has landed before is not touched, and the service is not called. A load that an earlier run left
    half-way is finished. `begun` is what `begin` has just returned for this order, where the caller has called it
    after `landed` has found nothing: neither is looked up again.

    Raises:
        LoadIncomplete: It does not add up; nothing was published, the checked file is kept, and `receipt` has the
            counts. Also when all pages failed: then their errors were published.
        JobEnded: The job failed or was cancelled.
        DeadlineExceeded: The time limit passed; the job goes on, and the same call resumes.
        WeblakeError: What else stood in the way; the same call resumes.
    """
    known = Receipt(load_id=order.load_id, kind=order.kind, job_id=order.job_id)
    watch = watch or Watch()

    def started(job_id: str) -> None:
        nonlocal known
        known = replace(known, job_id=job_id)
        watch.started(job_id)

    try:
        return _land(client, dataset, order, terms or Terms(), replace(watch, started=started), begun)
    except WeblakeError as error:
        error.receipt = error.receipt or known
        raise


def landed(dataset: Dataset, order: Order, terms: Terms) -> Landing | None:
    """What needs no word to the service: a load that has landed, or a refused one that the terms allow now.

    Raises:
        LoadIncomplete: It has landed, and all of its pages failed.
    """
    earlier = recovery.recover(dataset, order.load_id) or _landed_as_another(dataset, order)
    if earlier is None and terms.allow_partial:
        with suppress(publishing.LandsAs):  # that one is gone on with, and needs the service
            refused = publishing.promote(dataset, order.load_id)
            earlier = None if refused is None else Landing(refused)
    if earlier is not None and order.kind == "batch_scrape":
        sent_lists.drop(dataset.storage, order.load_id)  # a run that died after the landing has left it
        if order.source is not None:
            list_sources.forget(dataset, order.source, order.load_id)
    return None if earlier is None else _checked(earlier)


def _landed_as_another(dataset: Dataset, order: Order) -> Landing | None:
    """The landing of this order's job as another load: of the two commands that can land a job, one has."""
    job = dataset.ledger.job(order.load_id)
    job_id = order.job_id or (job and job.job_id)
    return recovery.recover_job(dataset, order.kind, job_id) if job_id else None


def _land(
    client: Runs, dataset: Dataset, order: Order, terms: Terms, watch: Watch, known: Begun | None = None
) -> Landing:
    until = time.monotonic() + terms.timeout_s
    if known is None:
        earlier = landed(dataset, order, terms)
        if earlier is not None:
            return earlier
        known = begin(client, dataset, order, max_credits=terms.max_credits, until=until, noted=watch.noted)
    intent, job, document = known
    watch.started(job.job_id)
    if terms.ends_job:
        until = time.monotonic() + terms.timeout_s - intent.age_s()
    begun = _as_begun(dataset, order, job)
    try:
        sent = _sent_list(dataset, order, intent, begun, watch)
    except StorageRefused:
        earlier = landed(dataset, order, terms)  # another process that landed it meanwhile has removed the list
        if earlier is None:
            raise
        return earlier
    late = False
    found: list[Reply] = []  # the job's first chunk, where the poll that found its end brought it

    def read(intent: Intent, scratch: Path) -> Landing:
        tally = Tally(sent, begun.rejected)
        staged = stage_job(
            client,
            _identity(intent, job),
            tally,
            scratch,
            until=until,
            chunk_read=watch.chunk_read,
            first=found.pop() if found else None,
        )
        landing = _settle(dataset, intent, staged, terms, late=late)
        _drop_lists(dataset, order, intent, begun)
        return landing

    with dataset.storage.scratch() as scratch:  # before the wait: a root that vanishes meanwhile is not made anew
        if document is not None or order.kind not in JOB_KINDS:
            raw = document if document is not None else client.run(starts.read_scrape(job.job_id, client.retry))
            staged = stage_document(_identity(intent, job), Tally(order.submitted), scratch, raw)
            return _settle(dataset, intent, staged, terms)
        _wait(client, order, job, terms, watch, until, found.append)
        late = time.monotonic() >= until
        if terms.ends_job:  # the time limit is the job's; what has been paid for is landed all the same
            until = max(until, time.monotonic() + SETTLE_S)
        try:
            return read(intent, scratch)
        except publishing.LandsAs as other:
            by = other.load_id
    return _land_as(dataset, by, job, read)


def _land_as(dataset: Dataset, by: str, job: Job, read: Callable[[Intent, Path], Landing]) -> Landing:
    """Land a job as the load that has claimed it: who claimed it may be gone for good."""
    landing, its = recovery.recover(dataset, by), dataset.ledger.intent(by)
    if landing is not None:
        return _checked(landing)
    if its is None:
        raise StorageRefused(
            f"Job {job.job_id} is being landed as load {by}, whose intent is not on record.",
            hint="Nothing was published. Restore `_weblake/ledger` from a backup.",
        )
    with dataset.storage.scratch() as scratch:
        return read(its, scratch)


def _sent_list(dataset: Dataset, order: Order, intent: Intent, job: Job, watch: Watch) -> tuple[str, ...] | None:
    """Return the list of URLs that the job was started with, or None where only the service knows it.

    Raises:
        StorageRefused: It was kept, and is gone or damaged.
    """
    if order.kind != "batch_scrape":
        if order.start is not None and job.request_sha256 not in (None, order.request_sha):
            watch.noted(f"Load {order.load_id}: the request {CHANGED}.")
        return order.submitted
    urls = order.submitted
    if job.urls is None:
        if order.start is None and intent.submitted is None:
            return None
        return _list_of_an_earlier_version(dataset, order, intent, watch)
    if urls is not None and sent_lists.digest_of(urls) == job.urls:
        if job.request_sha256 != order.request_sha:
            watch.noted(f"Load {order.load_id}: the request {CHANGED}.")
        return urls
    if urls is not None:
        watch.noted(f"Load {order.load_id}: the list {CHANGED}.")
    return sent_lists.read(dataset.storage, job.load_id, job.urls)


def _as_begun(dataset: Dataset, order: Order, job: Job) -> Job:
    """Return the record of the load that started the job: another one's where the job is landed by its id."""
    owner = dataset.ledger.owner(job.kind, job.job_id) if order.start is None and job.urls is None else None
    theirs = dataset.ledger.job(owner) if owner is not None and owner != job.load_id else None
    return theirs or job


def _list_of_an_earlier_version(dataset: Dataset, order: Order, intent: Intent, watch: Watch) -> tuple[str, ...] | None:
    """Return the list of a load that was started by a weblake that kept lists only for other processes to land."""
    kept = sent_lists.read_without_digest(dataset.storage, order.load_id)
    if kept is not None:
        if order.submitted not in (None, kept):
            watch.noted(f"Load {order.load_id}: the list {CHANGED}.")
        return kept
    if order.submitted is None:
        raise sent_lists.lost(dataset.storage, order.load_id)
    if intent.request_sha256 in ("", order.request_sha):
        return order.submitted
    watch.noted(
        f"Load {order.load_id}: the request {CHANGED}. The list that was sent is not on record, so the load is "
        "accounted for by what the service attempted."
    )
    return None


def _identity(intent: Intent, job: Job) -> Identity:
    return Identity(intent.load_id, job.job_id, job.kind, intent.created())


def _wait(
    client: Runs,
    order: Order,
    job: Job,
    terms: Terms,
    watch: Watch,
    until: float,
    keep: Callable[[Reply], None],
) -> None:
    """Waits for the job's end, and brings it about where the terms say so; `_stopped` tells what that means."""
    ref = JobRef(order.kind, job.job_id)
    unseen = JUST_STARTED_S - job.age_s() if order.start is not None else ELSEWHERE_S
    flow = wait(
        ref,
        client.retry,
        until=until,
        unseen_s=unseen,
        poll_s=terms.poll_s,
        max_credits=terms.max_credits,
        progress=watch.polled,
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
        wait(ref, client.retry, until=until, unseen_s=0.0, poll_s=terms.poll_s, progress=watch.polled, keep=keep)
    )


def _settle(dataset: Dataset, intent: Intent, staged: Staged, terms: Terms, *, late: bool = False) -> Landing:
    """Publishes a staged load, or keeps it as refused and says why."""
    account = staged.account
    trouble = _stopped(staged.receipt, terms, late=late) or _trouble(staged, terms)
    if account.submitted == 0 and account.stored == 0:
        raise LoadIncomplete(
            f"Job {staged.receipt.job_id} ended without attempting a single page; nothing was published.",
            hint=Remedy("Check the URL and the limits of the crawl; {another_job} starts another one."),
        )
    if trouble is not None and not terms.allow_partial:
        publishing.refuse(dataset, intent, staged)
        trouble.receipt = staged.receipt
        raise trouble
    return _checked(Landing(publishing.publish(dataset, intent, staged)))


def _stopped(receipt: Receipt, terms: Terms, *, late: bool) -> WeblakeError | None:
    """Which limit of ours stopped the job, if one did: told by what is known now, so that a later run can tell too."""
    if receipt.status != "cancelled":
        return None  # what has ended by itself cannot be saved any more: it is paid for, and lands
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


def _trouble(staged: Staged, terms: Terms) -> WeblakeError | None:
    """Why a load may not be published as it is, if it may not."""
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


def _checked(landing: Landing) -> Landing:
    """A load without a single document is done, and still nobody's success."""
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


def _intent(order: Order, service: str, replay: bool | None) -> Intent:
    slot = order.slot
    return Intent(
        writer=new_nonce(),
        load_id=order.load_id,
        kind=order.kind,
        endpoint=order.endpoint or "",
        service=service,
        created_at=utc_now(),
        request_sha256=order.request_sha,
        submitted=len(order.submitted) if order.submitted is not None else None,
        first_target=order.first_target,
        urls=_digest_of(order),
        partition=dict(order.partition) if order.partition is not None else None,
        slot=slot.name if slot else None,
        slot_has_partition=slot.has_partition if slot else False,
        generation=slot.generation if slot else 0,
        run=slot.run if slot else None,
        occasion=slot.occasion if slot else None,
        task=slot.task if slot else (),
        replay=replay,
    )
