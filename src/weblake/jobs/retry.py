"""Retry rules: whether a call is sent again, and after how many seconds.

Reads and cancels are repeatable. A POST that costs money is sent again only if it certainly had no effect: the
connection was refused, or the service responded with 429. loads/starts.py decides all other cases of a start.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from weblake.api import responses
from weblake.api.operation import Operation
from weblake.api.start_responses import Verdict, verdict
from weblake.api.steps import Flow, NoResponse, Request, Response, now, send, sleep
from weblake.errors import DeadlineExceeded, MalformedReply, OutcomeUnknown, Remedy, RetryLater, WeblakeError
from weblake.events import Observer, RetryScheduled, combine, log_event

T = TypeVar("T")
U = TypeVar("U")

#: Maximum number of tries that return a truncated or unreadable response: more tries would not repair a defect of the
#: service.
MALFORMED_TRIES = 3
#: Least seconds before another try if the service names a shorter time: the first value, its growth with each try of
#: the call, and the last value. "Retry-After: 0" in each response must not become a busy loop.
FIRST_PAUSE_S, PAUSE_GROWTH, LAST_PAUSE_S = 0.05, 1.25, 10.0
#: Average seconds between two tries, once the pauses have grown.
MEAN_PAUSE_S = 10.0
#: The longest named time that is accepted, in seconds: a task must not wait for a service that names a week.
MAX_RETRY_AFTER_S = 6 * 3600.0
#: The maximum addition to the named time, as a share of it: a thousand tasks get the same time, each in a process of
#: its own, and must not return all at once.
SPREAD = 0.25


class RetryPolicy(msgspec.Struct, frozen=True):
    """Limits of the tries of one call, and of the pauses between them."""

    #: Maximum number of failed tries of the call; responses with Retry-After do not count. By default the pauses of a
    #: call reach `wait_s` before.
    tries: int = 15
    #: Maximum seconds of all pauses; a longer Retry-After is raised to the caller.
    wait_s: float = 60.0
    #: Maximum seconds between two tries if the service sends no Retry-After.
    cap_s: float = 20.0
    #: Maximum number of tries that reach the request's deadline: with the two minutes of a read, a response that never
    #: completes is abandoned within seven minutes.
    timeouts: int = 3
    #: The job's deadline in monotonic seconds; if set, any Retry-After up to it is obeyed and `wait_s` is ignored.
    until: float | None = None
    #: Whether a pause that the service names is waited for; if not, the response is raised to the caller.
    named_pauses: bool = True

    @classmethod
    def lasting(cls, seconds: float) -> RetryPolicy:
        """Return the policy of a call that is retried for `seconds`; it does not run out of tries before that."""
        more = math.ceil(seconds / MEAN_PAUSE_S)
        return cls(tries=cls().tries + more, timeouts=cls().timeouts + more, wait_s=seconds)


#: The default policy of a single call.
SINGLE = RetryPolicy()


@dataclass(slots=True)
class RetryState:
    """State of one call: failures, timeouts, seconds waited, and the last error."""

    policy: RetryPolicy = SINGLE
    #: Tries so far; unlike `failures`, with the responses that named a time.
    tries: int = 0
    failures: int = 0
    malformed: int = 0
    timeouts: int = 0
    #: Seconds of all pauses, and of the tries that got a response with Retry-After.
    waited: float = 0.0
    #: Error of the last failed try, and its verdict on whether a start had an effect.
    error: WeblakeError | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A failed try, and the seconds to wait before the next try."""

    seconds: float
    error: WeblakeError
    #: Whether the request may have had an effect.
    open: bool


@dataclass(slots=True)
class Retry:
    """The retry rules of one client."""

    #: The policy of a call that names no other one.
    policy: RetryPolicy = SINGLE
    #: Returns a number in [0, 1); tests replace it, so that pauses are predictable.
    jitter: Callable[[], float] = random.random
    #: Called with each event of the client.
    observe: Observer = log_event

    def observed_by(self, observer: Observer) -> Retry:
        """Return these rules with another observer besides the client's own."""
        return dataclasses.replace(self, observe=combine(self.observe, observer))

    def call(self, operation: Operation[T], policy: RetryPolicy | None = None) -> Flow[T]:
        """Send an operation, retry it if the policy allows, and return the decoded value of its response.

        Raises:
            OutcomeUnknown: The operation is a start without a response: it may have had an effect.
            WeblakeError: The error that the service returned, or the reason why there was no response.
        """
        return self.exchange(operation, lambda r: operation.decode(responses.value_of(r, operation.name)), policy)

    def exchange(
        self, operation: Operation[T], read: Callable[[Response], U], policy: RetryPolicy | None = None
    ) -> Flow[U]:
        """Do the same as `call`, with `read` to parse each 2xx response; `read` may refuse it by raising."""
        state = RetryState(policy or self.policy)
        while True:
            came = yield from self.attempt(operation, read, state)
            if not isinstance(came, Pause):
                return came
            yield from sleep(came.seconds)

    def attempt(self, operation: Operation[T], read: Callable[[Response], U], state: RetryState) -> Flow[U | Pause]:
        """Try a call once and return its value, or a Pause if the caller may try again after it."""
        policy = state.policy
        request = yield from _limit_deadline(operation.request, state)
        state.tries += 1
        if state.tries > 1:
            request = replace(request, attempt=state.tries)
        begun = yield from now()
        reply = yield from send(request)
        try:
            if isinstance(reply, NoResponse) or not 200 <= reply.status < 300:
                raise responses.error_of(reply, operation.name)
            return read(reply)
        except WeblakeError as raised:
            error = raised
        if isinstance(reply, NoResponse) and state.error is not None and (yield from _seconds_left(policy)) <= 0:
            # The time limit cut off this try, so the error of the previous one is more useful.
            raise _deadline_error(state.error)
        state.error = error
        state.verdict = verdict(reply, error)
        named = isinstance(error, RetryLater) and error.retry_after is not None
        state.failures += not named  # a service that names a time is working, so its rate limit is not a failure
        state.malformed += isinstance(error, MalformedReply)
        state.timeouts += isinstance(reply, NoResponse) and (yield from now()) - begun >= request.deadline_s
        spent = (
            state.malformed >= MALFORMED_TRIES or state.failures >= policy.tries or state.timeouts >= policy.timeouts
        ) or (named and not policy.named_pauses)
        if spent or not _may_repeat(reply, error, operation):
            raise _final_error(reply, error, operation)
        wait = self._wait(error, state)
        if not (yield from self._affordable(wait, state.waited, policy)):
            if policy.until is not None and not named:
                raise _deadline_error(error)
            raise _final_error(reply, error, operation)
        state.waited += wait
        if named:
            state.waited += (yield from now()) - begun  # the time counts, so that retries end
        self.observe(
            RetryScheduled(
                operation=operation.name,
                attempt=state.tries,
                error=type(error).__name__,
                status=error.status,
                pause_s=wait,
            )
        )
        return Pause(wait, error, may_have_effect(reply, error))

    def _wait(self, error: WeblakeError, state: RetryState) -> float:
        if isinstance(error, RetryLater) and error.retry_after is not None:
            named = state.tries - state.failures
            least = min(LAST_PAUSE_S, FIRST_PAUSE_S * PAUSE_GROWTH ** min(named - 1, 64))
            # A random part, so that not all callers retry at once.
            return max(least, error.retry_after + 0.05 + self.jitter() * min(1.0, 0.1 * error.retry_after))
        return self.jitter() * min(state.policy.cap_s, 0.5 * 2.0 ** min(state.failures - 1, 16)) + 0.05

    def _affordable(self, wait: float, waited: float, policy: RetryPolicy) -> Flow[bool]:
        if policy.until is not None:
            return wait < (yield from _seconds_left(policy))
        return waited + wait <= policy.wait_s


