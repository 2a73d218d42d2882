"""Start a job at most once.

    record intent -> record start N -> POST -> record job id

A POST whose response was lost may have started a paid job. It is not repeated without evidence:
- If the service declares true replay (`Weblake-Idempotency: replay`), the same key does not start a second job.
- Otherwise weblake waits until the request can no longer arrive, and reads the activity list twice. One matching job
  is adopted; no match means that no job was started; for several matches or no response, a person has to decide.
The tests that prove this are listed in docs/development/promises.md, promise 3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from msgspec.structs import replace

from weblake import events
from weblake.api import models, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.operation import Operation
from weblake.api.operations import get_scrape, list_activity
from weblake.api.start_responses import Verdict
from weblake.api.steps import Flow, Response, now, sleep
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent, Job, StartAttempt, new_nonce
from weblake.errors import (
    CreditsExhausted,
    DeadlineExceeded,
    JobGone,
    MalformedReply,
    OutcomeUnknown,
    Remedy,
    RequestRejected,
    RetryLater,
    ServiceUnavailable,
    ServiceUnreachable,
    WeblakeError,
)
from weblake.jobs.retry import MALFORMED_TRIES, SINGLE, Pause, Retry, RetryPolicy, RetryState
from weblake.loads import lost_starts, sent_lists
from weblake.loads.load_request import LoadRequest, StartReply, read_started

#: Seconds after its record within which a start is sent; later it is not sent.
PROMPT_S = 5.0
#: Seconds after a start's deadline in which it may still take effect or appear in the activity list.
MARGIN_S = 5.0
#: Least seconds that a start has for its response, also at the end of the load's time limit.
LEAST_S = 0.05
#: Largest difference in seconds between the clocks of two machines that start one load.
CLOCKS_S = 3600.0
#: Seconds between the two readings of the activity list.
BETWEEN_S = 2.0
#: Maximum number of attempts for one intent, each after evidence that the previous one started no job.
MAX_STARTS = 20
#: Maximum number of requests with the same key to a service that replays.
REPEATS = 6

#: Seconds for which the embedded service remembers the key of a start, less an hour: 30 days for a job, a day for a
#: scrape or a file. Later the same key would start, and pay, once more.
REPLAYED_S, REPLAYED_PAGE_S = (30 * 24 - 1) * 3600.0, 23 * 3600.0

#: A recorded job, and its document if the start response contained it, or None.
_StartedJob = tuple[Job, bytes | None]

#: HTTP status: the server does not have this operation.
NOT_IMPLEMENTED = 501

_KEY_NAMESPACE = uuid.UUID("6f1c2a52-8a57-5f0e-9a3c-5d0a3c6f7b11")


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the request before a load's intent shows about the service."""

    #: Whether it declares true replay.
    replays: bool = False
    #: Seconds by which its clock is ahead of this machine's; None if unknown.
    clock_ahead_s: float | None = None


def check_service(retry: Retry, until: float | None = None) -> Flow[Preflight]:
    """Read one entry of the activity list.

    This detects an API key that is not accepted, a service that is down, and an address that is not the service's (a
    redirect, a login page) before anything is paid. `until` is the deadline in monotonic seconds.
    """
    operation = list_activity(limit=1)
    try:
        policy = replace(retry.policy, until=until)
        return (yield from retry.exchange(operation, lambda reply: _read_preflight(reply, operation), policy))
    except ServiceUnavailable as error:
        if error.status != NOT_IMPLEMENTED:
            raise
        return Preflight()
    except (JobGone, RequestRejected):
        return Preflight()  # a service without an activity list: after a lost start, a person has to decide


def _read_preflight(reply: Response, operation: Operation[models.ActivityPage]) -> Preflight:
    responses.value_of(reply, operation.name)
    replays = reply.headers.get("weblake-idempotency", "").strip().lower() == "replay"
    return Preflight(replays, responses.clock_ahead_s(reply))


