"""Wait for the end of a job with polls of a few hundred bytes each.

A complete status response contains all documents so far. So a poll reads a response only up to its first document. If
there are documents, the next poll uses the address in `next`, which returns only newer documents. No undocumented
parameter is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from weblake import events
from weblake.api import models, response_json, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.models.lenient import MAX_NUMBER
from weblake.api.next_link import query_of
from weblake.api.operation import Operation
from weblake.api.steps import Flow, Response, now, sleep
from weblake.errors import DeadlineExceeded, JobGone, Remedy, RetryLater, WeblakeError
from weblake.jobs.retry import Retry, RetryPolicy

#: Seconds between polls, growing from the first to the last value: short jobs end soon, long jobs need few polls.
FIRST_POLL_S, LAST_POLL_S, POLL_GROWTH = 0.3, 10.0, 1.5
#: Average seconds between two polls of a wait for several jobs: many jobs are not polled more often than a few.
BETWEEN_POLLS_S = 1.0
#: Random share of each pause, so that jobs that were started together are not polled together.
SPREAD = 0.25
#: Seconds in which a 404 is retried, because the service may not find a job that was just started.
UNSEEN_S = 10.0
#: HTTP status of a job that does not exist, or not yet.
NOT_FOUND = 404
#: Maximum failed polls in a row before and after the first success: about one and about four minutes.
UNSEEN_TRIES, SEEN_TRIES = 8, 20
#: Maximum pause before another poll, in seconds, if the service names a time after the deadline.
MAX_RETRY_AFTER_S = 3600.0
#: Bytes in which a head is searched; for a longer one the response is read to its end.
HEAD_BYTES = 1 << 17


class OverBudget(Exception):
    """A running job has used more credits than its limit; the caller decides whether to cancel it."""

    def __init__(self, job: JobRef, used: object) -> None:
        super().__init__(f"{job} has used {used} credits")
        #: The credits that the job had used; a service may send more digits than fit into a float.
        self.used = float(min(used, MAX_NUMBER)) if isinstance(used, int | float) else 0.0


def over_budget(head: Mapping[str, object], max_credits: float | None) -> bool:
    """Return whether a job's status shows more credits than `max_credits`; None is no limit."""
    used = head.get("creditsUsed")
    return max_credits is not None and isinstance(used, int | float) and used > max_credits


def is_over(head: Mapping[str, object], max_credits: float | None = None) -> bool:
    """Return whether a job with this status has ended, or has used more credits than `max_credits`."""
    return models.is_terminal(head.get("status")) or over_budget(head, max_credits)


@dataclass(frozen=True, slots=True)
class JobRef:
    """One job of the service."""

    #: `batch_scrape` or `crawl`.
    kind: str
    job_id: str

    def __str__(self) -> str:
        """Return the job's kind and id, as the command line writes them."""
        return f"{JOB_KINDS[self.kind].command} {self.job_id}"


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """One of several jobs that a caller waits for at the same time."""

    job: JobRef
    #: Deadline in monotonic seconds.
    until: float


def wait_for_any(
    jobs: Sequence[WaitingJob],
    retry: Retry,
    *,
    poll_s: float = LAST_POLL_S,
    max_credits: float | None = None,
) -> Flow[int]:
    """Poll several jobs in turn until one of them needs its caller, and return its index; at least one job is given.

    This is a job that has ended, has used more than `max_credits`, has reached its deadline or cannot be polled. A
    `wait` for this job then returns at once, or raises the reason. A job for which the service names a time is polled
    again after it; the other jobs do not wait for that.

    Args:
        jobs: The jobs, in the order of the polls.
        retry: The client's retry rules.
        poll_s: Maximum seconds between two polls of a job; with more jobs than that, as many seconds as there are jobs.
        max_credits: Maximum credits that each job may use while it runs; None for no limit.
    """
    unseen_until = (yield from now()) + UNSEEN_S
    pause, longest = FIRST_POLL_S, max(poll_s, FIRST_POLL_S, len(jobs) * BETWEEN_POLLS_S)
    seen, named = set[int](), dict[int, float]()
    while True:
        for index, each in enumerate(jobs):
            at = yield from now()
            if at >= each.until:
                return index
            if at < named.get(index, at):
                continue
            try:
                head = yield from _poll(
                    each.job,
                    _head_operation(each.job),
                    retry,
                    seen=index in seen,
                    until=each.until,
                    unseen_until=unseen_until,
                    named_pauses=False,
                )
            except WeblakeError as error:
                pause_s = error.__cause__.retry_after if isinstance(error.__cause__, RetryLater) else None
                if pause_s is None:
                    return index
                named[index] = (yield from now()) + pause_s
                if named[index] >= each.until:
                    return index
                continue
            if head is None:
                continue
            seen.add(index)
            retry.observe(_polled_event(each.job, head.fields))
            if is_over(head.fields, max_credits):
                return index
        left = min(each.until for each in jobs) - (yield from now())
        yield from sleep(min(pause * (1 - SPREAD * retry.jitter()), left))
        pause = min(pause * POLL_GROWTH, longest)


