"""Which failures are worth another try, and after how long.

Every operator of this provider has it unless a DAG names another `retry_policy`. The number of retries stays the DAG's:
a policy can end them early and set the pause, and no more.
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
    WeblakeError,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Seconds before the first retry after network trouble, the most between two, and the most that is taken from
#: Retry-After: a service that says "next week" is not worth a task that waits for it.
FIRST_S, MOST_S, RETRY_AFTER_MOST_S = 15.0, 900.0, 6 * 3600.0
#: What may be added to the time that the service names, as a share of it: a thousand mapped tasks are told the same
#: time, each in a process of its own, and must not come back together.
SPREAD = 0.25


class WeblakeRetryPolicy(RetryPolicy):
    """Stops retries that cannot help and paces those that can.

    - 400, 401, 402, 403, an option outside the contract, a root that cannot be written, a start whose outcome nobody
      knows: no retry, because the same call would end the same way, or buy twice.
    - 429: after the time that the service names, in `Retry-After` or its text, and up to a quarter more.
    - Network trouble and 5xx: after a pause that doubles from 15 seconds to 15 minutes, with jitter.
    - A job that ended as failed or cancelled: as the task is configured; the retry buys a new job.
    - Anything else that is final (expired, incomplete, a broken contract, over its deadline): no retry.

    Errors that are not weblake's are left to the task's own settings.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decides by the type of the error, or of the one that it was raised from."""
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
        """Nothing to say: the scheduler only sees that there is a policy."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, object]) -> WeblakeRetryPolicy:
        """The policy; it has no settings."""
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
        return named + 1.0  # a second more: both sides round
    backoff = min(MOST_S, FIRST_S * 2.0 ** min(max(0, try_number - 1), 16))
    return max(named, backoff * (0.5 + 0.5 * random.random()))  # noqa: S311


def _name(error: WeblakeError) -> str:
    status = f" ({error.status})" if error.status else ""
    return f"{type(error).__name__}{status}"
