"""Browser sessions for the console: database rows, with live data of running ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from sqlite3 import Row

from weblake_service.components import ServiceComponents
from weblake_service.sessions import session_records


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One session."""

    id: str
    #: active or destroyed.
    status: str
    #: The scrape that the session continues; None for a session of its own.
    scrape: str | None
    created: float
    used: float
    expires: float
    ended: float | None
    credits: int
    #: The path of its read-only view; empty if there is none.
    view: str


async def sessions(parts: ServiceComponents, team: str) -> list[BrowserSession]:
    """Return a team's sessions of the last day, newest first."""
    work = partial(session_records.list_recent, team=team, active=None, at=parts.clock.now(), scrapes=True)
    return [_session(parts, row) for row in await parts.store.read(work)]


async def session(parts: ServiceComponents, team: str, session_id: str) -> BrowserSession | None:
    """Return one session; None if the team has no session with this id."""
    row = await parts.store.read(partial(session_records.by_id, session_id=session_id))
    return None if row is None or row["team"] != team else _session(parts, row)


def _session(parts: ServiceComponents, row: Row) -> BrowserSession:
    live = parts.sessions.live(row["id"])
    return BrowserSession(
        row["id"],
        "destroyed" if live is None else "active",
        row["scrape"],
        row["created"],
        row["used"] if live is None else live.used,
        row["expires"],
        row["ended"],
        row["credits"],
        live.path("view") if live is not None and live.spec.streamed else "",
    )