def wait(
    job: JobRef,
    retry: Retry,
    *,
    until: float,
    unseen_s: float = UNSEEN_S,
    first_s: float = FIRST_POLL_S,
    poll_s: float = LAST_POLL_S,
    max_credits: float | None = None,
    until_deadline: bool = False,
) -> Flow[dict[str, object]]:
    """Poll until the job has ended, and return the head of its last status response.

    Args:
        job: The job.
        retry: The client's retry rules.
        until: Deadline in monotonic seconds.
        unseen_s: Seconds from now in which a 404 counts as "not there yet"; 0 for a job that was found before.
        first_s: Seconds between the first two polls; the pauses grow from there.
        poll_s: Maximum seconds between polls; a random part is subtracted, so that many clients do not poll at once.
        max_credits: Maximum credits that the job may use while it runs; None for no limit.
        until_deadline: Whether DeadlineExceeded is raised at the deadline and not before, also if the service asks to
            come back later than that: it is asked again after an hour at most. A caller that cancels the job then
            needs this, because one such response, or one wrong header, must not end a job that has hours left.

    Raises:
        OverBudget: The job is running and has used more than `max_credits`.
        DeadlineExceeded: The job had not ended by the deadline; it continues at the service.
        JobGone: The job is unknown or expired.
    """
    begun = yield from now()
    operation = _head_operation(job)
    pause, seen = first_s, False
    try:
        while True:
            try:
                head = yield from _poll(job, operation, retry, seen=seen, until=until, unseen_until=begun + unseen_s)
            except DeadlineExceeded:
                left = until - (yield from now())
                if not until_deadline or left <= 0:
                    raise
                yield from sleep(min(left, MAX_RETRY_AFTER_S))
                if left <= MAX_RETRY_AFTER_S:
                    raise
                continue
            if head is not None:
                seen = True
                retry.observe(_polled_event(job, head.fields))
                if models.is_terminal(head.fields.get("status")):
                    break
                if over_budget(head.fields, max_credits):
                    raise OverBudget(job, head.fields["creditsUsed"])
                following = query_of(head.fields.get("next"), operation.request.path)
                if not head.empty and following is not None:
                    # There are documents: newer ones are at the next address. It is asked for after a pause only: while
                    # pages arrive faster than responses, each response would have some, and this would be a busy loop.
                    operation = replace(operation, request=replace(operation.request, query=following))
            left = until - (yield from now())
            if left <= 0:
                raise _deadline_error(job)
            yield from sleep(min(pause * (1 - SPREAD * retry.jitter()), left))
            pause = min(pause * POLL_GROWTH, max(poll_s, first_s))
    except (WeblakeError, OverBudget) as error:
        retry.observe(_wait_event(job, type(error).__name__, (yield from now()) - begun))
        raise
    retry.observe(_wait_event(job, events.known_status(head.fields.get("status")), (yield from now()) - begun))
    return dict(head.fields)


def _wait_event(job: JobRef, outcome: str, seconds: float) -> events.WaitFinished:
    return events.WaitFinished(kind=job.kind, job_id=job.job_id, outcome=outcome, seconds=seconds)


def _poll(
    job: JobRef,
    operation: Operation[models.JobStatus],
    retry: Retry,
    *,
    seen: bool,
    until: float,
    unseen_until: float,
    named_pauses: bool = True,
) -> Flow[response_json.Head | None]:
    """Poll once and return the head of the response; None if the job is not there yet.

    With `named_pauses`, a time before `until` that the service names is waited for; without it, and for a later time,
    DeadlineExceeded is raised, with the RetryLater as its cause.
    """
    policy = RetryPolicy(tries=SEEN_TRIES if seen else UNSEEN_TRIES, cap_s=30.0, until=until, named_pauses=named_pauses)
    try:
        return (yield from retry.exchange(operation, partial(_read_head, operation.name), policy))
    except JobGone as error:
        if seen or error.status != NOT_FOUND or (yield from now()) >= unseen_until:
            raise
        return None
    except RetryLater as error:
        if error.retry_after is None:
            raise
        raise _deadline_error(job, error) from error  # the service asks to retry only after the time limit
    except DeadlineExceeded as error:
        raise _deadline_error(job, error.__cause__) from error


def _head_operation(job: JobRef) -> Operation[models.JobStatus]:
    """Return the status read, cut off before the first document."""
    read = JOB_KINDS[job.kind].read(job.job_id)
    return replace(read, request=replace(read.request, stop_when=_head_is_there))


def get_status(job: JobRef, retry: Retry, policy: RetryPolicy | None = None) -> Flow[dict[str, object]]:
    """Return the fields of one status response, without its documents."""
    operation = _head_operation(job)
    head = yield from retry.exchange(operation, partial(_read_head, operation.name), policy)
    retry.observe(_polled_event(job, head.fields))
    return dict(head.fields)


def _polled_event(job: JobRef, head: Mapping[str, object]) -> events.StatusPolled:
    return events.StatusPolled(
        kind=job.kind,
        job_id=job.job_id,
        status=events.known_status(head.get("status")),
        completed=events.count_of(head.get("completed")),
        total=events.count_of(head.get("total")),
        credits_used=events.amount_of(head.get("creditsUsed")),
    )


def _head_is_there(body: memoryview) -> bool:
    """Return whether the head of a response with documents has arrived."""
    head = response_json.read_head(body) if len(body) <= HEAD_BYTES else None
    # A response without documents ends a few bytes later: read to its end, the connection of a caller's client stays.
    return head is not None and not head.empty


def _read_head(what: str, reply: Response) -> response_json.Head:
    found = response_json.read_head(reply.body)
    if found is None:
        chunk = response_json.read_chunk(bytes(reply.body))
        found = response_json.Head(chunk.head, not chunk.documents)
    if responses.is_error_body(found.fields):
        raise responses.error_of(reply, what)
    return found


def _deadline_error(job: JobRef, last: BaseException | None = None) -> DeadlineExceeded:
    trouble = f" The last poll: {last.message}" if isinstance(last, WeblakeError) else ""
    return DeadlineExceeded(
        f"The time limit passed before {job} ended; it goes on at the service.{trouble}",
        hint=Remedy("{run_again} to go on waiting, with a larger {timeout} if need be, or cancel the job."),
    )
