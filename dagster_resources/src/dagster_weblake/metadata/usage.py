"""Metadata of landed usage: this month's number, which Dagster's asset page plots, and a table by month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.metadata import file_uri, table_facts, table_uri
from dagster_weblake.metadata.text_format import amount, format_table, plain, typed
from weblake import orchestration

if TYPE_CHECKING:
    import weblake

#: Months of the table, keys of the breakdown.
MAX_MONTHS, MAX_KEYS = 12, 20


@dataclass(slots=True)
class Month:
    """One month of a report."""

    #: YYYY-MM, of the period's start.
    name: str
    start: datetime | None = None
    end: datetime | None = None
    #: Usage by the key's name; None if the report is not split.
    by_key: defaultdict[str | None, float] = field(default_factory=lambda: defaultdict(float))
    #: Whether it could still grow: its end is not past, neither when it was reported nor by a later month's start.
    open: bool = True

    @property
    def total(self) -> float:
        """Return the credits or tokens of all keys."""
        return sum(self.by_key.values())


def months_of(found: orchestration.Report) -> list[Month]:
    """Return the months of a report, oldest first."""
    months: dict[str, Month] = {}
    for period in found.periods:
        start, end = orchestration.parse_time(period.start_date), orchestration.parse_time(period.end_date)
        name = f"{start or end or found.reported_at:%Y-%m}"
        month = months.setdefault(name, Month(name))
        month.start = min(filter(None, (month.start, start)), default=None)
        month.end = max(filter(None, (month.end, end)), default=None)
        month.by_key[period.api_key] += orchestration.used_in(found, period)
    past = max([found.reported_at, *(month.start for month in months.values() if month.start)])
    for month in months.values():
        month.open = month.end is None or past < month.end
    return [months[name] for name in sorted(months)]


def unit_of(found: orchestration.Report) -> str:
    """Return `credits` or `tokens`."""
    return found.name.removesuffix("_by_key")


def usage_metadata(
    found: orchestration.Report,
    files: Sequence[weblake.LandedFile],
    dataset: orchestration.Dataset,
    *,
    period: str | None,
    budget: float | None,
) -> dict[str, dg.MetadataValue]:
    """Return the metadata of a landed usage report, for Dagster's pages.

    Args:
        found: The report, as it was read.
        files: Its files, as they were landed.
        dataset: The dataset of the files.
        period: The month that is materialized, YYYY-MM; None for all at once.
        budget: The limit of one month, for the plot and its readers; None for no budget.

    Returns:
        `weblake/credits` (or `weblake/tokens`) of that month, or of the newest one, as a number that Dagster plots; the
        month's limits and whether it was still open; rows, bytes and address of what was landed; `usage_by_month`, and
        `usage_by_key` if the report is split.
    """
    months, unit = months_of(found), unit_of(found)
    wanted = [file for file in files if period is None or f"/period={period}/" in f"/{file.path}"]
    month = next((each for each in reversed(months) if period in (None, each.name)), None)
    used = month.total if month else 0.0
    if period is None:
        uri: dg.MetadataValue | None = table_uri(dataset, f"usage_periods/report={found.name}")
    else:
        uri = file_uri(dataset, wanted[0].path) if wanted else None
    # The asset's page shows the entries in this order.
    return typed(
        {
            f"weblake/{unit}": float(used),
            "weblake/budget": amount(budget),
            "weblake/over_budget": None if budget is None else used > budget,
            "usage_by_month": format_table(("month", unit), [(each.name, each.total) for each in months[-MAX_MONTHS:]])
            if months
            else None,
            "usage_by_key": None if month is None else _by_key(found, month, unit),
            **({} if month is None else {"weblake/period": month.name, "weblake/period_open": month.open}),
            "weblake/period_start": month and month.start,
            "weblake/period_end": month and month.end,
            "weblake/report": found.name,
            "weblake/reported_at": found.reported_at,
            **table_facts(dataset, "usage_periods", wanted, sum(file.rows for file in wanted), period is not None),
            "dagster/uri": uri,
        }
    )


def _by_key(found: orchestration.Report, month: Month, unit: str) -> dg.MetadataValue | None:
    if not found.name.endswith("_by_key"):
        return None
    if not found.split:
        return dg.MetadataValue.text("The service did not split the report by key.")
    ranked = sorted(month.by_key.items(), key=lambda item: (-item[1], str(item[0])))
    rows = [(plain(key) if key else "(no key)", used) for key, used in ranked[:MAX_KEYS]]
    rest = ranked[MAX_KEYS:]
    if rest:
        rows.append((f"{len(rest)} more", sum(used for _, used in rest)))
    return format_table(("key", unit), rows)
