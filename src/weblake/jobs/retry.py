"""When a call is sent again, and after how long.

Reads and cancels are repeatable. A POST that costs money is sent again only where it surely did not happen: the
connection was refused, or the service answered 429. Everything else about a start is decided in starts.py.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from weblake.api import responses
from weblake.api.operation import Operation
from weblake.api.start_responses import Verdict, verdict
from weblake.errors import DeadlineExceeded, MalformedReply, OutcomeUnknown, RetryLater, WeblakeError
from weblake.remedies import Remedy
from weblake.steps import Flow, NoReply, Reply, Request, now, send, sleep

T = TypeVar("T")
U = TypeVar("U")

#: A reply that is cut off or unreadable is fetched again this often: what is broken at the source stays broken.
MALFORMED_TRIES = 3
#: Seconds between two tries on average, once the pauses have grown.
MEAN_PAUSE_S = 10.0


class RetryBudget:
    """Retry tokens shared by all calls of one client, so that an outage is not answered with a multiple of calls.

    A retry takes five tokens, a success gives one back, as in the AWS SDKs' standard mode.
    """

    def __init__(self, capacity: int = 500) -> None:
        self._capacity = self._tokens = capacity
        self._lock = threading.Lock()

    def take(self, cost: int = 5) -> bool:
        """Takes the tokens for one retry; False when too few are left."""
        with self._lock:
            if self._tokens < cost:
                return False
            self._tokens -= cost
            return True

    def give(self, tokens: int = 1) -> None:
        """Gives tokens back after a success."""
        with self._lock:
            self._tokens = min(self._capacity, self._tokens + tokens)


class Patience(msgspec.Struct, frozen=True):
    """How long one call may be tried."""

    #: Failed tries in a row before the call is given up.
    tries: int = 6
    #: Seconds of waiting in all; a longer Retry-After is handed to the caller.
    wait_s: float = 60.0
    #: Seconds between two tries at most, where the service names no time.
    cap_s: float = 20.0
    #: Tries that ran into their own deadline before the call is given up: with the two minutes of a read, a reply that
    #: drips for ever is given up in seven.
    timeouts: int = 3
    #: The job's deadline on the monotonic clock: with it, Retry-After is obeyed up to there, however long.
    until: float | None = None

    @classmethod
    def lasting(cls, seconds: float) -> Patience:
        """For one call that is tried for so long: its tries do not run out before the time does."""
        more = math.ceil(seconds / MEAN_PAUSE_S)
        return cls(tries=cls().tries + more, timeouts=cls().timeouts + more, wait_s=seconds)


#: One call on its own.
SINGLE = Patience()


@dataclass(slots=True)
class Course:
    """How far one call has come."""

    patience: Patience = SINGLE
    failures: int = 0
    malformed: int = 0
    timeouts: int = 0
    #: Seconds of all pauses, and of the tries that were answered with a time to come again.
    waited: float = 0.0
    #: What the last try that failed came to, and what that says if it is a start.
    error: WeblakeError | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A try that failed, and how long to wait before the next."""

    seconds: float
    error: WeblakeError
    #: Whether what was asked for may have happened all the same.
    open: bool


