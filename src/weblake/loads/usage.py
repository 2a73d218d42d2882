"""Land usage periods and activity.

An open month grows, so a period's file is replaced as a whole each time it is reported and never appended to. A day of
activity is read again while the service lists it (24 hours), so its file is merged by call and replaced as a whole.

Two runs may merge the same day at once, and no storage has a conditional replace. So each run first writes the rows
that the file lacks as a record beside the table, then merges all such records into the day's file, and then lists the
records again. The run that replaces the file last has read every earlier record, so no row is lost. A record is kept
for a day after its run, in case another run is slow; the next run merges the records of a run that died.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from io import BytesIO

import msgspec

from weblake.api.models import ActivityEntry, UsagePeriod, parse_time
from weblake.arrow import arrays, parquet, schemas
from weblake.dataset import layout
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.jobs.usage_reports import Report, row_key
from weblake.receipt import LandedFile
from weblake.storage import Storage

#: Folder of the records with the rows of a day that a run has read: `<day>.<when>-<nonce>.json`.
PENDING = layout.PENDING_ACTIVITY
#: How long such a record is kept: longer than any run takes between reading a day's file and replacing it.
RECORD_LIFETIME = timedelta(hours=24)
#: Maximum number of merges of a day in one run while other runs add records to it.
ROUNDS = 50

_TIME_FORMAT = "%Y%m%dT%H%M%S"
_RECORD_NAME = re.compile(r"/\d{4}-\d{2}-\d{2}\.\d{8}T\d{6}-[0-9a-f]{16}\.json$")
Rows = dict[str, dict[str, object]]


def land_report(found: Report, dataset: Dataset, only: Collection[str] | None = None) -> list[LandedFile]:
    """Replace the file of each reported period; return the files.

    `only` selects months, such as `2026-11`; default: all. The file of a month that was not reported is not changed,
    and neither is one in which another run has landed a later report since this one was read.
    """
    storage = dataset.storage
    months: dict[str, dict[tuple[str | None, ...], dict[str, object]]] = {}
    for period in found.periods:
        row = _usage_row(period, found)
        start = row["period_start"] or row["period_end"] or found.reported_at
        assert isinstance(start, datetime)
        months.setdefault(start.date().isoformat()[:7], {})[row_key(period)] = row
    files = []
    for month, rows in sorted(months.items()):
        if only is not None and month not in only:
            continue
        name = layout.usage_path(found.name, month)
        later = _later_report(storage, name, found.reported_at)
        files.append(later or _replace(storage, name, schemas.USAGE_PERIODS, list(rows.values())))
    return files


def _later_report(storage: Storage, name: str, reported_at: datetime) -> LandedFile | None:
    """Return the file of a period if it has a later report than that of `reported_at`; otherwise None."""
    data = storage.read(name)
    if data is None:
        return None
    try:
        rows = parquet.read_rows(BytesIO(data), name, schemas.USAGE_PERIODS)
    except StorageRefused:
        return None  # the new file replaces the damaged one
    times = [at for row in rows if isinstance(at := row["reported_at"], datetime)]
    # A time ahead of now is of a wrong clock, and would keep all reports out until then.
    if not times or not reported_at < max(times) <= datetime.now(timezone.utc):
        return None
    return LandedFile(name, len(rows), len(data))


def land_activity(entries: Iterable[ActivityEntry], dataset: Dataset) -> list[LandedFile]:
    """Merge activity entries into the file of their UTC day; return the files that were replaced.

    Any number of runs may call it at the same time.

    Raises:
        StorageRefused: The storage failed; or other runs keep adding records to a day.
    """
    storage, now = dataset.storage, datetime.now(timezone.utc)
    days: dict[str, Rows] = {}
    for entry in entries:
        created = parse_time(entry.created_at or "")
        row: dict[str, object] = {
            "id": entry.id,
            "endpoint": entry.endpoint,
            "api_version": entry.api_version,
            "created_at": created,
            "target": entry.target,
        }
        days.setdefault((created or now).date().isoformat(), {})[_key(row)] = row
    for day, rows in days.items():
        # A row in the file has a record of the run that added it. With all rows in each record, the records of a day
        # would grow with the square of its calls, and each run reads all of them.
        known = {_key(row): row for row in _existing(storage, layout.activity_path(day))}
        new = {key: row for key, row in rows.items() if known.get(key) != row}
        if new:
            name = f"{PENDING}/{day}.{now:{_TIME_FORMAT}}-{secrets.token_hex(8)}.json"
            storage.create(name, msgspec.json.encode(new))
    old = f"{now - RECORD_LIFETIME:{_TIME_FORMAT}}"
    left = {_day(name) for name in storage.list(PENDING) if _RECORD_NAME.search(name) and _written_at(name) < old}
    files = []
    for day in sorted(days.keys() | left):
        landed = _merge(storage, day, old, replace=day in days)
        files += [landed] if landed is not None else []
    return files


def _merge(storage: Storage, day: str, old: str, *, replace: bool) -> LandedFile | None:
    """Merge all records of a day into its file and delete old records; return None if the file was not replaced."""
    name = layout.activity_path(day)
    landed: LandedFile | None = None
    merged: set[str] = set()
    for _ in range(ROUNDS):
        pending = [record for record in storage.list(PENDING) if _RECORD_NAME.search(record) and _day(record) == day]
        if merged and merged.issuperset(pending):
            for record in sorted(merged):
                if _written_at(record) < old:
                    storage.delete(record)
            return landed
        rows: Rows = {}
        for record in pending:
            rows |= _read(storage, record)
        # Read after the records: a record that another run has deleted since the listing is already in the file.
        known = {_key(row): dict(row) for row in _existing(storage, name)}
        if replace or not rows.keys() <= known.keys():
            ordered = sorted((known | rows).values(), key=lambda row: (str(row["created_at"]), str(row["id"])))
            landed = _replace(storage, name, schemas.ACTIVITY, ordered)
        if not pending:
            return landed
        merged |= set(pending)
    raise StorageRefused(
        f"Other processes keep changing the activity of {day} in {storage.url}.",
        hint="Nothing is lost: the next run merges what was read. Let fewer runs land activity at the same time.",
    )


def _key(row: Mapping[str, object]) -> str:
    """Return the key of a call: several calls may have the id of one job, such as URLs appended to a batch."""
    if row["id"]:
        return "|".join(str(row[name]) for name in ("id", "created_at", "endpoint"))
    return "-" + "|".join(str(row[name]) for name in ("created_at", "endpoint", "api_version", "target"))


def _day(record: str) -> str:
    return record.rpartition("/")[2].partition(".")[0]


def _written_at(record: str) -> str:
    return record.rpartition("/")[2].partition(".")[2].partition("-")[0]


def _read(storage: Storage, record: str) -> Rows:
    data = storage.read(record)
    if data is None:
        return {}
    try:
        rows = msgspec.json.decode(data, type=Rows).values()
        return {_key(row): row for row in (row | {"created_at": parse_time(row["created_at"])} for row in rows)}
    except (msgspec.DecodeError, KeyError) as error:
        raise StorageRefused(
            f"The record {record} of {storage.url} is damaged.",
            hint="Restore or delete it; the service lists a call for 24 hours, and the next run reads it again.",
        ) from error


def _usage_row(period: UsagePeriod, found: Report) -> dict[str, object]:
    return {
        "period_start": parse_time(period.start_date or ""),
        "period_end": parse_time(period.end_date or ""),
        "api_key": period.api_key,
        "total_credits": period.total_credits,
        "total_tokens": period.total_tokens,
        "reported_at": found.reported_at,
    }


def _existing(storage: Storage, name: str) -> Sequence[Mapping[str, object]]:
    data = storage.read(name)  # whole: an open file of S3 fails if another run replaces it before it is read
    return [] if data is None else parquet.read_rows(BytesIO(data), name, schemas.ACTIVITY)


def _replace(storage: Storage, name: str, schema: object, rows: Sequence[Mapping[str, object]]) -> LandedFile:
    with storage.scratch() as scratch:
        written = parquet.write_table(scratch / "table.parquet", arrays.table(schema, rows))
        storage.replace(name, written.path)
    return LandedFile(name, written.rows, written.bytes)
