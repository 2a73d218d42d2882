"""The signing secrets of webhooks: read from Airflow's connections, and kept for half a minute.

A request's signature cannot be checked without the secret, so unauthenticated requests cause look-ups. Their rate is
limited for connections that are not known to have a secret, and what a look-up found is kept, also if it found none.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow.exceptions import AirflowException, AirflowNotFoundException  # type: ignore[attr-defined]
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from weblake import webhooks

#: Seconds for which a found secret, or its absence, is used.
KEPT_S = 30.0
#: How many secrets are kept: an environment variable has a secret for each spelling of its connection's id in upper and
#: lower case.
KEPT_MOST = 1000
#: Look-ups of connections without a known secret: so many at once, and so many a second in the long run.
BURST, RATE = 20.0, 2.0
_HEADER_NAME = re.compile(r"[A-Za-z0-9\-]{1,100}")


class Unavailable(Exception):
    """The metadata database cannot be reached, or too many unknown connections were asked for."""


@dataclass(frozen=True, slots=True)
class Signing:
    """How the service of a connection signs its webhooks."""

    secret: str = field(repr=False)
    #: The name of the header with the signature.
    header: str = webhooks.SIGNATURE_HEADER


def read_signing(conn_id: str) -> Signing | None:
    """Return the signing of a connection of type weblake; None if it does not exist or has no `webhook_secret`.

    Raises:
        Unavailable: The metadata database cannot be reached.
    """
    try:
        connection = Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException:
        _check_database()
        return None
    except AirflowException:  # a secrets backend that denies access
        return None
    if connection.conn_type != "weblake":
        return None
    extra = connection.extra_dejson
    secret, header = extra.get("webhook_secret"), extra.get("webhook_header") or webhooks.SIGNATURE_HEADER
    if not isinstance(secret, str) or not secret.strip():
        return None
    if not isinstance(header, str) or not _HEADER_NAME.fullmatch(header):
        return None
    return Signing(secret, header)


def _check_database() -> None:
    # Airflow reports a connection as missing also if its database cannot be read.
    try:
        with create_session(scoped=False) as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        raise Unavailable("The metadata database cannot be reached.") from error


@dataclass(slots=True)
class _Kept:
    signing: Signing | None
    until: float


class SigningSecrets:
    """A cache of `read_signing`, for one event loop.

    :param read: reads the signing of a connection, in a thread.
    :param clock: seconds of a monotonic clock.
    :param burst: how many look-ups without a known secret may come at once.
    """

    def __init__(
        self,
        read: Callable[[str], Signing | None] = read_signing,
        clock: Callable[[], float] = time.monotonic,
        burst: float = BURST,
    ) -> None:
        self._read, self._clock, self._burst = read, clock, burst
        self._kept: dict[str, _Kept] = {}
        self._reading: dict[str, asyncio.Future[Signing | None]] = {}
        self._threads = ThreadPoolExecutor(2, "weblake-webhook-secrets")
        self._allowed, self._refilled = burst, clock()

    async def find(self, conn_id: str) -> Signing | None:
        """Return the signing of a connection, or None; raise Unavailable as `read_signing` does, or over the rate."""
        kept = self._kept.get(conn_id)
        if kept is not None and self._clock() < kept.until:
            return kept.signing
        reading = self._reading.get(conn_id)
        if reading is None:
            if kept is None or kept.signing is None:
                self._take()
            reading = asyncio.ensure_future(self._look_up(conn_id))
            self._reading[conn_id] = reading
            reading.add_done_callback(lambda done: self._end(conn_id, done))
        # One look-up serves all requests that wait for it, also if the first one is cancelled.
        return await asyncio.shield(reading)

    async def _look_up(self, conn_id: str) -> Signing | None:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._read, conn_id)
        now = self._clock()
        self._kept = {name: kept for name, kept in self._kept.items() if kept.signing or now < kept.until}
        self._kept.pop(conn_id, None)  # so that the first one is the oldest
        while len(self._kept) >= KEPT_MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[conn_id] = _Kept(found, now + KEPT_S)
        return found

    def __len__(self) -> int:
        """Return how many secrets are kept."""
        return len(self._kept)

    def _end(self, conn_id: str, done: asyncio.Future[Signing | None]) -> None:
        del self._reading[conn_id]
        if not done.cancelled():
            done.exception()  # marks it as retrieved, if no request waits any more

    def _take(self) -> None:
        now = self._clock()
        self._allowed = min(self._burst, self._allowed + (now - self._refilled) * RATE)
        self._refilled = now
        if self._allowed < 1:
            raise Unavailable("Too many unknown connections were asked for.")
        self._allowed -= 1