def named_pause(error: WeblakeError) -> float:
    """Return the seconds to wait if the service named a time, with jitter; 0.0 if it named none."""
    if not isinstance(error, RetryLater) or error.retry_after is None:
        return 0.0
    spread = 1 + SPREAD * random.random()  # noqa: S311  # jitter, no secret
    return min(error.retry_after, MAX_RETRY_AFTER_S) * spread + 1.0  # plus a second, because both sides round


def longest_named_pause() -> float:
    """Return the maximum of `named_pause`, in seconds."""
    return MAX_RETRY_AFTER_S * (1 + SPREAD) + 1.0


def with_message(error: RetryLater, message: str, hint: str | Remedy) -> RetryLater:
    """Return an error of the same class, status and `retry_after` with another message and remedy."""
    return type(error)(message, hint=hint, status=error.status, code=error.code, retry_after=error.retry_after)


def _seconds_left(policy: RetryPolicy) -> Flow[float]:
    """Return the seconds until the job's deadline: negative if it has passed, infinite if there is none."""
    return math.inf if policy.until is None else policy.until - (yield from now())


def _limit_deadline(request: Request, state: RetryState) -> Flow[Request]:
    """Return the request with its deadline shortened to the job's; raise DeadlineExceeded if that has passed."""
    left = yield from _seconds_left(state.policy)
    if left <= 0:
        raise _deadline_error(state.error)
    if left >= request.deadline_s:
        return request
    return replace(request, deadline_s=left)


def _deadline_error(error: WeblakeError | None) -> DeadlineExceeded:
    """Return the error that the job's time limit passed; its message and cause contain the last meaningful error."""
    before = "" if error is None else f"; before that: {error.message}"
    over = DeadlineExceeded(f"The time limit passed{before or '.'}", hint="Give it more time, or try again.")
    over.__cause__ = error
    return over


def _may_repeat(reply: Response | NoResponse, error: WeblakeError, operation: Operation[T]) -> bool:
    """Return whether sending the operation again is both useful and safe."""
    if isinstance(reply, NoResponse):
        return not reply.final and (operation.repeatable or not reply.sent)
    if reply.status == 429 or responses.is_still_working(reply):
        return True
    if not operation.repeatable:
        return False
    return isinstance(error, RetryLater) or (isinstance(error, MalformedReply) and reply.status < 300)


def _final_error(reply: Response | NoResponse, error: WeblakeError, operation: Operation[T]) -> WeblakeError:
    """Return the error to raise: OutcomeUnknown for a start that may have had an effect, otherwise `error`."""
    if not operation.request.paid or not may_have_effect(reply, error):
        return error
    return OutcomeUnknown(
        f"{operation.name}: no definite response was received ({error.message.rstrip('.')}), so it may have been "
        "started.",
        hint=Remedy("Look for the job {in_activity} before starting it again."),
        status=error.status,
        code=error.code,
    )


def may_have_effect(reply: Response | NoResponse, error: WeblakeError) -> bool:
    """Return whether a start with this outcome may have had an effect: true without evidence of the contrary."""
    return verdict(reply, error) in (Verdict.OPEN, Verdict.STOPPED)


class HasRetry(Protocol):
    """The part of a client that `observing` needs."""

    retry: Retry


@contextmanager
def observing(client: HasRetry, observer: Observer) -> Iterator[None]:
    """Return a context manager in which an observer gets the events of a client, besides the client's own.

    For a client with one user at a time; several that share one use `Retry.observed_by` for their own calls.
    """
    before = client.retry
    client.retry = before.observed_by(observer)
    try:
        yield
    finally:
        client.retry = before
