"""The retry policies of the operators: which failures are retried, and after how long.

Every operator of this provider uses one of them unless a DAG sets another `retry_policy`. The DAG sets the number of
retries; the policy can only end them early and set the pause.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import RetryDecision, RetryPolicy

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

#: Seconds before the first retry after network trouble, the maximum between two, and the maximum that is accepted from
#: Retry-After: a task must not wait for a service that names a week.
FIRST_S, MOST_S, RETRY_AFTER_MOST_S = 15.0, 900.0, 6 * 3600.0
#: The maximum addition to the time that the service names, as a share of it: a thousand mapped tasks get the same time,
#: each in a process of its own, and must not retry all at once.
SPREAD = 0.25


class WeblakeRetryPolicy(RetryPolicy):
    """Stops retries that cannot help and paces those that can.

    - 400, 401, 402, 403, an option outside the contract, a root that cannot be written, a start whose outcome is
      unknown: no retry, because the same call would end the same way, or buy twice.
    - 429: after the time that the service names, in `Retry-After` or its text, and up to a quarter more.
    - Network trouble and 5xx: after a pause that doubles from 15 seconds to 15 minutes, with jitter.
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
            return RetryDecision.default()
        if isinstance(error, RetryLater):
            pause = _pause(error, try_number)
            return RetryDecision.retry(delay=timedelta(seconds=pause), reason=f"{_name(error)}: again in {pause:.0f} s")
        if isinstance(error, AskPerson | FixRequest):
            return RetryDecision.fail(reason=f"{_name(error)}: a retry would end the same way")
        return RetryDecision.fail(reason=f"{_name(error)}: it is over; clear the task to decide anew")

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
            return RetryDecision.default()
        return super().evaluate(exception, try_number, max_tries, context)

    @classmethod
    def deserialize(cls, data: dict[str, object]) -> TableSyncRetryPolicy:
        """Return the policy, which has no settings."""
        return cls()


def _weblake_error(exception: BaseException) -> WeblakeError | None:
    seen: set[int] = set()
    found: BaseException | None = exception
    while found is not None and id(found) not in seen:
        if isinstance(found, WeblakeError):
            return found
        seen.add(id(found))
        found = found.__cause__
    return None


def _pause(error: RetryLater, try_number: int) -> float:
    named = min(error.retry_after or 0.0, RETRY_AFTER_MOST_S)
    named *= 1 + SPREAD * random.random()  # noqa: S311  # jitter, no secret
    if isinstance(error, RateLimited) and error.retry_after is not None:
        return named + 1.0  # plus a second, because both sides round
    backoff = min(MOST_S, FIRST_S * 2.0 ** min(max(0, try_number - 1), 16))
    return max(named, backoff * (0.5 + 0.5 * random.random()))  # noqa: S311


def _name(error: WeblakeError) -> str:
    status = f" ({error.status})" if error.status else ""
    return f"{type(error).__name__}{status}"
