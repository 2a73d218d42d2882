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

#: Credits of a minute, and what one must have left to begin.
PER_MINUTE = 2
#: Seconds for which an ended session is remembered.
LIFE = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a session is to be."""

    access: Access
    settings: ContextSettings
    #: Seconds of life, and seconds without use.
    ttl: float
    idle: float
    streamed: bool = True
    block_ads: bool = False
    #: The scrape whose page it goes on with, and that page's URL.
    scrape: str | None = None
    target: str | None = None


def price(seconds: float) -> int:
    """Return the credits of so many seconds: two a minute, every second begun counted, in whole credits."""
    return math.ceil(math.ceil(round(max(0.0, seconds), 3)) * PER_MINUTE / 60)


def record(db: Connection, session_id: str, wanted: SessionSpec, at: float) -> None:
    """Record a session that has just begun to live, and its start in the activity list."""
    access = wanted.access
    db.execute(
        "INSERT INTO browser_sessions (id, team, key_name, scrape, streamed, created, expires, used, seen)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session_id, access.team, access.key_name, wanted.scrape, wanted.streamed, at, at + wanted.ttl, at, at),
    )
    endpoint = "browser" if wanted.scrape is None else "interact"
    accounts.record_activity(db, access, endpoint, session_id, wanted.target, at)


def update_last_seen(db: Connection, used: Iterable[tuple[str, float]], at: float) -> None:
    """Note that sessions are alive, and when each (id, time) was used last."""
    db.executemany(
        "UPDATE browser_sessions SET used = ?, seen = ? WHERE id = ? AND ended IS NULL",
        [(when, at, session_id) for session_id, when in used],
    )


def end(db: Connection, session_id: str, at: float, charged_at: float) -> int:
    """End a session that lived until `at`, bill it, and return its credits; a second time changes nothing."""
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
    """End the sessions of an earlier service, which went with it: billed until they were last known to live."""
    left = db.execute("SELECT id, seen FROM browser_sessions WHERE ended IS NULL").fetchall()
    for row in left:
        end(db, row["id"], row["seen"], at)
    return len(left)


def by_id(db: Connection, session_id: str) -> Row | None:
    """Return a session; None where there is none of that id."""
    found: Row | None = db.execute("SELECT * FROM browser_sessions WHERE id = ?", (session_id,)).fetchone()
    return found


def of_scrape(db: Connection, scrape_id: str) -> Row | None:
    """Return the session on a scrape's page; None where there was none yet."""
    found: Row | None = db.execute(
        "SELECT * FROM browser_sessions WHERE scrape = ? ORDER BY seq DESC LIMIT 1", (scrape_id,)
    ).fetchone()
    return found


def list_recent(db: Connection, team: str, *, active: bool | None, at: float, scrapes: bool = False) -> list[Row]:
    """Return a team's sessions of the last day, newest first.

    Args:
        active: Only those that live, or only those that have ended; None for both.
        scrapes: Those on the pages of scrapes too.
    """
    found: list[Row] = db.execute(
        "SELECT * FROM browser_sessions WHERE team = ? AND (ended IS NULL OR ended > ?)"
        " AND (? IS NULL OR (ended IS NULL) = ?) AND (scrape IS NULL OR ?) ORDER BY seq DESC LIMIT 1000",
        (team, at - LIFE, active, active, scrapes),
    ).fetchall()
    return found


def drop_expired(db: Connection, at: float) -> None:
    """Forget sessions that ended a day ago."""
    db.execute("DELETE FROM browser_sessions WHERE ended <= ?", (at - LIFE,))
