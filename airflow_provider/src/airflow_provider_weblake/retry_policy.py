"""The retry policies of the operators: which failures are retried, and after how long.

Every operator of this provider uses one of them unless a DAG sets another `retry_policy`. The DAG sets the number of
retries; the policy can only end them early and set the pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_weblake.features import (
    RETRY_POLICIES,
    AirflowFailException,
    RetryAction,
    RetryDecision,
    RetryPolicy,
)
from airflow_provider_weblake.remedies import in_airflow_terms
from weblake import orchestration
from weblake.errors import (
    AskPerson,
    FixRequest,
    JobEnded,
    RateLimited,
    RetryLater,
    StorageRefused,
    WeblakeError,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

M = TypeVar("M", bound=Callable[..., object])

#: Seconds before the first retry after network trouble, and the maximum between two.
FIRST_S, MAX_BACKOFF_S = 15.0, 900.0
#: The longest delay of a task with exponential backoff, unless it sets `max_retry_delay`, as Airflow has it.
MAX_RETRY_DELAY = timedelta(days=1)
#: Seconds for which a task pauses again and again for a busy service, before that counts as a failed try; only where
#: Airflow has no retry policies.
MAX_TOTAL_PAUSE_S = 24 * 3600.0


class WeblakeRetryPolicy(RetryPolicy):
    """Stops retries that cannot help and paces those that can.

    - 400, 401, 402, 403, an option outside the contract, a root that cannot be written, a start whose outcome is
      unknown: no retry, because the same call would end the same way, or buy twice.
    - 429: after the time that the service names, in `Retry-After` or its text, and up to a quarter more.
    - Network trouble and 5xx: after a pause that doubles from 15 seconds to 15 minutes, with jitter.
    - Both: never sooner than the task's `retry_delay`, with its `retry_exponential_backoff` and `max_retry_delay`.
    - A job that ended as failed or cancelled: as the task is configured; the retry buys a new job.
    - Any other final error (expired, incomplete, a broken contract, past its deadline): no retry.

    Errors of other libraries are left to the task's own settings.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Return the decision for an error, by its type or the type of its cause."""
        error = _weblake_error(exception)
        if error is None or isinstance(error, JobEnded):
            return RetryDecision(RetryAction.DEFAULT)
        if isinstance(error, RetryLater):
            task = context.get("task") if context and RETRY_POLICIES else None  # older releases apply its settings
            pause = max(_pause(error, try_number, task), _delay_of_task(task, try_number))
            return RetryDecision(RetryAction.RETRY, timedelta(seconds=pause), f"{_name(error)}: again in {pause:.0f} s")
        if isinstance(error, AskPerson | FixRequest):
            return RetryDecision(RetryAction.FAIL, reason=f"{_name(error)}: a retry would end the same way")
        return RetryDecision(RetryAction.FAIL, reason=f"{_name(error)}: it is over; clear the task to decide anew")

    def serialize(self) -> dict[str, object]:
        """Return an empty dict: the scheduler only needs to know that there is a policy."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, object]) -> WeblakeRetryPolicy:
        """Return the policy, which has no settings."""
        return cls()


class TableSyncRetryPolicy(WeblakeRetryPolicy):
    """The policy of WeblakeTableSyncOperator, whose retries are free and cannot double anything.

    A storage, table or catalog that cannot be used, or in which other programs committed first: as the task is
    configured. Anything else: as WeblakeRetryPolicy.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Return the decision for an error, by its type or the type of its cause."""
        if isinstance(_weblake_error(exception), StorageRefused):
            return RetryDecision(RetryAction.DEFAULT)
        return super().evaluate(exception, try_number, max_tries, context)


def policy_argument(policy: RetryPolicy) -> dict[str, Any]:
    """Return the argument with which Airflow's base operator takes a policy; empty where it knows no policies."""
    return {"retry_policy": policy} if RETRY_POLICIES else {}


