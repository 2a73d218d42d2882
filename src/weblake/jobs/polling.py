"""Waiting for a job's end with polls that cost next to nothing.

A poll of the job's own address would bring all documents so far. So a poll reads a reply only up to its first
document, and moves on to the address in `next` when there are documents: from then on it asks for what is new, which
is a few hundred bytes. No undocumented parameter is used (research: performance.md, "Waiting").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from weblake.api import models, response_json, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.next_link import Query, query_of
from weblake.api.operation import Operation
from weblake.errors import DeadlineExceeded, JobGone, RetryLater, WeblakeError
from weblake.jobs.retry import SINGLE, Patience, Retry
from weblake.remedies import Remedy
from weblake.steps import Flow, Reply, now, sleep

#: Seconds between polls: small jobs are seen soon, long ones cost little.
FIRST_POLL_S, LAST_POLL_S, POLL_GROWTH = 0.3, 10.0, 1.5
#: The share of a pause that is left to chance: jobs that were started together must not be asked after together.
SPREAD = 0.25
#: A job just started may not be found yet (contract/facts.md section 1): seconds in which a 404 is asked again.
UNSEEN_S = 10.0
#: HTTP's word for "there is no such job", which may only mean "not yet".
NOT_FOUND = 404
#: Failed polls in a row that are borne: about one and about four minutes.
UNSEEN_TRIES, SEEN_TRIES = 8, 20
#: Chunks skipped in a row before a breath is taken: a chain without end must not become a busy loop.
MAX_HOPS = 1000
#: Bytes in which the head of a reply has to stand to be read without the rest.
HEAD_BYTES = 1 << 16

#: The most bytes of a first chunk that are read on with the poll that found it; most have ten million.
MOST_KEPT = 32 << 20

Progress = Callable[[Mapping[str, object]], None]


class OverBudget(Exception):
    """A running job has used more credits than it may: whoever waits decides what follows."""

    def __init__(self, job: JobRef, used: object) -> None:
        super().__init__(f"{job.words} has used {used} credits")


def over_budget(head: Mapping[str, object], max_credits: float | None) -> bool:
    """Whether a job's status says that it has used more credits than it may; no limit allows all."""
    used = head.get("creditsUsed")
    return max_credits is not None and isinstance(used, int | float) and used > max_credits


@dataclass(frozen=True, slots=True)
class JobRef:
    """One job of the service."""

    #: `batch_scrape` or `crawl`.
    kind: str
    job_id: str

    def read(self) -> Operation[models.JobStatus]:
        """The status read."""
        return JOB_KINDS[self.kind].read(self.job_id)

    @property
    def words(self) -> str:
        """As the command line names it."""
        return f"{JOB_KINDS[self.kind].command} {self.job_id}"


def wait(
    job: JobRef,
    retry: Retry,
    *,
    until: float,
    unseen_s: float = UNSEEN_S,
    first_s: float = FIRST_POLL_S,
    poll_s: float = LAST_POLL_S,
    max_credits: float | None = None,
    progress: Progress | None = None,
    keep: Callable[[Reply], None] | None = None,
) -> Flow[dict[str, object]]:
    """Polls until the job has ended and returns the head of its last status reply.

    Args:
        job: The job.
        retry: The client's retry rules.
        until: Monotonic seconds at which waiting ends.
        unseen_s: Seconds in which a 404 counts as "not there yet", from now on; 0 for a job seen before.
        first_s: Seconds between the first two polls; the pauses grow from there.
        poll_s: Seconds between polls at most; they are spread, so that many who wait do not ask at once.
        max_credits: What the job may use while it runs.
        progress: Called with the head of each reply.
        keep: Called with the job's first chunk, read to its end, where a poll found there that the job has ended: so
            that nobody has to ask for it again.

    Raises:
        OverBudget: It runs and has used more than `max_credits`.
        DeadlineExceeded: The job had not ended by then; it goes on remotely.
        JobGone: Unknown or expired.
    """
    operation = _heads(job, keep)
    path = operation.request.path
    asked: Query = ()
    visited = {asked}  # links that lead in a circle must not become a busy loop either
    pause, seen = first_s, False
    unseen_until = (yield from now()) + unseen_s
    while True:
        kept = None if asked else keep
        head = yield from _poll(job, operation, retry, kept, seen=seen, until=until, unseen_until=unseen_until)
        if head is not None:
            seen = True
            if progress is not None:
                progress(head.fields)
            if models.is_terminal(head.fields.get("status")):
                return dict(head.fields)
            if over_budget(head.fields, max_credits):
                raise OverBudget(job, head.fields["creditsUsed"])
            following = query_of(head.fields.get("next"), path)
            if not head.empty and following is not None and following not in visited:
                asked = following  # there are documents: what is new lies behind them
                visited.add(asked)
                operation = replace(operation, request=replace(operation.request, query=asked, enough=_head_is_there))
                if len(visited) % MAX_HOPS:
                    continue
        left = until - (yield from now())
        if left <= 0:
            raise _too_late(job)
        yield from sleep(min(pause * (1 - SPREAD * retry.jitter()), left))
        pause = min(pause * POLL_GROWTH, max(poll_s, first_s))