@dataclass(slots=True)
class Retry:
    """The retry rules of one client."""

    budget: RetryBudget = field(default_factory=RetryBudget)
    #: A number in [0, 1): replaced in tests, so that waits can be reckoned.
    jitter: Callable[[], float] = random.random

    def call(self, operation: Operation[T], patience: Patience = SINGLE) -> Flow[T]:
        """Sends an operation until it is answered and returns its decoded value.

        Raises:
            OutcomeUnknown: It is a start, and no answer came: it may have happened.
            WeblakeError: What the service answered, or that it did not.
        """
        return self.exchange(operation, lambda r: operation.decode(responses.value_of(r, operation.name)), patience)

    def exchange(self, operation: Operation[T], read: Callable[[Reply], U], patience: Patience = SINGLE) -> Flow[U]:
        """The same with a reader of the caller's own, which gets every good reply and may refuse it by raising."""
        course = Course(patience)
        while True:
            came = yield from self.attempt(operation, read, course)
            if not isinstance(came, Pause):
                return came
            yield from sleep(came.seconds)

    def attempt(self, operation: Operation[T], read: Callable[[Reply], U], course: Course) -> Flow[U | Pause]:
        """One try of such a call; a Pause where another one may follow, which is the caller's to make or to leave."""
        patience = course.patience
        request = yield from _within(operation.request, course)
        begun = yield from now()
        reply = yield from send(request)
        value, error = _outcome(reply, operation, read)
        if error is None:
            self.budget.give()
            return value[0]
        if isinstance(reply, NoReply) and course.error is not None and (yield from _left(patience)) <= 0:
            raise _over(course.error)  # cut off by the limit, this try tells nothing: the one before it does
        course.error = error
        course.verdict = verdict(reply, error)
        course.failures += 1
        course.malformed += isinstance(error, MalformedReply)
        course.timeouts += isinstance(reply, NoReply) and (yield from now()) - begun >= request.deadline_s
        spent = (
            course.malformed >= MALFORMED_TRIES
            or course.failures >= patience.tries
            or course.timeouts >= patience.timeouts
        )
        if spent or not _again(reply, error, operation):
            raise _final(reply, error, operation)
        wait = self._wait(error, course.failures, patience)
        if not (yield from self._affordable(wait, course.waited, patience)):
            if patience.until is not None and not (isinstance(error, RetryLater) and error.retry_after is not None):
                raise _over(error)
            raise _final(reply, error, operation)
        if not self.budget.take():
            raise _final(reply, error, operation)
        course.waited += wait
        if isinstance(error, RetryLater) and error.retry_after is not None:
            course.failures -= 1  # the service is there and says when: its pace is not a failure
            course.waited += (yield from now()) - begun  # but it uses up patience, or a slow one would never end
        return Pause(wait, error, open_outcome(reply, error))

    def _wait(self, error: WeblakeError, failures: int, patience: Patience) -> float:
        if isinstance(error, RetryLater) and error.retry_after is not None:
            # At least a moment, so that "0" cannot make a busy loop, and not all callers at once.
            return error.retry_after + 0.05 + self.jitter() * min(1.0, 0.1 * error.retry_after)
        return self.jitter() * min(patience.cap_s, 0.5 * 2.0 ** min(failures - 1, 16)) + 0.05

    def _affordable(self, wait: float, waited: float, patience: Patience) -> Flow[bool]:
        if patience.until is not None:
            return wait < (yield from _left(patience))
        return waited + wait <= patience.wait_s


def _left(patience: Patience) -> Flow[float]:
    """Seconds to the job's deadline, which may have passed; infinite without one."""
    return math.inf if patience.until is None else patience.until - (yield from now())


def _within(request: Request, course: Course) -> Flow[Request]:
    """The request, its own deadline shortened to the job's."""
    left = yield from _left(course.patience)
    if left <= 0:
        raise _over(course.error)
    if left >= request.deadline_s:
        return request
    return replace(request, deadline_s=left)


def _over(error: WeblakeError | None) -> DeadlineExceeded:
    """Says that the job's time limit passed, and what the last try that told something came to; that is its cause."""
    before = "" if error is None else f"; before that: {error.message}"
    over = DeadlineExceeded(f"The time limit passed{before or '.'}", hint="Give it more time, or try again.")
    over.__cause__ = error
    return over


def _outcome(
    reply: Reply | NoReply, operation: Operation[T], read: Callable[[Reply], U]
) -> tuple[tuple[U, ...], WeblakeError | None]:
    """The value in a tuple of its own, or the error."""
    if isinstance(reply, NoReply) or not 200 <= reply.status < 300:
        return (), responses.error_of(reply, operation.name)
    try:
        return (read(reply),), None
    except WeblakeError as error:
        return (), error


def _again(reply: Reply | NoReply, error: WeblakeError, operation: Operation[T]) -> bool:
    """Whether sending it again is both useful and safe."""
    if isinstance(reply, NoReply):
        return not reply.final and (operation.repeatable or not reply.sent)
    if reply.status == 429 or responses.goes_on(reply):
        return True
    if not operation.repeatable:
        return False
    return isinstance(error, RetryLater) or (isinstance(error, MalformedReply) and reply.status < 300)


def _final(reply: Reply | NoReply, error: WeblakeError, operation: Operation[T]) -> WeblakeError:
    """The error to raise; for a start that may have happened, the one that says so."""
    if not operation.request.fresh or not open_outcome(reply, error):
        return error
    return OutcomeUnknown(
        f"{operation.name}: no clear answer came ({error.message.rstrip('.')}), so it may have been started.",
        hint=Remedy("Look for the job {in_activity} before starting it again."),
        status=error.status,
        code=error.code,
    )


def open_outcome(reply: Reply | NoReply, error: WeblakeError) -> bool:
    """Whether a start with this outcome may have happened: anything that is not evidence of the contrary."""
    return verdict(reply, error) in (Verdict.OPEN, Verdict.STOPPED)
