"""How long a task of an orchestrator waits for a service that has named a time, in Retry-After or its text."""

from __future__ import annotations

import random

from weblake.errors import RetryLater, WeblakeError

#: The longest named time that is accepted, in seconds: a task must not wait for a service that names a week.
MAX_RETRY_AFTER_S = 6 * 3600.0
#: The maximum addition to the named time, as a share of it: a thousand tasks get the same time, each in a process of
#: its own, and must not return all at once.
SPREAD = 0.25


def named_pause(error: WeblakeError) -> float:
    """Return the seconds to wait if the service named a time, with jitter; 0.0 if it named none."""
    if not isinstance(error, RetryLater) or error.retry_after is None:
        return 0.0
    spread = 1 + SPREAD * random.random()  # noqa: S311  # jitter, no secret
    return min(error.retry_after, MAX_RETRY_AFTER_S) * spread + 1.0  # plus a second, because both sides round


def longest_named_pause() -> float:
    """Return the maximum of `named_pause`, in seconds."""
    return MAX_RETRY_AFTER_S * (1 + SPREAD) + 1.0
