"""Interactive sessions of scrapes: started on the scrape's page with the first call and reused afterwards."""

from __future__ import annotations

from functools import partial

from weblake_service.browser.context_settings import context_settings_of
from weblake_service.clock import Clock
from weblake_service.config import Access
from weblake_service.ids import Ids
from weblake_service.keyed_locks import KeyedLocks
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse, not_found
from weblake_service.sessions import scraped_page, session_records
from weblake_service.sessions.playwright_driver import PlaywrightDriver
from weblake_service.sessions.session_records import SessionSpec
from weblake_service.sessions.sessions import EndedSession, LiveSession, SessionManager, destroyed_error
from weblake_service.store.database import Store

#: Lifetime and idle time of such a browser in seconds: the contract does not specify them.
TTL_S, IDLE_S = 600.0, 300.0
#: Statuses of failures of the browser and not of the page.
_BROWSER_STATUSES = frozenset([502, 503])


class InteractSessions:
    """The sessions that continue scrapes."""

    def __init__(
        self, store: Store, clock: Clock, ids: Ids, sessions: SessionManager, steering: PlaywrightDriver
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._sessions = sessions
        self._steering = steering
        self._turns = KeyedLocks()

    async def session(self, access: Access, scrape_id: str) -> LiveSession:
        """Return the session of a scrape; start one if there is none.

        Raises:
            ErrorResponse: 402, 403, 404, 409, 410 and 429 as in the contract's table, 502 if the session cannot start.
        """
        async with self._turns.lock(scrape_id):
            now = self._clock.now()
            page = await self._store.read(partial(scraped_page.find, scrape_id=scrape_id, team=access.team, at=now))
            row = await self._store.read(partial(session_records.of_scrape, scrape_id=scrape_id))
            if row is not None:
                live = self._sessions.live(row["id"])
                if live is None:
                    raise destroyed_error()
                return live
            wanted = SessionSpec(
                access,
                context_settings_of(page.options),
                TTL_S,
                IDLE_S,
                block_ads=page.options.get("block_ads") is not False,
                scrape=scrape_id,
                target=page.url,
            )

            async def prepare(live: LiveSession) -> None:
                await self._steering.restore_page(live, page.url, page.options)

            session_id = await self._ids.draw(self._store)
            try:
                return await self._sessions.begin(session_id, wanted, prepare)
            except PageFailure as failure:
                if failure.status in _BROWSER_STATUSES:
                    raise
                message = f"Replay context unavailable: {failure.message.rstrip('.')}. Rerun the scrape and try again."
                raise ErrorResponse(409, message, code="REPLAY_CONTEXT_UNAVAILABLE") from failure

    async def stop(self, access: Access, scrape_id: str) -> EndedSession:
        """End the session of a scrape.

        Raises:
            ErrorResponse: 403 if it is another team's, 404 if there is none or it has ended.
        """
        # Wait for a first call that is still restoring the page, so that its session is ended too.
        async with self._turns.lock(scrape_id):
            row = await self._store.read(partial(session_records.of_scrape, scrape_id=scrape_id))
            if row is None:
                not_found("No browser session exists for this scrape")
            if row["team"] != access.team:
                raise ErrorResponse(403, "Forbidden: the session belongs to another team.", code="FORBIDDEN")
            if row["ended"] is not None:
                not_found("No browser session exists for this scrape: it has ended")
            return await self._sessions.end_recorded(row)
