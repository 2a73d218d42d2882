"""Read usage periods and activity from the service.

loads/usage.py lands them. It is a separate module because a triggerer, which only reads, must not load Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TypeVar

from msgspec import structs

from weblake.api import responses
from weblake.api.models import ActivityEntry, ActivityPage, UsagePeriod, parse_time
from weblake.api.operation import Operation
from weblake.api.operations import historical_credit_usage, historical_token_usage, list_activity
from weblake.api.options import ActivityOptions
from weblake.api.steps import Flow, Response, now
from weblake.errors import DeadlineExceeded, MalformedReply, Remedy
from weblake.events import UsageReported
from weblake.jobs.retry import Retry, RetryPolicy

M = TypeVar("M")

#: Maximum number of pages of the activity list that are read, with 100 entries each.
MAX_PAGES = 1000
#: Seconds after which no further page is requested; a page that was requested before is still awaited.
LISTING_S = 900.0


@dataclass(frozen=True, slots=True)
class Report:
    """A usage report, with one row for each period and name of an API key."""

    #: `credits`, `tokens`, `credits_by_key` or `tokens_by_key`.
    name: str
    periods: tuple[UsagePeriod, ...]
    reported_at: datetime

    @property
    def split(self) -> bool:
        """False if a report by key was requested and the service ignored that; some services do."""
        return not self.name.endswith("_by_key") or not self.periods or any(p.api_key for p in self.periods)

    @property
    def used(self) -> float:
        """Credits or tokens that the running period has used.

        The period need not begin with a month. Its reported end may be the first moment after it or its last day.
        """
        now = self.reported_at
        return sum(used_in(self, period) for period in self.periods if _is_running(period, now))


def row_key(period: UsagePeriod) -> tuple[str | None, ...]:
    """Return what identifies a row of a report: its start and the name of its API key. Without a start, its end."""
    return period.start_date, None if period.start_date else period.end_date, period.api_key


def used_in(found: Report, period: UsagePeriod) -> float:
    """Return the credits or tokens of one row of a report."""
    return float((period.total_credits if found.name.startswith("credits") else period.total_tokens) or 0)


def _is_running(period: UsagePeriod, now: datetime) -> bool:
    start, end = parse_time(period.start_date), parse_time(period.end_date)
    if f"{start or end or now:%Y-%m}" == f"{now:%Y-%m}":
        return True
    return start is not None and end is not None and start <= now < end


def report(what: str, retry: Retry, *, by_api_key: bool = False, budget: float | None = None) -> Flow[Report]:
    """Return the usage of credits or tokens, by month; observers get it together with the budget of the month.

    Rows with the same period and key name are added up, because two keys may have the same name.

    Raises:
        MalformedReply: The service did not answer with a report. Read as empty, it would be below each budget.
    """
    name = f"{what}_by_key" if by_api_key else what
    operation = (historical_credit_usage if what == "credits" else historical_token_usage)(by_api_key=by_api_key)
    periods = yield from retry.exchange(
        operation, lambda reply: _decode_whole(operation, reply, "periods", "a report of usage")[1].periods
    )
    rows: dict[tuple[str | None, ...], UsagePeriod] = {}
    for row in periods:
        same = rows.get(row_key(row))
        rows[row_key(row)] = row if same is None else _add(same, row)
    found = Report(name, tuple(rows.values()), datetime.now(timezone.utc))
    retry.observe(UsageReported(report=name, used=found.used, budget=budget))
    return found


def _decode_whole(operation: Operation[M], reply: Response, field: str, what: str) -> tuple[dict[str, object], M]:
    """Return the JSON object of a response and its typed form, if that has each entry of the list in `field`.

    Raises:
        MalformedReply: There is no such list, or some of its entries cannot be read.
    """
    value = responses.value_of(reply, operation.name)
    found = operation.decode(value)
    listed = value.get(field) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(listed, list) or len(getattr(found, field)) < len(listed):
        raise MalformedReply(f"{operation.name}: the service did not answer with {what}.")
    return value, found


def _add(one: UsagePeriod, other: UsagePeriod) -> UsagePeriod:
    return structs.replace(
        one,
        end_date=max(one.end_date, other.end_date) if one.end_date and other.end_date else one.end_date,
        total_credits=_sum(one.total_credits, other.total_credits),
        total_tokens=_sum(one.total_tokens, other.total_tokens),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class ClosedPeriod:
    """A usage period that has closed, so its total does not change any more."""

    start: datetime
    #: The first moment after the period.
    end: datetime
    #: Credits or tokens, depending on the report.
    total: float

    @property
    def month(self) -> str:
        """The month in the form of the dataset layout, such as 2026-11."""
        return f"{self.start:%Y-%m}"


def closed_periods(found: Report, now: datetime) -> list[ClosedPeriod]:
    """Return the periods of a report that have closed, oldest first; rows of one period are added up.

    A period has closed if its end is past, or if the service, by its own clock, reports a later period.

    Args:
        found: The report.
        now: The current time, timezone-aware, UTC.
    """
    totals: dict[tuple[datetime, datetime], float] = {}
    for row in found.periods:
        start, end = parse_time(row.start_date), parse_time(row.end_date)
        if start is None or end is None:
            continue
        totals[start, end] = totals.get((start, end), 0) + used_in(found, row)
    past = max([now, *(start for start, _ in totals)])
    return [ClosedPeriod(start, end, total) for (start, end), total in sorted(totals.items()) if end <= past]


@dataclass(frozen=True, slots=True)
class Listing:
    """The complete activity list, or that of one endpoint."""

    #: Each entry with the seconds by which the service's clock was ahead of the local clock.
    entries: tuple[tuple[ActivityEntry, float], ...]
    #: When the end of the list was read, by the local clock in seconds since 1970, and its difference as in `entries`.
    at: float
    ahead_s: float


def read_listing(retry: Retry, endpoint: str | None = None, policy: RetryPolicy | None = None) -> Flow[Listing]:
    """Return the complete activity list, or the entries of one endpoint.

    Raises:
        MalformedReply: The list loops or does not end, or a page of it cannot be read: an incomplete list would suggest
            that a call was never made.
        DeadlineExceeded: Reading the list took longer than LISTING_S.
    """
    until = (yield from now()) + LISTING_S
    entries: list[tuple[ActivityEntry, float]] = []
    options: ActivityOptions = {"limit": 100}
    if endpoint is not None:
        options["endpoint"] = endpoint  # type: ignore[typeddict-item]  # checked when it is built
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        operation = list_activity(**options)
        page, ahead_s = yield from retry.exchange(operation, partial(_read_page, operation), policy)
        entries += [(entry, ahead_s) for entry in page.data]
        if not page.cursor or page.has_more is False:
            return Listing(tuple(entries), (yield from now(wall=True)), ahead_s)
        if page.cursor in seen:
            break
        seen.add(page.cursor)
        options["cursor"] = page.cursor
        if (yield from now()) >= until:
            raise DeadlineExceeded(
                f"The activity list was not read to its end in {LISTING_S:.0f} s.", hint=Remedy("{run_again} later.")
            )
    raise MalformedReply("The activity list of the service does not end.")


def activity(retry: Retry, *, endpoint: str | None = None) -> Flow[list[ActivityEntry]]:
    """Return all entries of the activity list, or those of one endpoint, each once; raises as `read_listing`."""
    listing = yield from read_listing(retry, endpoint)
    entries: dict[tuple[object, ...], ActivityEntry] = {}
    for entry, _ in listing.entries:
        # Several calls may have the id of one job: URLs are appended to a batch.
        key = (entry.id, entry.endpoint, entry.created_at) if entry.id else (str(entry.raw),)
        entries.setdefault(key, entry)
    return list(entries.values())


def _read_page(operation: Operation[ActivityPage], reply: Response) -> tuple[ActivityPage, float]:
    """Return a page of the activity list, and the seconds by which the service's clock is ahead of the local clock.

    Raises:
        MalformedReply: It is not a list of calls, or says that there are more without a cursor.
    """
    value, page = _decode_whole(operation, reply, "data", "a list of jobs")
    odd_cursor = page.cursor is None and value.get("cursor") is not None
    if odd_cursor or (page.has_more and not page.cursor):
        raise MalformedReply(f"{operation.name}: the service did not answer with a list of jobs.")
    return page, responses.clock_ahead_s(reply) or 0.0