def policy_applied(method: M) -> M:
    """Return an operator's method whose errors are worded for Airflow, and decided about where Airflow does not do so.

    What the task's policy decides, Airflow does since 3.3. Before, an error that must not be retried becomes an
    AirflowFailException. A task that a busy service has told to wait is deferred for that time if it is deferrable, and
    otherwise waits in its worker and runs the method again; neither uses up one of its tries. The pause before a retry
    after other errors is the task's `retry_delay`.

    :param method: `execute`, or a method that Airflow calls after a deferral.
    """

    @wraps(method)
    def applied(operator: Any, context: Context, *args: object, **kwargs: Any) -> object:
        since: float | None = kwargs.get("paused_since")
        while True:
            try:
                with in_airflow_terms():
                    return method(operator, context, *args, **kwargs)
            except AirflowFailException:
                raise
            except Exception as error:  # a policy may decide about any
                if RETRY_POLICIES:
                    raise
                seconds = _pause_after(error, operator, context)
                since = since or time.time()
                if seconds is None or time.time() + seconds - since > MAX_TOTAL_PAUSE_S:
                    raise
            if getattr(operator, "deferrable", False):
                _defer(operator, seconds, since)
            time.sleep(seconds)

    return cast("M", applied)


def _pause_after(error: Exception, operator: Any, context: Context) -> float | None:
    """Return the seconds to wait for a busy service, or None if Airflow has to decide; raise if no retry can help."""
    ti = context["ti"]
    decision = operator.retry_policy.evaluate(error, ti.try_number, ti.max_tries, context)
    busy = decision.action is RetryAction.RETRY and isinstance(_weblake_error(error), RateLimited)
    # Of other retries, Airflow decides whether and when: the log must not promise them.
    if decision.reason and (busy or decision.action is RetryAction.FAIL):
        operator.log.info("Retry policy decision: %s (%s)", decision.action.value, decision.reason)
    if decision.action is RetryAction.FAIL:
        raise AirflowFailException(str(error)) from error
    if busy:
        return decision.retry_delay.total_seconds() if decision.retry_delay else FIRST_S
    return None


def _defer(operator: Any, seconds: float, since: float) -> None:
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    moment = datetime.fromtimestamp(time.time() + seconds, timezone.utc)
    operator.defer(trigger=DateTimeTrigger(moment), method_name="execute_after_pause", kwargs={"paused_since": since})


def _weblake_error(exception: BaseException) -> WeblakeError | None:
    seen: set[int] = set()
    found: BaseException | None = exception
    while found is not None and id(found) not in seen:
        if isinstance(found, WeblakeError):
            return found
        seen.add(id(found))
        found = found.__cause__
    return None


def _pause(error: RetryLater, try_number: int, task: Any) -> float:
    named = orchestration.named_pause(error)
    if isinstance(error, RateLimited) and error.retry_after is not None:
        return named
    longest = min(MAX_BACKOFF_S, (getattr(task, "max_retry_delay", None) or MAX_RETRY_DELAY).total_seconds())
    backoff = min(longest, FIRST_S * 2.0 ** min(max(0, try_number - 1), 16))
    return max(named, backoff * (0.5 + 0.5 * random.random()))  # noqa: S311


def _delay_of_task(task: Any, try_number: int) -> float:
    """Return the seconds after which Airflow would retry the task without a policy, by its formula; 0 for no task."""
    delay, growth = (task.retry_delay, task.retry_exponential_backoff) if task else (timedelta(0), 0)
    if growth in (0, 1) and growth is not True:  # True doubles the delay
        return cast("float", delay.total_seconds())
    growth = (2.0 if growth is True else growth) ** min(max(0, try_number - 1), 100) * (1 + random.random())  # noqa: S311
    return cast("float", min(delay.total_seconds() * growth, (task.max_retry_delay or MAX_RETRY_DELAY).total_seconds()))


def _name(error: WeblakeError) -> str:
    status = f" ({error.status})" if error.status else ""
    return f"{type(error).__name__}{status}"
