"""Starting a job at most once.

    intent on record -> start N on record -> POST -> job id on record

A POST whose answer was lost may have started a paid job. It is never repeated on a guess:
- the service declared true replay (`Weblake-Idempotency: replay`): the same key again is no second start;
- otherwise the time in which the request could still arrive is waited out, and the activity list is read twice.
  One job that fits is taken over; none means that it did not happen; several, or no answer, is for a person.
Contract: facts.md sections 3 and 4; proof: docs/promise.md, promise 3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_plan
from datetime import datetime, timezone

from msgspec.structs import replace

from weblake.api import models, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.operation import Operation
from weblake.api.operations import get_scrape, list_activity
from weblake.api.start_responses import Verdict
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Intent, Job, Ledger, Start, new_nonce
from weblake.errors import (
    CreditsExhausted,
    JobGone,
    MalformedReply,
    OutcomeUnknown,
    RequestRejected,
    RetryLater,
    ServiceUnavailable,
    ServiceUnreachable,
    WeblakeError,
)
from weblake.jobs.polling import JobRef
from weblake.jobs.retry import MALFORMED_TRIES, SINGLE, Course, Patience, Pause, Retry
from weblake.loads import lost_starts
from weblake.loads.load_request import Endpoint, Started, read_started
from weblake.remedies import Remedy
from weblake.steps import Flow, Reply, now, sleep

#: Seconds after its record within which a start is sent, or not at all.
PROMPT_S = 5.0
#: Seconds after a start's own deadline in which it may still take effect or show up in the activity list.
MARGIN_S = 5.0
#: Seconds between the two readings of the activity list.
BETWEEN_S = 2.0
#: Attempts for one intent, each after evidence that the one before did nothing.
MAX_STARTS = 20
#: HTTP's word for "no such operation here".
NOT_IMPLEMENTED = 501
#: Times the same key is repeated to a service that replays.
REPEATS = 6

#: HTTP's word for "it has ended already".
CONFLICT = 409


#: A job on record, and its document where the start's reply held it.
_Answer = tuple[Job, bytes | None]

_KEYS = uuid.UUID("6f1c2a52-8a57-5f0e-9a3c-5d0a3c6f7b11")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be started, for one intent."""

    intent: Intent
    #: Builds the start with an idempotency key.
    build: Callable[[str], Operation[object]]
    #: The name under which the activity list has such jobs, where it has one.
    endpoint: Endpoint | None
    #: Whether this run has just recorded the intent, so that there is no start and no job of it to look up.
    is_new: bool = False
    #: When looking for a lost start is given up, in monotonic seconds.
    until: float | None = None
    #: Which service is asked now, as the ledger names services.
    service: str | None = None
    #: The digest of the request, and what the activity list would show as its target.
    request_sha256: str | None = None
    first_target: str | None = None
    #: Stores the list of URLs that is sent, and returns its digest; None for a request without a list.
    keep_urls: Callable[[], str | None] = lambda: None
    #: Builds the request of a start that is on record, which may have had another list of URLs; None if it cannot.
    rebuild: Callable[[Start], Callable[[str], Operation[object]] | None] | None = None

    def key(self, n: int) -> str:
        """The key of attempt N: the same after a crash, another one after evidence that N did nothing.

        At a service that replays one key serves all attempts: whoever still repeats an earlier one buys nothing by it.
        """
        attempt = 1 if self.intent.replay else n
        return str(uuid.uuid5(_KEYS, f"{self.intent.load_id}/{self.intent.writer}/{attempt}"))


def preflight(retry: Retry, until: float | None = None) -> Flow[bool]:
    """Asks the service for one line of its activity list and returns whether it declares true replay.

    A key that is not accepted, a service that is down, or an address that is not the service's (a redirect, a login
    page) shows here, before anything is paid. `until` is when asking is given up, in monotonic seconds.
    """
    operation = list_activity(limit=1)
    try:
        return (yield from retry.exchange(operation, lambda reply: _replays(reply, operation), Patience(until=until)))
    except ServiceUnavailable as error:
        if error.status != NOT_IMPLEMENTED:
            raise
        return False
    except (JobGone, RequestRejected):
        return False  # a service without an activity list: a lost start will have to ask a person


