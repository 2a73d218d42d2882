"""Metadata of landed usage: this month's number, a table and a chart by month.

Dagster's asset page plots a numeric entry by itself, over time or by partition, once more than one event has it. The
chart is available from the first event on, and has all months: an SVG in the text, small enough to be shown unfolded.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.metadata import file_uri, table_facts, table_uri
from dagster_weblake.metadata.text_format import amount, format_table, number, plain, typed
from weblake import orchestration

if TYPE_CHECKING:
    import weblake
    from weblake import orchestration

#: Months of the chart and of the table beside it, keys of the breakdown.
MAX_MONTHS, MAX_KEYS = 12, 20
#: Pixels of the chart, which fits the column of a page that is 1400 wide, and from one bar to the next.
_WIDTH, _HEIGHT, _STEP = 326, 110, 27


@dataclass(frozen=True, slots=True)
class Month:
    """One month of a report."""

    #: YYYY-MM, of the period's start.
    name: str
    start: datetime | None
    end: datetime | None
    #: Usage by the key's name; None if the report is not split.
    by_key: dict[str | None, float]
    #: Whether it could still grow: its end is not past, neither when it was reported nor by a later month's start.
    open: bool

    @property
    def total(self) -> float:
        """Return the credits or tokens of all keys."""
        return sum(self.by_key.values())


def months_of(found: orchestration.Report) -> list[Month]:
    """Return the months of a report, oldest first."""
    unit = unit_of(found)
    rows: dict[str, dict[tuple[str | None, str | None], tuple[datetime | None, datetime | None, float]]] = {}
    for period in found.periods:
        start, end = orchestration.parse_time(period.start_date), orchestration.parse_time(period.end_date)
        value = amount(period.total_credits if unit == "credits" else period.total_tokens)
        name = f"{start or end or found.reported_at:%Y-%m}"
        rows.setdefault(name, {})[period.start_date, period.api_key] = (start, end, value or 0.0)
    past = max([found.reported_at, *(start for each in rows.values() for start, _, _ in each.values() if start)])
    months = []
    for name, periods in sorted(rows.items()):
        by_key: dict[str | None, float] = {}
        for (_, key), (_, _, value) in periods.items():
            by_key[key] = by_key.get(key, 0.0) + value
        starts = [start for start, _, _ in periods.values() if start]
        ends = [end for _, end, _ in periods.values() if end]
        end = max(ends, default=None)
        months.append(Month(name, min(starts, default=None), end, by_key, end is None or past < end))
    return months


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
        month's limits and whether it was still open; rows, bytes and address of what was landed; `usage_by_month` (a
        chart) with `usage_table`, and `usage_by_key` if the report is split.
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
            **_month_shown(found, months, month, unit),
            **({} if month is None else {"weblake/period": month.name, "weblake/period_open": month.open}),
            "weblake/period_start": month and month.start,
            "weblake/period_end": month and month.end,
            "weblake/report": found.name,
            "weblake/reported_at": found.reported_at,
            **table_facts(dataset, "usage_periods", wanted, sum(file.rows for file in wanted), period is not None),
            "dagster/uri": uri,
        }
    )


def _month_shown(
    found: orchestration.Report, months: Sequence[Month], month: Month | None, unit: str
) -> dict[str, dg.MetadataValue]:
    shown: dict[str, dg.MetadataValue] = {}
    if months:
        shown["usage_by_month"] = dg.MetadataValue.md(f"![{unit} by month]({chart(months, unit)})")
        shown["usage_table"] = _by_month(months, unit)
    if found.name.endswith("_by_key") and month is not None:
        if found.split:
            shown["usage_by_key"] = _by_key(month, unit)
        else:
            shown["usage_by_key"] = dg.MetadataValue.text("The service did not split the report by key.")
    return shown


def _by_month(months: Sequence[Month], unit: str) -> dg.MetadataValue:
    return format_table(("month", unit), [(month.name, month.total) for month in months[-MAX_MONTHS:]])


def _by_key(month: Month, unit: str) -> dg.MetadataValue:
    ranked = sorted(month.by_key.items(), key=lambda item: (-item[1], str(item[0])))
    rows = [(plain(key) if key else "(no key)", used) for key, used in ranked[:MAX_KEYS]]
    rest = ranked[MAX_KEYS:]
    if rest:
        rows.append((f"{len(rest)} more", sum(used for _, used in rest)))
    return format_table(("key", unit), rows)


def chart(months: Sequence[Month], unit: str) -> str:
    """Return a bar chart of the last months as a data URI: an SVG image that contains only numbers and dates."""
    last = months[-MAX_MONTHS:]
    most = max((month.total for month in last), default=0.0)
    closed, still_open = "", ""
    for place, month in enumerate(last):
        tall = round(70 * month.total / most) if most > 0 else 0
        bar = f"M{place * _STEP + 3} 90v-{max(tall, 1)}h20V90z"
        if month.open:
            still_open += bar
        else:
            closed += bar
    places = " ".join(str(place * _STEP + 13) for place in range(len(last)))
    initials = "".join("JFMAMJJASOND"[int(month.name[5:]) - 1] for month in last)
    span = f"{last[0].name} – {last[-1].name}" if len(last) > 1 else last[0].name
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="11" fill="#777"><text y="11">{span}, most {number(most)} {unit}</text>'
        f'<path fill="#4f43dd" d="{closed}"/><path fill="#a7a1ee" d="{still_open}"/>'
        f'<text y="104" text-anchor="middle" x="{places}">{initials}</text></svg>'
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
