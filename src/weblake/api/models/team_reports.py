"""Typed views of the team's reports: activity, usage, queue."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from weblake.api.models.lenient import Model, Number


class ActivityEntry(Model, frozen=True):
    """One API call of the team."""

    #: The job's id.
    id: str | None = None
    endpoint: str | None = None
    api_version: str | None = field(name="api_version", default=None)
    created_at: str | None = field(name="created_at", default=None)
    target: str | None = None


class ActivityPage(Model, frozen=True):
    """One page of the team's API calls of the last 24 hours."""

    success: bool | None = None
    data: list[ActivityEntry] = field(default_factory=list)
    #: The cursor of the next page; None at the end.
    cursor: str | None = None
    has_more: bool | None = field(name="has_more", default=None)


class UsagePeriod(Model, frozen=True):
    """The usage of one month, of one API key if the report is split by key."""

    start_date: str | None = None
    end_date: str | None = None
    #: The name of the API key.
    api_key: str | None = None
    #: In a credit report; some services name it `credits_used`.
    total_credits: Number | None = None
    credits_used: Number | None = None
    #: In a token report; some services name it `tokens_used`.
    total_tokens: Number | None = None
    tokens_used: Number | None = None

    _fallbacks: ClassVar[dict[str, str]] = {"total_credits": "credits_used", "total_tokens": "tokens_used"}


class HistoricalUsage(Model, frozen=True):
    """Response of historical_credit_usage and historical_token_usage."""

    success: bool | None = None
    periods: list[UsagePeriod] = field(default_factory=list)


class Balance(Model, frozen=True):
    """The remaining credits or tokens of the billing period."""

    remaining_credits: Number | None = None
    plan_credits: Number | None = None
    remaining_tokens: Number | None = None
    plan_tokens: Number | None = None
    billing_period_start: str | None = None
    billing_period_end: str | None = None


class Usage(Model, frozen=True):
    """Response of credit_usage and token_usage."""

    success: bool | None = None
    data: Balance = field(default_factory=Balance)


class QueueStatus(Model, frozen=True):
    """Response of queue_status."""

    success: bool | None = None
    jobs_in_queue: Number | None = None
    active_jobs_in_queue: Number | None = None
    waiting_jobs_in_queue: Number | None = None
    max_concurrency: Number | None = None
    most_recent_success: str | None = None


class ConcurrencyCheck(Model, frozen=True):
    """Response of concurrency_check."""

    success: bool | None = None
    concurrency: int | None = None
    max_concurrency: int | None = None
