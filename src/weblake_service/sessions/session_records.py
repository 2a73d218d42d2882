"""Database records of sessions, with their billing.

Every function takes a connection and runs inside its caller's transaction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from sqlite3 import Connection, Row

from weblake_service.browser.context_settings import ContextSettings
from weblake_service.config import Access
from weblake_service.store import accounts

#: Credits per minute, and the minimum credits for a start.
CREDITS_PER_MINUTE = 2
#: Seconds for which an ended session stays readable.
LIFETIME_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The settings of a new session."""

    access: Access
    settings: ContextSettings
    #: Maximum lifetime and idle time in seconds.
    ttl: float
    idle: float
    streamed: bool = True
    block_ads: bool = False
    #: The scrape that the session continues, and the URL of its page.
    scrape: str | None = None
    target: str | None = None


def price(seconds: float) -> int:
    """Return the price of a session in whole credits: two per minute, each second begun counted."""
    return math.ceil(math.ceil(round(max(0.0, seconds), 3)) * CREDITS_PER_MINUTE / 60)


def record(db: Connection, session_id: str, wanted: SessionSpec, at: float) -> None:
    """Record a started session, and its start in the activity list."""
    access = wanted.access
    db.execute(
        "INSERT INTO browser_sessions (id, team, key_name, scrape, streamed, created, expires, used, seen)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session_id, access.team, access.key_name, wanted.scrape, wanted.streamed, at, at + wanted.ttl, at, at),
    )
    endpoint = "browser" if wanted.scrape is None else "interact"
    accounts.record_activity(db, access, endpoint, session_id, wanted.target, at)


def update_last_seen(db: Connection, used: Iterable[tuple[str, float]], at: float) -> None:
    """Record that sessions are alive, and when each (id, time) was last used."""
    db.executemany(
        "UPDATE browser_sessions SET used = ?, seen = ? WHERE id = ? AND ended IS NULL",
        [(when, at, session_id) for session_id, when in used],
    )


def end(db: Connection, session_id: str, at: float, charged_at: float) -> int:
    """Record and bill the end of a session at `at`, and return its credits; a repeated call changes nothing."""
    row = by_id(db, session_id)
    if row is None:
        return 0
    if row["ended"] is not None:
        return int(row["credits"])
    credits = price(at - row["created"])
    db.execute("UPDATE browser_sessions SET ended = ?, credits = ? WHERE id = ?", (at, credits, session_id))
    if credits:
        accounts.charge(db, Access(row["team"], row["key_name"]), credits, charged_at)
    return credits


def end_abandoned(db: Connection, at: float) -> int:
    """End the sessions of an earlier service process; they are billed until they were last recorded as alive."""
    left = db.execute("SELECT id, seen FROM browser_sessions WHERE ended IS NULL").fetchall()
    for row in left:
        end(db, row["id"], row["seen"], at)
    return len(left)


def by_id(db: Connection, session_id: str) -> Row | None:
    """Return the session with an id; None if there is none."""
    found: Row | None = db.execute("SELECT * FROM browser_sessions WHERE id = ?", (session_id,)).fetchone()
    return found


def of_scrape(db: Connection, scrape_id: str) -> Row | None:
    """Return the session of a scrape; None if there was none yet."""
    found: Row | None = db.execute(
        "SELECT * FROM browser_sessions WHERE scrape = ? ORDER BY seq DESC LIMIT 1", (scrape_id,)
    ).fetchone()
    return found


def list_recent(db: Connection, team: str, *, active: bool | None, at: float, scrapes: bool = False) -> list[Row]:
    """Return a team's sessions of the last day, newest first.

    Args:
        active: Only running (true) or only ended (false) sessions; None for both.
        scrapes: Whether to include the sessions of scrapes.
    """
    return db.execute(
        "SELECT * FROM browser_sessions WHERE team = ? AND (ended IS NULL OR ended > ?)"
        " AND (? IS NULL OR (ended IS NULL) = ?) AND (scrape IS NULL OR ?) ORDER BY seq DESC LIMIT 1000",
        (team, at - LIFETIME_S, active, active, scrapes),
    ).fetchall()


def drop_expired(db: Connection, at: float) -> None:
    """Delete sessions that ended more than a day ago."""
    db.execute("DELETE FROM browser_sessions WHERE ended <= ?", (at - LIFETIME_S,))
