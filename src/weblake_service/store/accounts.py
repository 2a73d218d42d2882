"""Accounting of a team: credits, monthly reports, activity list, counters.

Every function takes a connection and runs inside its caller's transaction, so that a page and its price are committed
together.
"""

from __future__ import annotations

import re
from sqlite3 import Connection
from typing import get_args, get_type_hints

from weblake.api import options
from weblake_service.clock import iso, month_bounds, month_of
from weblake_service.config import Access
from weblake_service.responses import ErrorResponse, bad_request

#: Tokens per credit in the token reports.
TOKENS_PER_CREDIT = 15
#: Seconds for which entries of the activity list are kept.
ACTIVITY_WINDOW_S = 24 * 3600
#: The values of the activity list's `endpoint` filter.
ENDPOINTS: tuple[str, ...] = get_args(get_type_hints(options.ActivityOptions)["endpoint"])
#: The time and the number of the last entry of a page.
_CURSOR = re.compile(r"([0-9]{1,12}\.[0-9]{1,12})-([0-9]{1,18})")


def charge(db: Connection, access: Access, credits: int, at: float) -> None:
    """Bill credits to the team and the key, in the month of `at`."""
    db.execute(
        "INSERT INTO usage VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET credits = credits + excluded.credits",
        (access.team, access.key_name, month_of(at), credits),
    )


def count(db: Connection, name: str, by: int = 1) -> None:
    """Increase a counter that tests read under /_weblake/counts."""
    db.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value", (name, by)
    )


def counts(db: Connection) -> dict[str, int]:
    """Return all counters."""
    return dict(db.execute("SELECT name, value FROM counters ORDER BY name").fetchall())


def used(db: Connection, team: str, at: float) -> int:
    """Return the credits that the team used in the month of `at`."""
    row = db.execute("SELECT sum(credits) FROM usage WHERE team = ? AND month = ?", (team, month_of(at))).fetchone()
    return row[0] or 0


def require_credits(db: Connection, team: str, needed: int, plan: int, at: float) -> None:
    """Check that the team can pay for a start, including the reserved credits of its running jobs.

    Raises:
        ErrorResponse: 402; nothing was started.
    """
    (reserved,) = db.execute(
        "SELECT sum(max(0, expected - documents - failed) * page_price) FROM jobs"
        " WHERE status = 'scraping' AND team = ?",
        (team,),
    ).fetchone()
    left = plan - used(db, team, at) - (reserved or 0)
    if needed > left:
        raise ErrorResponse(
            402,
            f"Insufficient credits: this needs up to {needed} and {max(0, left)} are left this month.",
            code="INSUFFICIENT_CREDITS",
        )


def record_activity(db: Connection, access: Access, endpoint: str, job_id: str, target: str | None, at: float) -> None:
    """Record one call for the activity list, and count it as a start of its kind."""
    # The contract's list has no kind for a parse, and GET /v2/scrape/{id} reads it back.
    listed = "scrape" if endpoint == "parse" else endpoint
    db.execute(
        "INSERT INTO activity (id, team, endpoint, target, created) VALUES (?, ?, ?, ?, ?)",
        (job_id, access.team, listed, target, at),
    )
    count(db, f"{endpoint}_started")


def list_activity(
    db: Connection, team: str, *, endpoint: str | None, limit: int, cursor: str | None, at: float
) -> dict[str, object]:
    """Return one page of the activity of the last 24 hours, newest first."""
    if endpoint is not None and endpoint not in ENDPOINTS:
        bad_request(f"endpoint must be one of {', '.join(sorted(ENDPOINTS))}.")
    created, seq = _read_cursor(cursor) if cursor is not None else (float("inf"), 0)
    # An expired entry is hidden exactly after 24 hours, whether or not the clean-up has deleted it.
    rows = db.execute(
        "SELECT seq, id, endpoint, target, created FROM activity WHERE team = ? AND (created, seq) < (?, ?)"
        " AND created > ? AND (? IS NULL OR endpoint = ?) ORDER BY created DESC, seq DESC LIMIT ?",
        (team, created, seq, at - ACTIVITY_WINDOW_S, endpoint, endpoint, limit + 1),
    ).fetchall()
    more = len(rows) > limit
    data = [
        {
            "id": row["id"],
            "endpoint": row["endpoint"],
            "api_version": "v2",
            "created_at": iso(row["created"]),
            "target": row["target"],
        }
        for row in rows[:limit]
    ]
    next_cursor = f"{rows[limit - 1]['created']!r}-{rows[limit - 1]['seq']}" if more else None
    return {"success": True, "data": data, "cursor": next_cursor, "has_more": more}


def periods(db: Connection, team: str, *, by_key: bool, name: str, factor: int) -> list[dict[str, object]]:
    """Return the monthly report: one entry for each month with usage, or for each month and key, oldest first.

    The amount is stored under `name`, as in the contract's text, and under the name that public clients need
    (`creditsUsed` for `totalCredits`).
    """
    public = name[5].lower() + name[6:] + "Used"
    key = "key_name" if by_key else "NULL"
    rows = db.execute(
        f"SELECT month, {key}, sum(credits) FROM usage WHERE team = ? GROUP BY 1, 2 ORDER BY 1, 2",  # noqa: S608
        (team,),
    )
    report: list[dict[str, object]] = []
    for month, key_name, credits in rows:
        start, end = month_bounds(month)
        entry: dict[str, object] = {"startDate": iso(start), "endDate": iso(end)}
        if by_key:
            entry["apiKey"] = key_name
        report.append(entry | {name: credits * factor, public: credits * factor})
    return report


def balance(db: Connection, team: str, plan: int, at: float, *, noun: str, factor: int) -> dict[str, object]:
    """Return what is left of this month's plan, in credits or tokens."""
    start, end = month_bounds(month_of(at))
    return {
        f"remaining{noun}": (plan - used(db, team, at)) * factor,
        f"plan{noun}": plan * factor,
        "billingPeriodStart": iso(start),
        "billingPeriodEnd": iso(end),
    }


def _read_cursor(cursor: str) -> tuple[float, int]:
    """Return time and number of the last entry of the previous page."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        bad_request("cursor must be the cursor of an earlier reply.")
    return float(match[1]), int(match[2])
