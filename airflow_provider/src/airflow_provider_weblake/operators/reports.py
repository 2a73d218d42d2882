"""Operators that land the service's reports on the team: usage by month and recent activity."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING

from airflow_provider_weblake.operators.base import DatasetOperator, number_of
from airflow_provider_weblake.retry_policy import policy_applied
from weblake import errors, orchestration

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from weblake.orchestration import Report

#: Periods that go into XCom: one year.
MAX_PERIODS = 12
#: The default `period` in messages.
RUNNING = "the running month"


class WeblakeUsageOperator(DatasetOperator):
    """Lands the team's usage by month: one file a month in `usage_periods`, replaced whole.

    Reading usage costs nothing. Retries, Clears and several runs at once are harmless: each writes whole months, and
    the last one stays. A task that is marked failed leaves no work at the service.

    Returns `{"report", "periods": [{"period", "total", "rows"}, …], "total_current", "over_budget", "split", "files":
    [{"path", "rows", "bytes"}, …]}`: the newest twelve months and their files, newest first. `total_current` is that of
    the running month, 0 if nothing was used in it yet; with `period` there are also `period` and its `total`. `split`
    is false if a report by key was asked for and the service did not split it.

    :param report: `credits` or `tokens`. Default `credits` (templated).
    :param by_api_key: Splits the report by API key; a report of its own, `credits_by_key` or `tokens_by_key`.
    :param to: The dataset's root; without it the report is only returned (templated).
    :param period: The month that is compared with the budget, as `2026-10` or any day of it; a run of a schedule gives
        its own, so that a catch-up compares each month. Default: the running month (templated).
    :param budget: Credits or tokens that this month may use: over it, `over_budget` is true (templated).
    :param fail_over_budget: Fails the task, with no retry, when the budget is passed; the report has landed by then,
        but the task's assets are not told, since it failed. Default False.
    :param weblake_conn_id: The connection. Default `weblake_default` (templated).
    """

    template_fields: Sequence[str] = (*DatasetOperator.template_fields, "report", "period", "budget")

    def __init__(
        self,
        *,
        report: str = "credits",
        by_api_key: bool = False,
        period: str | None = None,
        budget: float | str | None = None,
        fail_over_budget: bool = False,
        to: str | ObjectStoragePath | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(to=to, **kwargs)  # type: ignore[arg-type]
        self.report = report
        self.by_api_key = by_api_key
        self.period = period
        self.budget = budget
        self.fail_over_budget = fail_over_budget

    @policy_applied
    def execute(self, context: Context) -> dict[str, object]:
        """Read the report, land it and compare it with the budget."""
        with self.service() as client:
            if self.report not in ("credits", "tokens"):
                raise errors.InvalidOption(f"There is no report of {self.report!r}.", hint="Give credits or tokens.")
            month, budget = _month_of(self.period), number_of("budget", self.budget)
            dataset = self.dataset() if self.to else None
            found = client.run(
                orchestration.report(self.report, client.retry, by_api_key=self.by_api_key, budget=budget)
            )
            if not found.split:
                self.log.warning("The service did not split the report by API key, although it was asked to.")
            files = orchestration.land_report(found, dataset) if dataset is not None else []
            months, current = _totals(found), found.used
            total = current if month is None else sum(months.get(month, ()))
            name = month or RUNNING
            self.log.info("%s: %g used in %s; months read: %d.", found.name, total, name, len(months))
            over = budget is not None and total > budget
            done: dict[str, object] = {
                "report": found.name,
                "periods": [
                    {"period": each, "total": sum(months[each]), "rows": len(months[each])}
                    for each in sorted(months, reverse=True)[:MAX_PERIODS]
                ],
                "total_current": current,
                **({} if month is None else {"period": month, "total": total}),
                "over_budget": over,
                "split": found.split,
                "files": [asdict(file) for file in reversed(files[-MAX_PERIODS:])],
            }
            if over:
                text = f"{total:g} {self.report} are used in {name}, over the budget of {budget:g}."
                self.log.warning(text)
                if self.fail_over_budget:
                    raise errors.CreditsExhausted(text, hint="Stop the tasks that use them, or raise the budget.")
            return self.report_landed(context, done) if files else done


class WeblakeActivityOperator(DatasetOperator):
    """Lands the team's calls of the last 24 hours: one file a UTC day in `activity`, merged by call and replaced whole.

    Reading activity costs nothing. The service lists a call for 24 hours, so run this at least daily. Retries, Clears
    and several runs at once lose nothing and double nothing. A task that is marked failed leaves no work at the
    service.

    Returns `{"entries", "files": [{"path", "rows", "bytes"}, …]}`: the calls that were read, and the files they are in.

    :param to: The dataset's root (templated).
    :param endpoint: Only calls of this kind: `scrape`, `crawl`, `batch_scrape`, `map` and so on (templated).
    :param weblake_conn_id: The connection. Default `weblake_default` (templated).
    """

    template_fields: Sequence[str] = (*DatasetOperator.template_fields, "endpoint")

    def __init__(self, *, to: str | ObjectStoragePath, endpoint: str | None = None, **kwargs: object) -> None:
        super().__init__(to=to, **kwargs)  # type: ignore[arg-type]
        self.endpoint = endpoint

    @policy_applied
    def execute(self, context: Context) -> dict[str, object]:
        """Read the whole activity list and land it."""
        with self.service() as client:
            dataset = self.dataset()
            entries = client.run(orchestration.activity(client.retry, endpoint=self.endpoint or None))
            files = orchestration.land_activity(entries, dataset)
            self.log.info("Calls of the last 24 hours: %d; files written: %d.", len(entries), len(files))
            done: dict[str, object] = {"entries": len(entries), "files": [asdict(file) for file in files]}
            return self.report_landed(context, done) if files else done


def _month_of(period: str | None) -> str | None:
    """Return the month of `period`, None for the running one; raise InvalidOption if it is neither month nor day."""
    if period is None:
        return None
    with suppress(ValueError):
        return f"{date.fromisoformat(f'{str(period).strip()}-01'[:10]):%Y-%m}"
    raise errors.InvalidOption(f"period is {period!r}.", hint="Give a month or a day, such as 2026-10 or 2026-10-31.")


def _totals(found: Report) -> dict[str, list[float]]:
    """Return the totals of the rows by month, as in the files' paths."""
    months: dict[str, list[float]] = {}
    for period in found.periods:
        start, end = orchestration.parse_time(period.start_date), orchestration.parse_time(period.end_date)
        month = f"{start or end or found.reported_at:%Y-%m}"
        months.setdefault(month, []).append(orchestration.used_in(found, period))
    return months
