"""Usage periods and activity, landed. Imports: layout, models, receipt, storage, tables, usage.

A month that is still open grows, so a period's file is replaced whole each time it is reported, never appended to. A
day of activity is read again while the service lists it (24 hours), so its file is merged by id and replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from weblake import layout
from weblake.models import ActivityEntry, UsagePeriod, parse_time
from weblake.receipt import LandedFile
from weblake.storage import Storage
from weblake.tables import parquet, schemas
from weblake.usage import Report


def land_report(found: Report, storage: Storage) -> list[LandedFile]:
    """Replaces the file of each period that was reported; returns the files."""
    months: dict[str, dict[tuple[str | None, str | None], dict[str, object]]] = {}
    for period in found.periods:
        row = _usage_row(period, found)
        start = row["period_start"] or row["period_end"] or found.reported_at
        assert isinstance(start, datetime)
        # The key of a row is its start and API key: rows may repeat, the last one is the newest.
        months.setdefault(f"{start:%Y-%m}", {})[(period.start_date, period.api_key)] = row
    files = []
    for month, rows in sorted(months.items()):
        name = layout.usage_path(found.name, month)
        files.append(_replace(storage, name, schemas.USAGE_PERIODS, list(rows.values())))
    return files


def land_activity(entries: Iterable[ActivityEntry], storage: Storage) -> list[LandedFile]:
    """Merges entries into the file of their UTC day; returns the files that were replaced."""
    days: dict[str, dict[str, dict[str, object]]] = {}
    for entry in entries:
        created = parse_time(entry.created_at or "")
        day = f"{created or datetime.now(UTC):%Y-%m-%d}"
        days.setdefault(day, {})[str(entry.id)] = {
            "id": entry.id,
            "endpoint": entry.endpoint,
            "api_version": entry.api_version,
            "created_at": created,
            "target": entry.target,
        }
    files = []
    for day, rows in sorted(days.items()):
        name = layout.activity_path(day)
        merged = {str(row["id"]): row for row in _existing(storage, name)} | rows
        ordered = sorted(merged.values(), key=lambda row: (str(row["created_at"]), str(row["id"])))
        files.append(_replace(storage, name, schemas.ACTIVITY, ordered))
    return files


def _usage_row(period: UsagePeriod, found: Report) -> dict[str, object]:
    return {
        "period_start": parse_time(period.start_date or ""),
        "period_end": parse_time(period.end_date or ""),
        "api_key": period.api_key,
        "total_credits": _number(period.total_credits),
        "total_tokens": _number(period.total_tokens),
        "reported_at": found.reported_at,
    }


def _number(value: int | float | None) -> float | None:
    return None if value is None else float(value)


def _existing(storage: Storage, name: str) -> Sequence[Mapping[str, object]]:
    if not storage.exists(name):
        return []
    with storage.open_input(name) as source:
        return parquet.read_rows(source)


def _replace(storage: Storage, name: str, schema: object, rows: Sequence[Mapping[str, object]]) -> LandedFile:
    with storage.scratch() as scratch:
        written = parquet.write_table(scratch / "table.parquet", schemas.table(schema, rows))
        storage.replace(name, written.path)
    return LandedFile(name, written.rows, written.bytes)