def start(plan: Plan, ledger: Ledger, retry: Retry) -> Flow[tuple[Job, bytes | None]]:
    """Starts the intent's job unless it was started before, and returns its record.

    Beside it comes the document itself where the start's own reply held it (a single scrape, a parsed file).

    Raises:
        OutcomeUnknown: It may have been started, and neither replay nor the activity list can tell.
        WeblakeError: The service refused; nothing was started.
    """
    load_id = plan.intent.load_id
    course = Course()
    for attempt in range(MAX_STARTS):
        is_new = plan.is_new and attempt == 0
        job = None if is_new else ledger.job(load_id)
        if job is not None:
            return job, None
        last = None if is_new else ledger.last_start(load_id)
        if last is None or last.void:
            if course.malformed >= MALFORMED_TRIES and course.error is not None:
                raise course.error  # each start is answered with something unreadable, and none of them made a job
            n = 1 if last is None else last.n + 1
            urls = plan.keep_urls()
            at = yield from _timestamp()
            record = Start(
                load_id=load_id,
                n=n,
                key=plan.key(n),
                urls=urls,
                request_sha256=plan.request_sha256,
                first_target=plan.first_target,
                at=at,
                writer=new_nonce(),
            )
            if not ledger.record_start(record):
                continue  # somebody else is starting it at this moment
            started = yield from _send_start(plan, record, ledger, retry, course)
        else:
            started = yield from _resolve(plan, last, ledger, retry)
        if started is not None:
            return started
    last = ledger.last_start(load_id)
    if course.error is not None and last is not None and last.void:
        raise course.error
    raise OutcomeUnknown(
        f"Load {load_id} could not be started in {MAX_STARTS} attempts.",
        hint=Remedy("{run_again} later: it first finds out what became of the last one."),
    )


def _send_start(plan: Plan, record: Start, ledger: Ledger, retry: Retry, course: Course) -> Flow[_Answer | None]:
    """Sends attempt N, once; None when its outcome is open, or when another attempt may follow."""
    operation = plan.build(record.key)
    if (yield from now(wall=True)) - record.at_seconds() > PROMPT_S:
        # Who looks for this start reckons from its record: sent as late as this, it could take effect after that look.
        ledger.void_start(record, "it took too long to record, and was not sent")
        return None
    try:
        came = yield from retry.attempt(operation, lambda reply: read_started(reply, operation), course)
        while isinstance(came, Pause) and came.open:  # the work goes on, and the same request joins it
            yield from sleep(came.seconds)
            came = yield from retry.attempt(operation, lambda reply: read_started(reply, operation), course)
    except OutcomeUnknown:
        if course.verdict is Verdict.STOPPED and course.error is not None:
            raise course.error from None  # its record stays open, and the next run looks for the job
        return None
    except WeblakeError as error:
        # A clear refusal: nothing was started, and the record of that spares the next run the doubt.
        ledger.void_start(record, _refusal(error))
        if isinstance(error, JobGone):  # there is no job yet: what is not there is the operation
            raise RequestRejected(
                f"{operation.name}: there is no such operation at this address ({error.status}).",
                hint=Remedy("Check {base_url}: it is the service's address up to and without /v2."),
                status=error.status,
                code=error.code,
            ) from error
        raise
    if not isinstance(came, Pause):
        return (yield from _record(plan, record, came, ledger))
    # Not started either. What is sent after the pause is another attempt, with a time of its own on record.
    ledger.void_start(record, _refusal(came.error))
    yield from sleep(came.seconds)
    return None


def _resolve(plan: Plan, last: Start, ledger: Ledger, retry: Retry) -> Flow[_Answer | None]:
    """Finds out what became of a start without an answer; None once it surely did nothing."""
    if plan.service is not None and plan.intent.service not in (None, plan.service):
        raise OutcomeUnknown(
            f"The start of load {last.load_id} got no answer from {plan.intent.service}, "
            f"and {plan.service} cannot know of it.",
            hint=Remedy("Set {base_url} to the service it was sent to; or {start_afresh}."),
        )
    build = plan.build if plan.rebuild is None else plan.rebuild(last)
    if plan.intent.replay and build is not None:  # another request under the same key is none of that start's
        return (yield from _repeat(replace_plan(plan, build=build), last, ledger, retry))
    operation = plan.build(last.key)
    window = PROMPT_S + operation.request.deadline_s + MARGIN_S
    # Never longer than all of it: a clock that was set back since must not make a wait of years.
    wait = min(window, last.at_seconds() + window - (yield from now(wall=True)))
    while wait > 0:
        # Another process may be in the middle of this very start: it then records the job's id.
        yield from sleep(min(wait, 1.0))
        job = ledger.job(last.load_id)
        if job is not None:
            return job, None
        wait -= 1.0
    if last.first_target is not None:
        plan = replace_plan(plan, intent=replace(plan.intent, first_target=last.first_target))
    found = yield from _candidates(plan, ledger, retry)
    if not found:
        yield from sleep(BETWEEN_S)
        found = yield from _candidates(plan, ledger, retry)
    if len(found) > 1:
        raise OutcomeUnknown(
            f"The start of load {last.load_id} got no answer, and {len(found)} jobs may be it: {', '.join(found[:5])}.",
            hint=Remedy("Land the right one with {land}, or {start_afresh}."),
        )
    if found:
        return (yield from _record(plan, last, Started(found[0]), ledger, adopted=True))
    ledger.void_start(last, "the activity list showed no such job")
    return None


