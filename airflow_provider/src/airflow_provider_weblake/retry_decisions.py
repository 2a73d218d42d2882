"""The decisions of a retry policy, as Airflow 3.3 has them; imported by `features` on older releases only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class RetryAction(str, Enum):
    """What a policy can decide."""

    RETRY = "retry"
    FAIL = "fail"
    DEFAULT = "default"


@dataclass(frozen=True)
class RetryDecision:
    """The decision about one error."""

    action: RetryAction
    retry_delay: timedelta | None = None
    reason: str | None = None

    @classmethod
    def retry(cls, delay: timedelta | None = None, reason: str | None = None) -> RetryDecision:
        """Return the decision to retry, after this time."""
        return cls(RetryAction.RETRY, delay, reason)

    @classmethod
    def fail(cls, reason: str | None = None) -> RetryDecision:
        """Return the decision to fail without a retry."""
        return cls(RetryAction.FAIL, reason=reason)

    @classmethod
    def default(cls) -> RetryDecision:
        """Return the decision to do as the task is configured."""
        return cls(RetryAction.DEFAULT)


class RetryPolicy:
    """The base class of policies."""
