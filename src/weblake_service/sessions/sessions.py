"""Manages the sessions of one service: starts, expires, ends and bills each exactly once.

A session ends on request, at the end of its lifetime or idle time, with its browser, or with the service; the first of
these events bills it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from sqlite3 import Row
from typing import TypeVar

from weblake_service.clock import Clock
from weblake_service.config import ServiceConfig
from weblake_service.responses import ErrorResponse
from weblake_service.sessions import session_records
from weblake_service.sessions.session import Session
from weblake_service.sessions.session_records import SessionSpec
from weblake_service.store import accounts
from weblake_service.store.database import Store
from weblake_service.web.connection_pools import ConnectionPools

T = TypeVar("T")

_LOG = logging.getLogger("weblake.service")
#: Seconds between two records of which sessions are alive; at most this time is not billed if the service is killed.
_RECORD_EVERY_S = 5.0
#: Retry-After in seconds if there is no free slot.
_RETRY_AFTER_S = 30


@dataclass(frozen=True, slots=True)
class EndedSession:
    """The result of an ended session."""

    milliseconds: int
    credits: int


#: A function that prepares a session before its time starts.
Step = Callable[["LiveSession"], Awaitable[None]]


@dataclass(eq=False, slots=True)
class LiveSession:
    """A running session."""

    id: str
    spec: SessionSpec
    session: Session
    created: float
    used: float
    #: The executions that are running in it.
    busy: int = 0
    #: Cleanup functions, called in reverse order when it ends.
    cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)
    #: Set as soon as the session is about to end.
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Task[EndedSession] | None = None

    @property
    def expires(self) -> float:
        """Return when its lifetime ends."""
        return self.created + self.spec.ttl

    def path(self, endpoint: str) -> str:
        """Return the path of an endpoint (`cdp`, `view`, `control`) with its token."""
        return f"/sessions/{self.id}/{endpoint}?word={self.session.token(endpoint)}"

    @property
    def ends_at(self) -> float:
        """Return when it ends unless it is used; running code counts as use."""
        return self.expires if self.busy else min(self.expires, self.used + self.spec.idle)


class SessionManager:
    """The sessions of a service; used on one event loop, closed with `aclose`."""

    def __init__(self, store: Store, clock: Clock, config: ServiceConfig) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._pools = ConnectionPools(allow_private=config.allow_private)
        self._live: dict[str, LiveSession] = {}
        self._beginning: set[str] = set()
        self._check_now = asyncio.Event()
        self._expiry_task: asyncio.Task[None] | None = None
        self._watchers: set[asyncio.Future[object]] = set()
        self._closed = False
        clock.listen(self._check_now.set)

    async def open(self) -> None:
        """End the sessions of an earlier service process."""
        left = await self._store.write(partial(session_records.end_abandoned, at=self._clock.now()))
        if left:
            _LOG.info("%d browser sessions went with the service before; they are billed as far as it saw them.", left)
        self._closed = False
        self._expiry_task = asyncio.get_running_loop().create_task(self._expire_sessions(), name="browser sessions")

    async def aclose(self) -> None:
        """End all sessions."""
        self._closed = True
        if self._expiry_task is not None:
            self._expiry_task.cancel()
            await asyncio.gather(self._expiry_task, return_exceptions=True)
        await asyncio.gather(*(self.destroy(one) for one in [*self._live.values()]), return_exceptions=True)
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def close_pools(self) -> None:
        """Close the connections to the web; no session can be started after it."""
        await self._pools.aclose()

    def live(self, session_id: str) -> LiveSession | None:
        """Return a running session that is not about to end, or None."""
        found = self._live.get(session_id)
        return None if found is None or found.ending.is_set() else found

    async def begin(self, session_id: str, wanted: SessionSpec, prepare: Step) -> LiveSession:
        """Start a session; its time starts after `prepare` has run.

        Raises:
            ErrorResponse: 402 without credits, 429 if there are too many sessions.
            PageFailure: Its browser does not start, or an error of `prepare`; nothing is billed then.
        """
        access, now = wanted.access, self._clock.now()
        plan = self._config.plan(access.team).credits
        await self._store.read(
            lambda db: accounts.require_credits(db, access.team, session_records.CREDITS_PER_MINUTE, plan, now)
        )
        max_sessions = self._config.max_browser_sessions
        if self._closed or len(self._live.keys() | self._beginning) >= max_sessions:
            raise ErrorResponse(
                429,
                f"Maximum concurrent browser sessions reached: {max_sessions} on this service. "
                "Stop one, or try again later.",
                code="SESSION_LIMIT_REACHED",
                headers={"Retry-After": str(_RETRY_AFTER_S)},
            )
        self._beginning.add(session_id)
        try:
            session = await Session.start(
                wanted.settings,
                self._pools,
                allow_private=self._config.allow_private,
                block_ads=wanted.block_ads,
            )
            now = self._clock.now()
            live = self._live[session_id] = LiveSession(session_id, wanted, session, now, now)
            try:
                await prepare(live)
                if self._closed or live.ending.is_set():
                    raise destroyed_error()
                live.created = live.used = self._clock.now()
                record = partial(session_records.record, session_id=session_id, wanted=wanted, at=live.created)
                await self._store.write(record)
            except BaseException:
                # The client has not received the session's id, so nothing is billed.
                live.ending.set()
                await self._close_session(live)
                raise
        finally:
            self._beginning.discard(session_id)
        self._run_in_background(self._watch_browser(live))
        self._check_now.set()
        return live

    async def use(self, live: LiveSession, work: Coroutine[object, object, T]) -> T:
        """Run work in a session, which counts as use; cancelled if the session ends.

        Raises:
            ErrorResponse: 410; the session ended meanwhile.
        """
        live.busy += 1
        live.used = self._clock.now()
        doing = asyncio.ensure_future(work)
        over = asyncio.ensure_future(live.ending.wait())
        try:
            await asyncio.wait([doing, over], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise destroyed_error()
            return doing.result()
        finally:
            for one in (doing, over):
                one.cancel()
            await asyncio.gather(doing, over, return_exceptions=True)
            live.busy -= 1
            self.touch(live)

    def touch(self, live: LiveSession) -> None:
        """Record that a session is used."""
        live.used = self._clock.now()

    async def destroy(self, live: LiveSession) -> EndedSession:
        """End a session and return its result; repeated calls return the same result."""
        if live.end is None:
            live.ending.set()
            at = min(self._clock.now(), live.ends_at if not live.session.gone.is_set() else live.expires)
            live.end = asyncio.get_running_loop().create_task(self._end(live, max(at, live.created)))
        # The caller may be cancelled; the end of the session still runs to completion.
        return await asyncio.shield(live.end)

    async def end_recorded(self, row: Row) -> EndedSession:
        """End the session of a row, or return its result if it has ended."""
        live = self._live.get(row["id"])
        if live is not None:
            return await self.destroy(live)
        again = await self._store.read(lambda db: session_records.by_id(db, row["id"]))
        assert again is not None
        return EndedSession(round(((again["ended"] or again["seen"]) - again["created"]) * 1000), again["credits"])

    async def _end(self, live: LiveSession, at: float) -> EndedSession:
        await self._close_session(live)
        now = self._clock.now()
        credits = await self._store.write(lambda db: session_records.end(db, live.id, at, now))
        return EndedSession(round((at - live.created) * 1000), credits)

    async def _close_session(self, live: LiveSession) -> None:
        """End a session's browser and run its cleanup functions; errors are logged and ignored."""
        for close in (live.cleanup.aclose, live.session.aclose):
            try:
                await close()
            except Exception:  # noqa: BLE001 - the browser is ended and the session billed in any case
                _LOG.exception("A browser session could not be tidied up at its end.")
        self._live.pop(live.id, None)

    async def _watch_browser(self, live: LiveSession) -> None:
        gone = asyncio.ensure_future(live.session.gone.wait())
        ending = asyncio.ensure_future(live.ending.wait())
        try:
            await asyncio.wait([gone, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (gone, ending):
                one.cancel()
        await self.destroy(live)

    async def _expire_sessions(self) -> None:
        """End sessions that are due, and record which are alive."""
        while True:
            self._check_now.clear()
            now = self._clock.now()
            # The lifetime of a session starts after its preparation.
            living = [one for one in self._live.values() if not one.ending.is_set() and one.id not in self._beginning]
            for live in living:
                if live.ends_at <= now:
                    self._run_in_background(self.destroy(live))
            used = [(one.id, one.used) for one in living if one.ends_at > now]
            try:
                if used:
                    await self._store.write(partial(session_records.update_last_seen, used=used, at=now))
            except Exception:  # noqa: BLE001 - the next round tries again
                _LOG.exception("The browser sessions could not be noted.")
            wait = min([_RECORD_EVERY_S, *(one.ends_at - now for one in living if one.ends_at > now)]) if used else None
            try:
                async with asyncio.timeout(wait):
                    await self._check_now.wait()
            except TimeoutError:
                continue

    def _run_in_background(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)


def destroyed_error() -> ErrorResponse:
    """Return the 410 refusal for an ended session."""
    return ErrorResponse(410, "Browser session already destroyed.", code="SESSION_DESTROYED")