def _repeat(plan: Plan, last: Start, ledger: Ledger, retry: Retry) -> Flow[_Answer | None]:
    """The same key again: the service answers with the first start's own reply, or starts it now for the first time."""
    operation = replace(plan.build(last.key), repeatable=True)
    try:
        started = yield from retry.exchange(
            operation, lambda reply: read_started(reply, operation), replace(SINGLE, tries=REPEATS)
        )
    except (OutcomeUnknown, RetryLater) as error:
        raise ServiceUnreachable(
            f"Whether load {last.load_id} was started could not be asked: {error.message}",
            hint=Remedy("{run_again} when the service is up: it will not be paid twice."),
            retry_after=error.retry_after if isinstance(error, RetryLater) else None,
        ) from error
    except CreditsExhausted as error:
        # A service that replays would have answered as the first time: so there was no first time.
        ledger.void_start(last, _refusal(error))
        raise
    return (yield from _record(plan, last, started, ledger))


def _candidates(plan: Plan, ledger: Ledger, retry: Retry) -> Flow[list[str]]:
    """Jobs of the activity list that this intent may have started."""
    if plan.endpoint is None:
        raise lost_starts.unknown(plan.intent, "the activity list does not have this kind of call", lost_starts.AFRESH)
    try:
        found = yield from lost_starts.listing(plan.endpoint, retry, Patience(wait_s=120, until=plan.until))
    except WeblakeError as error:
        why = f"the activity list cannot be read: {error.message}"
        raise lost_starts.unknown(plan.intent, why, lost_starts.AGAIN) from error
    return lost_starts.candidates(plan.intent, found, ledger)


def _record(
    plan: Plan, start: Start, started: Started, ledger: Ledger, *, adopted: bool = False
) -> Flow[_Answer | None]:
    """Puts the job on record as this load's; None where it was found, and another load has claimed it meanwhile.

    Raises:
        OutcomeUnknown: The service answered this start with the job of another load.
    """
    at, load_id, kind = (yield from _timestamp()), plan.intent.load_id, plan.intent.kind
    job_id = started.job_id or start.key
    # The claim comes first: a job on record as ours is ours.
    owner = ledger.own(kind, job_id, load_id)
    if owner not in (load_id, job_load_id(kind, job_id)) and (adopted or kind in JOB_KINDS):
        if adopted:
            return None
        # Either that load found this job when it looked for one that it had lost, or the service answers different
        # starts with one job. Neither tells what was paid for, and to start again would buy it twice.
        raise OutcomeUnknown(
            f"The service answered the start of load {load_id} with job {job_id}, which load {owner} has.",
            hint=Remedy(
                "Look at the team's activity: if there is one more job of it, {land} lands that one; "
                "if there is none, tell whoever runs the service or its proxy, or {start_afresh}."
            ),
        )
    job = ledger.record_job(
        Job(
            load_id=load_id,
            job_id=job_id,
            kind=kind,
            at=at,
            rejected=started.rejected,
            urls=start.urls,
            request_sha256=start.request_sha256,
            adopted=adopted,
            writer=new_nonce(),
        )
    )
    return job, started.document


def read_scrape(job_id: str, retry: Retry) -> Flow[bytes]:
    """The document of a scrape that was started before, as raw JSON."""
    operation = get_scrape(job_id)
    document = yield from retry.exchange(operation, lambda reply: read_started(reply, operation).document)
    if document is None:
        raise MalformedReply(f"Scrape {job_id} was answered without its document.")
    return document


def cancel(job: JobRef, retry: Retry) -> Flow[None]:
    """Cancels a job; one that has ended meanwhile is left as it is."""
    try:
        yield from retry.call(JOB_KINDS[job.kind].cancel(job.job_id))
    except RequestRejected as error:
        if error.status != CONFLICT:
            raise


def _refusal(error: WeblakeError) -> str:
    """The refusal for the record, without the service's own words: nobody knows what it writes there."""
    return f"{type(error).__name__}{f' ({error.status})' if error.status else ''}"


def _timestamp() -> Flow[str]:
    seconds = yield from now(wall=True)
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def _replays(reply: Reply, operation: Operation[models.ActivityPage]) -> bool:
    responses.value_of(reply, operation.name)
    return reply.headers.get("weblake-idempotency", "").strip().lower() == "replay"