def _poll(
    job: JobRef,
    operation: Operation[models.JobStatus],
    retry: Retry,
    keep: Callable[[Reply], None] | None,
    *,
    seen: bool,
    until: float,
    unseen_until: float,
) -> Flow[response_json.Head | None]:
    """One poll; None where the job is not there yet."""
    patience = Patience(tries=SEEN_TRIES if seen else UNSEEN_TRIES, cap_s=30.0, until=until)
    try:
        return (yield from retry.exchange(operation, partial(_head, operation.name, keep=keep), patience))
    except JobGone as error:
        if seen or error.status != NOT_FOUND or (yield from now()) >= unseen_until:
            raise
        return None
    except RetryLater as error:
        if error.retry_after is None:
            raise
        raise _too_late(job, error) from error  # it is to be asked again only after the time limit
    except DeadlineExceeded as error:
        raise _too_late(job, error.__cause__) from error


def _heads(job: JobRef, keep: object = None) -> Operation[models.JobStatus]:
    """The status read, cut off before the first document; of a job that has ended only where nobody keeps it."""
    read = job.read()
    return replace(read, request=replace(read.request, enough=_head_is_there if keep is None else _runs_still))


def glance(job: JobRef, retry: Retry, patience: Patience = SINGLE) -> Flow[dict[str, object]]:
    """Returns the head of one status reply, without its documents."""
    operation = _heads(job)
    head = yield from retry.exchange(operation, partial(_head, operation.name), patience)
    return dict(head.fields)


def _seen(body: memoryview) -> response_json.Head | None:
    """The head of a reply with documents, as soon as it is there."""
    head = response_json.read_head(body) if len(body) <= 2 * HEAD_BYTES else None
    # A reply without documents ends a few bytes further on. Read to there, it leaves a connection that the next poll
    # can use; one that is left in the middle has to be closed, and a handshake costs more than all the rest of a poll.
    return None if head is None or head.empty else head


def _head_is_there(body: memoryview) -> bool:
    return _seen(body) is not None


def _runs_still(body: memoryview) -> bool:
    if len(body) > MOST_KEPT:
        # Too much to keep. A head that stands behind the documents is waited for all the same.
        return response_json.read_head(body[:HEAD_BYTES]) is not None
    head = _seen(body)
    return head is not None and not models.is_terminal(head.fields.get("status"))


def _head(what: str, reply: Reply, *, keep: Callable[[Reply], None] | None = None) -> response_json.Head:
    found = response_json.read_head(reply.body)
    if found is None:
        chunk = response_json.read_chunk(bytes(reply.body))
        found = response_json.Head(chunk.head, not chunk.documents)
    if responses.tells_error(found.fields):
        raise responses.error_of(reply, what)
    if keep is not None and reply.whole and models.is_terminal(found.fields.get("status")):
        keep(reply)
    return found


def _too_late(job: JobRef, last: BaseException | None = None) -> DeadlineExceeded:
    trouble = f" The last poll: {last.message}" if isinstance(last, WeblakeError) else ""
    return DeadlineExceeded(
        f"The time limit passed before {job.words} ended; it goes on at the service.{trouble}",
        hint=Remedy("{run_again} to go on waiting, with a larger {timeout} if need be, or cancel the job."),
    )