@dataclass(slots=True)
class JobStarter:
    """Starts the job of a load's intent at most once."""

    #: The request, which builds the start operation with an idempotency key.
    request: LoadRequest
    intent: Intent
    ledger: Ledger
    retry: Retry
    #: Whether this run has just recorded the intent: then it has no start and no job that could be looked up.
    is_new: bool = False
    #: Deadline of the search for a lost start, in monotonic seconds.
    until: float | None = None
    #: The load's time limit in monotonic seconds, which ends the start, too.
    ends_at: float | None = None
    #: Name of the client's service, as the ledger records it.
    service: str | None = None
    #: Records that the load is about to be started with the list of its file (list_sources.py).
    note_list: Callable[[], None] | None = None
    #: The monotonic times at which this process has last sent each start, by the nonces of their records.
    sent: dict[str, float] = field(default_factory=dict, init=False)
    #: Of all attempts; set by `run`.
    state: RetryState = field(init=False)

    @property
    def replays(self) -> bool:
        """Whether the client's service is the one that declared true replay when the intent was recorded."""
        return bool(self.intent.replay) and (self.service is None or self.intent.service in (None, self.service))

    def key(self, n: int) -> str:
        """Return the key of attempt N: the same after a crash, another one after evidence that N started no job.

        At a service that replays, all attempts have the same key, so repeating an earlier attempt starts no second job.
        """
        attempt = 1 if self.replays else n
        return str(uuid.uuid5(_KEY_NAMESPACE, f"{self.intent.load_id}/{self.intent.writer}/{attempt}"))

    def run(self) -> Flow[tuple[Job, bytes | None]]:
        """Start the intent's job unless it was started before, and return its record.

        The second value is the document if the start response contained it (a single scrape, a parsed file), or None.

        Raises:
            OutcomeUnknown: The job may have been started, and neither replay nor the activity list can show it.
            DeadlineExceeded: The load's time limit passed; what may have been started stays on record.
            WeblakeError: The service refused the start; nothing was started.
        """
        load_id = self.intent.load_id
        self.state = state = RetryState(self.retry.policy)
        begun = yield from now()
        for attempt in range(MAX_STARTS):
            is_new = self.is_new and attempt == 0
            job = None if is_new else self.ledger.job(load_id)
            if job is not None:
                return job, None
            last = None if is_new else self.ledger.last_start(load_id)
            if last is None or last.void:
                if state.malformed >= MALFORMED_TRIES and state.error is not None:
                    raise state.error  # every start got an unreadable response, and none of them created a job
                yield from self._check_limit(error=state.error)
                started = yield from self._attempt_start(1 if last is None else last.n + 1)
                if started is not None:
                    seconds = (yield from now()) - begun
                    event = events.JobStarted(kind=self.intent.kind, job_id=started[0].job_id, seconds=seconds)
                    self.retry.observe(event)
            else:
                started = yield from self._resolve_lost(last)
            if started is not None:
                return started
        last = self.ledger.last_start(load_id)
        if state.error is not None and last is not None and last.void:
            raise state.error
        raise OutcomeUnknown(
            f"Load {load_id} could not be started in {MAX_STARTS} attempts.",
            hint=Remedy("{run_again} later: it first finds out what became of the last one."),
        )

    def _attempt_start(self, n: int) -> Flow[_StartedJob | None]:
        """Record attempt N and send it; return None if its outcome is open or another attempt may follow."""
        request, urls = self.request, None
        if request.with_urls is not None and request.submitted is not None:  # the list of a batch
            if self.note_list is not None:
                self.note_list()
            urls = sent_lists.keep(self.ledger.storage, request.load_id, request.submitted)
        operation = self._build(self.key(n))  # before the record: a million URLs take longer than PROMPT_S
        at = yield from _timestamp()
        record = StartAttempt(
            load_id=self.intent.load_id,
            n=n,
            key=self.key(n),
            urls=urls,
            request_sha256=request.request_sha,
            first_target=request.first_target,
            service=self.service,
            at=at,
            writer=new_nonce(),
        )
        if not self.ledger.record_start(record):
            return None  # another process is starting it at this moment
        if (yield from self._is_late(record)):
            self.ledger.void_start(record, "it took too long to record, and was not sent")
            return None
        return (yield from self._send_start(operation, record))

    def _build(self, key: str) -> Operation[object]:
        assert self.request.start is not None
        return self.request.start(key)

    def _rebuild(self, start: StartAttempt) -> Operation[object] | None:
        """Return the operation of a recorded start, or None if it had other options than this request."""
        sent, same = start.request_sha256 or self.intent.request_sha256, self.request
        if sent != same.request_sha and start.urls is not None and same.with_urls is not None:
            same = same.with_urls(sent_lists.read(self.ledger.storage, start.load_id, start.urls))
        return same.start(start.key) if sent == same.request_sha and same.start is not None else None

    def _check_limit(self, seconds: float = 0.0, error: WeblakeError | None = None) -> Flow[None]:
        """Raise DeadlineExceeded if the load's time limit passes within so many seconds; `error` is the last one."""
        if self.ends_at is not None and (yield from now()) + seconds >= self.ends_at:
            before = "." if error is None else f"; before that: {error.message}"
            raise DeadlineExceeded(
                f"The time limit passed before load {self.intent.load_id} had a job{before}",
                hint=Remedy("{run_again} with a longer {timeout}: it first finds out whether a job was started."),
            ) from error

    def _pause(self, seconds: float, error: WeblakeError | None = None) -> Flow[None]:
        """Sleep; raise as `_check_limit` if the time limit passes meanwhile."""
        yield from self._check_limit(seconds, error)
        yield from sleep(seconds)

    def _attempt(self, operation: Operation[object], state: RetryState) -> Flow[StartReply | Pause]:
        """Send a start once, within the load's time limit; return its response or a Pause, as `Retry.attempt`."""
        request = operation.request
        if self.ends_at is not None:
            left = max(LEAST_S, self.ends_at - (yield from now()))
            operation = replace(operation, request=replace(request, deadline_s=min(request.deadline_s, left)))
        return (yield from self.retry.attempt(operation, lambda reply: read_started(reply, operation), state))

    def _is_late(self, record: StartAttempt) -> Flow[bool]:
        """Return whether a start's record took so long that the start must not be sent.

        A search for this start counts from its record. Sent late, the start could take effect after the search. The
        wall clock counts: the monotonic one stands still while the machine is suspended.
        """
        took = (yield from now(wall=True)) - record.at_seconds()
        return took > PROMPT_S or (self.ends_at is not None and (yield from now()) >= self.ends_at)

    def _send_start(self, operation: Operation[object], record: StartAttempt) -> Flow[_StartedJob | None]:
        """Send attempt N once and return its job; None if its outcome is open or another attempt may follow.

        The time goes into `sent`, also that of a repetition: until then the service works on the start.
        """
        is_working = False  # whether the service has said that it works on this start
        self.sent[record.writer] = yield from now()
        try:
            came = yield from self._attempt(operation, self.state)
            while isinstance(came, Pause) and came.open:  # the same request joins that work
                is_working = True
                yield from self._pause(came.seconds, came.error)
                self.sent[record.writer] = yield from now()
                came = yield from self._attempt(operation, self.state)
        except DeadlineExceeded:
            raise  # the record stays open, and the next run looks for the job
        except OutcomeUnknown:
            if self.state.verdict is Verdict.STOPPED and self.state.error is not None:
                raise self.state.error from None  # the record stays open, and the next run looks for the job
            return None
        except WeblakeError as error:
            if is_working:
                return None  # the refused repetition is no evidence about the work that the service had begun
            # A clear refusal: nothing was started. Recording it saves the next run the search for a job.
            self.ledger.void_start(record, _refusal(error))
            if isinstance(error, JobGone):  # no job exists yet, so a 404 or 410 means that the operation does not exist
                raise RequestRejected(
                    f"{operation.name}: there is no such operation at this address ({error.status}).",
                    hint=Remedy("Check {base_url}: it is the service's address up to and without /v2."),
                    status=error.status,
                    code=error.code,
                ) from error
            raise
        if not isinstance(came, Pause):
            return (yield from self._record(record, came))
        if is_working:
            return None
        # Not started. The request after the pause is another attempt, with its own recorded time.
        self.ledger.void_start(record, _refusal(came.error))
        yield from self._pause(came.seconds, came.error)
        return None

    def _resolve_lost(self, last: StartAttempt) -> Flow[_StartedJob | None]:
        """Return the job of a start that got no response, as `_resolve` finds it, and report what was found out."""
        begun = yield from now()
        self.retry.observe(events.StartLost())
        found: _StartedJob | None = None
        outcome, failure = "not_started", None
        try:
            found = yield from self._resolve(last)
            if found is not None:
                outcome = "adopted" if found[0].adopted else "replayed" if self.replays else "recorded"
        except (OutcomeUnknown, DeadlineExceeded) as error:
            outcome, failure = "unknown", error
        job_id, seconds = None if found is None else found[0].job_id, (yield from now()) - begun
        self.retry.observe(
            events.LostStartResolved(kind=self.intent.kind, job_id=job_id, outcome=outcome, seconds=seconds)
        )
        if failure is not None:
            raise failure
        return found

    def _resolve(self, last: StartAttempt) -> Flow[_StartedJob | None]:
        """Return the job of a start that got no response; None if it certainly started no job."""
        #: When this process has sent it, in monotonic seconds; None if another process has recorded it.
        sent_at = self.sent.get(last.writer)
        sent_to = last.service or self.intent.service
        if self.service is not None and sent_to not in (None, self.service):
            raise OutcomeUnknown(
                f"The start of load {last.load_id} got no answer from {sent_to}, and {self.service} cannot know of it.",
                hint=Remedy("Set {base_url} to the service it was sent to; or {start_afresh}."),
            )
        same = self._rebuild(last)
        age = (yield from now(wall=True)) - last.at_seconds()
        remembered = age < (REPLAYED_S if self.intent.kind in JOB_KINDS else REPLAYED_PAGE_S)
        # A different request with the same key would not be a repetition, and neither would one with a forgotten key.
        if self.replays and same is not None and remembered:
            return (yield from self._repeat(same, last))
        window = PROMPT_S + self._build(last.key).request.deadline_s + MARGIN_S
        # The record of another process has a time of that process's clock, which only shows whether it is long over.
        wait = window if age < window + CLOCKS_S else 0.0
        if sent_at is not None:
            wait = sent_at + window - (yield from now())
        while wait > 0:
            # Another process may be sending this start now; it then records the job's id.
            yield from self._pause(min(wait, 1.0))
            job = self.ledger.job(last.load_id)
            if job is not None:
                return job, None
            wait -= 1.0
        found = yield from self._candidates(last, sent_at)
        if not found:
            yield from self._pause(BETWEEN_S)
            found = yield from self._candidates(last, sent_at)
        if len(found) > 1:
            raise OutcomeUnknown(
                f"The start of load {last.load_id} got no answer, and {len(found)} jobs may be it: "
                f"{', '.join(found[:5])}.",
                hint=Remedy("Land the right one with {land}, or {start_afresh}."),
            )
        if found:
            return (yield from self._record(last, StartReply(found[0]), adopted=True))
        self.ledger.void_start(last, "the activity list showed no such job")
        return None

    def _repeat(self, operation: Operation[object], last: StartAttempt) -> Flow[_StartedJob | None]:
        """Send the same key again: the service replays the first start's response, or starts the job now.

        It is sent once after the deadline, and not again: a start may take as long as a page.
        """
        operation = replace(operation, repeatable=True)
        state = RetryState(replace(SINGLE, tries=REPEATS))
        try:
            started = yield from self._attempt(operation, state)
            while isinstance(started, Pause):
                if self.until is not None and (yield from now()) + started.seconds >= self.until:
                    error = started.error
                    raise error if isinstance(error, RetryLater) else OutcomeUnknown(error.message)
                yield from self._pause(started.seconds, started.error)
                started = yield from self._attempt(operation, state)
        except (OutcomeUnknown, RetryLater) as error:
            raise ServiceUnreachable(
                f"Whether load {last.load_id} was started could not be asked: {error.message}",
                hint=Remedy("{run_again} when the service is up: it will not be paid twice."),
                retry_after=error.retry_after if isinstance(error, RetryLater) else None,
            ) from error
        except CreditsExhausted as error:
            # A service that replays would have repeated the first response, so no start had arrived before.
            self.ledger.void_start(last, _refusal(error))
            raise
        return (yield from self._record(last, started))

    def _candidates(self, last: StartAttempt, sent_at: float | None) -> Flow[list[str]]:
        """Return the ids of listed jobs that the last start may have created; `sent_at` as in `_resolve`."""
        from weblake.jobs.usage_reports import read_listing  # needed after a lost start only

        if self.request.endpoint is None:
            raise lost_starts.outcome_unknown(
                self.intent, "the activity list does not have this kind of call", lost_starts.START_AFRESH
            )
        policy = RetryPolicy(wait_s=120, until=self.until)
        try:
            found = yield from read_listing(self.retry, self.request.endpoint, policy)
        except WeblakeError as error:
            why = f"the activity list cannot be read: {error.message}"
            raise lost_starts.outcome_unknown(self.intent, why, lost_starts.RUN_AGAIN) from error
        age_s = None if sent_at is None else (yield from now()) - sent_at
        return lost_starts.find_candidates(self.intent, last, found, self.ledger, age_s)

    def _record(self, start: StartAttempt, started: StartReply, *, adopted: bool = False) -> Flow[_StartedJob | None]:
        """Record the job as this load's and return it; None if another load has claimed the adopted job meanwhile.

        Raises:
            OutcomeUnknown: The response to this start named the job of another load.
        """
        at, load_id, kind = (yield from _timestamp()), self.intent.load_id, self.intent.kind
        job_id = started.job_id or start.key
        # The claim comes first, so that a job recorded for this load belongs to it.
        owner = self.ledger.claim_job(kind, job_id, load_id)
        if owner not in (load_id, job_load_id(kind, job_id)) and (adopted or kind in JOB_KINDS):
            if adopted:
                return None
            # Either the other load adopted this job when it looked for a lost start, or the service returns one job for
            # different starts. In both cases it is unknown which jobs were paid, and another start could be paid twice.
            raise OutcomeUnknown(
                f"The service answered the start of load {load_id} with job {job_id}, which load {owner} has.",
                hint=Remedy(
                    "Look at the team's activity: if there is one more job of it, {land} lands that one; "
                    "if there is none, tell the operator of the service or its proxy, or {start_afresh}."
                ),
            )
        job = self.ledger.record_job(
            Job(
                load_id=load_id,
                job_id=job_id,
                kind=kind,
                at=start.at if adopted or started.replayed else at,
                rejected=started.rejected,
                urls=start.urls,
                request_sha256=start.request_sha256,
                adopted=adopted,
                writer=new_nonce(),
            )
        )
        return job, started.document


def read_scrape(job_id: str, retry: Retry) -> Flow[bytes]:
    """Return the document of a scrape that was started before, as raw JSON."""
    operation = get_scrape(job_id)
    document = yield from retry.exchange(operation, lambda reply: read_started(reply, operation).document)
    if document is None:
        raise MalformedReply(f"Scrape {job_id} was answered without its document.")
    return document


def _refusal(error: WeblakeError) -> str:
    """Return the refusal for the record, without the service's message, which may contain anything."""
    return f"{type(error).__name__}{f' ({error.status})' if error.status else ''}"


def _timestamp() -> Flow[str]:
    seconds = yield from now(wall=True)
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
