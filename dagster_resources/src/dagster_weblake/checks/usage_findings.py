"""The finding of the check of a month's budget."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.checks.findings import Finding, UnreadableError, opened
from dagster_weblake.metadata.text_format import amount, number, real, text

if TYPE_CHECKING:
    from weblake.orchestration import Dataset


def usage_under_budget(dataset: Dataset, report: str, budget: float) -> Finding:
    """The current month has used no more than its budget so far."""
    unit = report.removesuffix("_by_key")
    month = f"{datetime.now(timezone.utc):%Y-%m}"
    name = f"usage_periods/report={report}/period={month}/usage.parquet"
    limit = {"budget": real(budget), "period": text(month)}
    if not dataset.exists(name):
        says = f"No usage of {month} has landed yet ({name} is not there). Materialize the asset for this month."
        return Finding(passed=False, says=says, metadata=limit, unknown=True)
    try:
        with opened(dataset, name) as file:
            table = file.read(columns=[f"total_{unit}", "reported_at"])
    except UnreadableError as error:
        return Finding(passed=False, says=f"{error} Materialize the asset for {month} again.", metadata=limit)
    used = sum(amount(value) or 0.0 for value in table.column(f"total_{unit}").to_pylist())
    reported = max((at for at in table.column("reported_at").to_pylist() if at is not None), default=None)
    found = limit | {unit: real(used), "left": real(budget - used)}
    if reported is not None:
        found["reported_at"] = dg.MetadataValue.timestamp(reported)
    when = f", reported {reported:%Y-%m-%d %H:%M} UTC" if reported is not None else ""
    return Finding(
        passed=used <= budget,
        says=f"{month} has used {number(used)} of {number(budget)} {unit} so far{when}.",
        metadata=found,
    )
