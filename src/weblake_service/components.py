"""The components of one running service.

`ServiceComponents.open` starts the background work: resumed jobs, webhook delivery and the clean-up. `close` stops it;
the next service continues from the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from sqlite3 import Connection

from starlette.requests import HTTPConnection

from weblake.credentials import home
from weblake_service.clock import Clock
from weblake_service.config import Access, ServiceConfig, ServiceKey, key_digest
from weblake_service.faults import ActiveFaults, FaultyWebhookSender
from weblake_service.ids import Ids
from weblake_service.jobs import job_records
from weblake_service.jobs.browser_profiles import BrowserProfiles
from weblake_service.jobs.job_manager import JobManager
from weblake_service.jobs.job_run import JobServices
from weblake_service.jobs.scraper import Scraper
from weblake_service.jobs.webhook_delivery import WebhookDelivery
from weblake_service.llm.openai_endpoint import LanguageModel
from weblake_service.rate_limit import RateLimit
from weblake_service.request_log import RequestLog
from weblake_service.routes.idempotency import IdempotencyStore
from weblake_service.sessions import session_records
from weblake_service.sessions.interact import InteractSessions
from weblake_service.sessions.playwright_driver import PlaywrightDriver
from weblake_service.sessions.sessions import SessionManager
from weblake_service.store.database import MEMORY, Store
from weblake_service.store.schema import DATA_TABLES
from weblake_service.web.http_web import HttpWeb

_LOG = logging.getLogger("weblake.service")
#: Seconds between two clean-ups of expired data.
_CLEANUP_EVERY_S = 60.0


class ServiceComponents:
    """The components. Created and used on one event loop; only the store has its own threads.

    Args:
        store: An open database, closed by `close`.
        web: Access to the web, closed by `close`.
        config: Limits and permissions.
        keys: Keys that are accepted in addition to those whose hashes are in the database.
    """

    def __init__(self, store: Store, web: HttpWeb, config: ServiceConfig, keys: Iterable[ServiceKey] = ()) -> None:
        self.config = config
        self.store = store
        self.web = web
        self.clock = Clock()
        self.ids = Ids(config.seed)
        self.faults = ActiveFaults()
        self.log = RequestLog(self.clock)
        self.rate = RateLimit(config, self.clock)
        self.llm = LanguageModel(config)
        self.profiles = BrowserProfiles(store, self.clock)
        self.scraper = Scraper(store, self.clock, config, web, self.profiles, self.llm)
        self.delivery = WebhookDelivery(store, self.clock, FaultyWebhookSender(web.post, self.faults), config)
        #: What every job uses.
        self.tools = JobServices(store, self.clock, self.scraper, self.faults, web, config, self.llm)
        self.jobs = JobManager(self.tools, self.delivery.wake)
        self.sessions = SessionManager(store, self.clock, config)
        self.playwright = PlaywrightDriver(self.profiles, allow_private=config.allow_private)
        self.interact = InteractSessions(store, self.clock, self.ids, self.sessions, self.playwright)
        self.replays = IdempotencyStore(store, self.clock)
        self._keys = {key_digest(one.key): Access(one.team, one.name) for one in keys}
        self._cleaner: asyncio.Task[None] | None = None
        self._clean_now = asyncio.Event()
        self.clock.listen(self.delivery.wake)
        self.clock.listen(self._clean_now.set)
        self.clock.listen(web.clear_cache)

    async def open(self) -> None:
        """Load the accepted keys and the clock, and continue the work of an earlier service process."""
        if self.config.remembered_keys:
            # Given keys take precedence over stored ones: a key may have moved to another team.
            self._keys = await self.store.read(_load_keys) | self._keys
        self.clock.set_offset(await self.store.read(_load_clock_offset))
        self._cleaner = asyncio.create_task(self._run_cleanup(), name="clean-up")
        await self.sessions.open()
        self.delivery.start()
        await self.jobs.resume()

    async def close(self) -> None:
        """Stop all work and close the connections and the database."""
        self.faults.stopped.set()
        if self._cleaner is not None:
            self._cleaner.cancel()
            await asyncio.gather(self._cleaner, return_exceptions=True)
        await self.sessions.aclose()
        await self.playwright.aclose()
        await self.jobs.close()
        await self.delivery.close()
        await self.sessions.close_pools()
        await self.llm.aclose()
        await self.web.aclose()
        self.store.close()

    def authenticate(self, authorization: str | None) -> Access | None:
        """Return the access for an Authorization header; None if the key is unknown."""
        scheme, _, key = (authorization or "").partition(" ")
        return self._keys.get(key_digest(key.strip())) if scheme.lower() == "bearer" else None

    async def advance(self, seconds: float) -> None:
        """Move the clock forward, also for later services of this database."""
        # Wait for deliveries that have failed but are not yet recorded, or their retry would be scheduled after the
        # change.
        await self.delivery.wait_for_deliveries()
        self.clock.advance(seconds)
        offset = str(self.clock.offset)
        await self.store.write(
            lambda db: db.execute("INSERT OR REPLACE INTO meta VALUES ('clock_offset', ?)", (offset,)),
        )

    async def reset(self) -> None:
        """Delete all jobs, pages, usage, faults and logs, and reset the clock. The keys are kept."""
        await self.sessions.aclose()
        await self.jobs.close()
        await self.delivery.close()
        self.jobs = JobManager(self.tools, self.delivery.wake)
        self.faults.clear()
        self.rate.reset()
        self.clock.set_offset(0.0)
        await self.store.write(_delete_all_rows)
        await self.sessions.open()
        self.delivery.start()
        self.log.clear()

    async def _run_cleanup(self) -> None:
        while True:
            self._clean_now.clear()
            try:
                await self.store.write(partial(job_records.drop_expired, at=self.clock.now()))
                await self.store.write(partial(session_records.drop_expired, at=self.clock.now()))
            except Exception:  # noqa: BLE001 - the next round tries again
                _LOG.exception("The clean-up failed.")
            try:
                async with asyncio.timeout(_CLEANUP_EVERY_S):
                    await self._clean_now.wait()
            except TimeoutError:
                continue


class RouteGroup:
    """Some endpoints of one service."""

    def __init__(self, parts: ServiceComponents) -> None:
        self._parts = parts


def requester(request: HTTPConnection) -> Access:
    """Return the access of a request; middleware.py has authenticated it."""
    access = request.scope["state"]["access"]
    assert isinstance(access, Access)
    return access


def open_store(path: str | Path) -> Store:
    """Open the database at a path, or one in memory."""
    return Store(path if str(path) == MEMORY else home(path).absolute())


def remember_first_key(db: Connection, key: ServiceKey) -> bool:
    """Store the hash of a key for later services of this database; return False if the database already has one."""
    if db.execute("SELECT 1 FROM api_keys LIMIT 1").fetchone() is not None:
        return False
    db.execute("INSERT INTO api_keys VALUES (?, ?, ?)", (key_digest(key.key), key.name, key.team))
    return True


def _load_keys(db: Connection) -> dict[str, Access]:
    return {one["digest"]: Access(one["team"], one["name"]) for one in db.execute("SELECT * FROM api_keys")}


def _load_clock_offset(db: Connection) -> float:
    row = db.execute("SELECT value FROM meta WHERE name = 'clock_offset'").fetchone()
    return float(row["value"]) if row is not None else 0.0


def _delete_all_rows(db: Connection) -> None:
    for table in DATA_TABLES:
        db.execute(f"DELETE FROM {table}")  # noqa: S608
    db.execute("INSERT INTO search_words (search_words) VALUES ('delete-all')")
    db.execute("DELETE FROM meta WHERE name IN ('clock_offset', 'starts')")
