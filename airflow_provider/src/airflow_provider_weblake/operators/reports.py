"""Operators that land the service's reports on the team: usage by month and recent activity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_provider_weblake import lineage
from airflow_provider_weblake.operators.base import WeblakeOperator
from airflow_provider_weblake.storage import dataset_of_task
from weblake import errors, orchestration

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context, ObjectStoragePath
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import RunFacet

    from weblake.orchestration import Report

#: Periods that go into XCom: one year.
NEWEST = 12


class ReportOperator(WeblakeOperator):
    """Lands a report of the service; base class of the two report operators.

    :param to: The dataset's root: a local path, or a storage URL whose user part names an Airflow connection, as in
        `s3://aws_default@lake/web`, or an ObjectStoragePath (templated).
    """

    template_fields: Sequence[str] = (*WeblakeOperator.template_fields, "to")

    def __init__(self, *, to: str | ObjectStoragePath | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.to = to
        self.landed: dict[str, object] | None = None

    def get_openlineage_facets_on_complete(self, task_instance: object) -> OperatorLineage[Dataset, RunFacet] | None:
        """Return the OpenLineage metadata: files, rows and columns."""
        if self.landed is None:
            return None
        return lineage.openlineage_of(self.landed, str(self.to), None)

    def finish(self, context: Context, landed: dict[str, object]) -> dict[str, object]:
        """Report the landed files to the task's assets and XCom; return the result."""
        self.landed = landed
        lineage.outlets_changed(context, landed)
        return landed


