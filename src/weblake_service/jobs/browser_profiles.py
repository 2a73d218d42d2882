"""Browser profiles (cookies and storage), by team and name, with one writer at a time.

A profile is cookies and storage as JSON. Any number of sessions may load it. A session that saves holds an exclusive
lock from before loading until the profile is stored, so that no two sessions overwrite each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from sqlite3 import Connection

from weblake_service.clock import Clock
from weblake_service.keyed_locks import KeyedLocks
from weblake_service.page_failure import PageFailure
from weblake_service.store.database import Store

#: Maximum bytes of one profile, and maximum number of profiles of one team.
MAX_PROFILE_BYTES, MAX_PROFILES = 8 << 20, 1_000


class BrowserProfiles:
    """The profiles of one service; used on one event loop."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turns = KeyedLocks()

    @asynccontextmanager
    async def locked(self, team: str, name: str, wait_s: float) -> AsyncIterator[None]:
        """Hold the exclusive write lock of a profile while the block runs; wait up to `wait_s` seconds for it.

        Raises:
            PageFailure: 409; another session still holds the lock.
        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._turns.lock((team, name), wait_s))
            except TimeoutError:
                message = (
                    f"Another session is saving to the profile {name!r}, and only one may at a time. "
                    "Try again when it has ended, or only load the profile: `saveChanges: false`."
                )
                raise PageFailure("PROFILE_IN_USE", message, status=409, reached=False) from None
            yield

    async def load(self, team: str, name: str) -> bytes:
        """Return the profile as JSON; empty if there is none yet."""

        def work(db: Connection) -> bytes:
            row = db.execute("SELECT state FROM profiles WHERE team = ? AND name = ?", (team, name)).fetchone()
            return bytes(row["state"]) if row is not None else b""

        return await self._store.read(work)

    async def save(self, team: str, name: str, state: bytes) -> str:
        """Store a profile; return a warning if it is too large, in which case the old one is kept.

        Only the thousand most recently saved profiles of a team are kept.
        """
        if len(state) > MAX_PROFILE_BYTES:
            limits = f"it has {len(state)} bytes, and at most {MAX_PROFILE_BYTES} are kept"
            return f"The profile {name!r} was not saved: {limits}."
        now = self._clock.now()

        def work(db: Connection) -> None:
            db.execute("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?)", (team, name, now, state))
            db.execute(
                "DELETE FROM profiles WHERE team = ? AND name NOT IN"
                " (SELECT name FROM profiles WHERE team = ? ORDER BY saved DESC LIMIT ?)",
                (team, team, MAX_PROFILES),
            )

        await self._store.write(work)
        return ""