class WeblakeUsageOperator(ReportOperator):
    """Lands the team's usage by month: one file a month in `usage_periods`, replaced whole.

    Reading usage costs nothing. Retries, Clears and several runs at once are harmless: each writes whole months, and
    the last one stays. A task that is marked failed leaves no work at the service.

    Returns `{"report", "periods": [{"period", "total", "rows"}, …], "total_current", "over_budget", "split", "files":
    [{"path", "rows", "bytes"}, …]}`: the newest twelve months and their files, newest first. `total_current` is that of
    the running month, 0 if nothing was used in it yet; `split` is false if a report by key was asked for and the
    service did not split it.

    :param report: `credits` or `tokens`. Default `credits` (templated).
    :param by_api_key: Splits the report by API key; a report of its own, `credits_by_key` or `tokens_by_key`.
    :param to: The dataset's root; without it the report is only returned (templated).
    :param budget: Credits or tokens that the running month may use: over it, `over_budget` is true (templated).
    :param fail_over_budget: Fails the task, with no retry, when the budget is passed; the report has landed by then,
        but the task's assets are not told, since it failed. Default False.
    :param weblake_conn_id: The connection. Default `weblake_default` (templated).
    """

    template_fields: Sequence[str] = (*ReportOperator.template_fields, "report", "budget")

    def __init__(
        self,
        *,
        report: str = "credits",
        by_api_key: bool = False,
        budget: float | str | None = None,
        fail_over_budget: bool = False,
        to: str | ObjectStoragePath | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(to=to, **kwargs)
        self.report = report
        self.by_api_key = by_api_key
        self.budget = budget
        self.fail_over_budget = fail_over_budget

    def execute(self, context: Context) -> dict[str, object]:
        """Read the report, land it and compare it with the budget."""
        with self.service() as client:
            if self.report not in ("credits", "tokens"):
                raise errors.InvalidOption(f"There is no report of {self.report!r}.", hint="Give credits or tokens.")
            budget = _budget(self.budget)
            dataset = dataset_of_task(self.to) if self.to else None
            found = client.run(orchestration.report(self.report, client.retry, by_api_key=self.by_api_key))
            if not found.split:
                self.log.warning("The service did not split the report by API key, although it was asked to.")
            files = orchestration.land_report(found, dataset) if dataset is not None else []
            months = _months(found)
            current = _current(found, months)
            over = budget is not None and current > budget
            self.log.info("%s: %g used in the running month, in %d months in all.", found.name, current, len(months))
            done = {
                "report": found.name,
                "periods": [
                    {"period": month, "total": sum(months[month].values()), "rows": len(months[month])}
                    for month in sorted(months, reverse=True)[:NEWEST]
                ],
                "total_current": current,
                "over_budget": over,
                "split": found.split,
                "files": [asdict(file) for file in reversed(files[-NEWEST:])],
            }
            if over:
                self._over(current, budget)
            return self.finish(context, done) if files else done

    def _over(self, current: float, budget: float | None) -> None:
        text = f"{current:g} {self.report} are used in the running month, over the budget of {budget:g}."
        self.log.warning(text)
        if self.fail_over_budget:
            raise errors.CreditsExhausted(text, hint="Stop what spends them, or raise the budget.")


class WeblakeActivityOperator(ReportOperator):
    """Lands the team's calls of the last 24 hours: one file a UTC day in `activity`, merged by id and replaced whole.

    Reading activity costs nothing. The service lists a call for 24 hours, so run this at least daily. Retries, Clears
    and several runs at once lose nothing and double nothing. A task that is marked failed leaves no work at the
    service.

    Returns `{"entries", "files": [{"path", "rows", "bytes"}, …]}`: the calls that were read, and the files they are in.

    :param to: The dataset's root (templated).
    :param endpoint: Only calls of this kind: `scrape`, `crawl`, `batch_scrape`, `map` and so on (templated).
    :param weblake_conn_id: The connection. Default `weblake_default` (templated).
    """

    template_fields: Sequence[str] = (*ReportOperator.template_fields, "endpoint")

    def __init__(self, *, to: str | ObjectStoragePath, endpoint: str | None = None, **kwargs: object) -> None:
        super().__init__(to=to, **kwargs)
        self.endpoint = endpoint

    def execute(self, context: Context) -> dict[str, object]:
        """Read the whole activity list and land it."""
        with self.service() as client:
            if not self.to:
                raise errors.InvalidOption("`to` is empty.", hint="Give the root of the dataset to land in.")
            dataset = dataset_of_task(self.to)
            entries = client.run(orchestration.activity(client.retry, endpoint=self.endpoint or None))
            files = orchestration.land_activity(entries, dataset)
            self.log.info("%d calls of the last 24 hours, in %d files.", len(entries), len(files))
            done: dict[str, object] = {"entries": len(entries), "files": [asdict(file) for file in files]}
            return self.finish(context, done) if files else done


def _months(found: Report) -> dict[str, dict[tuple[str | None, str | None], float]]:
    """Return totals by month (as in the files' paths) and row."""
    months: dict[str, dict[tuple[str | None, str | None], float]] = {}
    for period in found.periods:
        total = period.total_credits if found.name.startswith("credits") else period.total_tokens
        start, end = orchestration.parse_time(period.start_date), orchestration.parse_time(period.end_date)
        month = months.setdefault(f"{start or end or found.reported_at:%Y-%m}", {})
        month[(period.start_date, period.api_key)] = float(total or 0)
    return months


def _current(found: Report, months: Mapping[str, Mapping[tuple[str | None, str | None], float]]) -> float:
    """Return the usage of the current period, which need not begin with a month."""
    now = found.reported_at
    running: dict[tuple[str | None, str | None], float] = {}
    for period in found.periods:
        start, end = orchestration.parse_time(period.start_date), orchestration.parse_time(period.end_date)
        month = f"{start or end or now:%Y-%m}"
        # The reported end may be the first moment after the period or its last day.
        if month == f"{now:%Y-%m}" or (start is not None and end is not None and start <= now < end):
            key = (period.start_date, period.api_key)
            running[key] = months[month][key]
    return sum(running.values())


def _budget(given: float | str | None) -> float | None:
    """Return the budget as a number; a template leaves a number as text, and no value as an empty text."""
    if given is None or (isinstance(given, str) and given.strip().lower() in ("", "none")):
        return None
    try:
        budget = float(given)
    except ValueError:
        budget = math.nan
    if math.isnan(budget):  # no total would ever be over it
        raise errors.InvalidOption(
            f"budget is {given!r}.", hint="Give a number of credits or tokens, or a template that renders to one."
        )
    return budget
