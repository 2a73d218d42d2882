"""The signing secrets of webhooks: read from Airflow's connections, and kept for half a minute.

A request's signature cannot be checked without the secret, so unauthenticated requests cause look-ups. Their rate is
limited for connections that are not known to have a secret, and what a look-up found is kept, also if it found none.
Requests for unknown connections cannot use up the look-ups of those whose asset a DAG names.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow.configuration import ensure_secrets_loaded
from airflow.exceptions import AirflowException, AirflowNotFoundException  # type: ignore[attr-defined]
from airflow.models.asset import AssetActive
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from airflow_provider_weblake.assets.jobs import JOBS_URI
from weblake import webhooks

#: Seconds for which a found secret, or its absence, is used.
CACHE_S = 30.0
#: How many secrets are kept: an environment variable has a secret for each spelling of its connection's id in upper and
#: lower case.
MAX_CACHED = 1000
#: Look-ups of connections without a known secret: so many at once, and so many a second in the long run.
BURST, RATE = 20.0, 2.0
_HEADER_NAME = re.compile(r"[A-Za-z0-9\-]{1,100}")


class Unavailable(Exception):
    """A secrets backend or the metadata database cannot be read, or too many unknown connections were asked for."""


@dataclass(frozen=True, slots=True)
class Signing:
    """How the service of a connection signs its webhooks."""

    secret: str = field(repr=False)
    #: The name of the header with the signature.
    header: str = webhooks.SIGNATURE_HEADER


def read_signing(conn_id: str) -> Signing | None:
    """Return the signing of a connection of type weblake; None if it does not exist or has no `webhook_secret`.

    Raises:
        Unavailable: A secrets backend, such as the metadata database, cannot be read.
    """
    try:
        connection = Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException:
        _check_backends(conn_id)
        return None
    except (AirflowException, PermissionError):  # a secrets backend that denies access
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


def read_named() -> frozenset[str]:
    """Return the ids of the connections whose assets of jobs DAGs name.

    Raises:
        Unavailable: The metadata database cannot be reached.
    """
    try:
        with create_session(scoped=False) as session:
            uris = session.scalars(select(AssetActive.uri).where(AssetActive.uri.startswith(JOBS_URI))).all()
    except SQLAlchemyError as error:
        raise Unavailable("The metadata database cannot be reached.") from error
    return frozenset(uri.removeprefix(JOBS_URI).partition("/")[0] for uri in uris)


def _check_backends(conn_id: str) -> None:
    # Airflow reports a connection as missing also if a secrets backend, or its database, cannot be read.
    for backend in ensure_secrets_loaded():
        try:
            backend.get_connection(conn_id=conn_id)
        except (ValueError, AirflowException):
            continue  # the backend has a connection that cannot be decoded
        except Exception as error:  # those of the client library of each backend
            raise Unavailable(f"The secrets backend {type(backend).__name__} cannot be read.") from error


@dataclass(slots=True)
class _CacheEntry:
    signing: Signing | None
    until: float


class SigningSecrets:
    """A cache of `read_signing`, for one event loop.

    :param read: reads the signing of a connection, in a thread.
    :param clock: seconds of a monotonic clock.
    :param burst: how many look-ups without a known secret may come at once.
    :param named: reads the ids of the connections that may be looked up in addition, in a thread.
    """

    def __init__(
        self,
        read: Callable[[str], Signing | None] = read_signing,
        clock: Callable[[], float] = time.monotonic,
        burst: float = BURST,
        named: Callable[[], frozenset[str]] = read_named,
    ) -> None:
        self._read, self._clock, self._burst, self._read_named = read, clock, burst, named
        self._named, self._named_until = frozenset[str](), clock()
        self._cache: dict[str, _CacheEntry] = {}
        self._reading: dict[str, asyncio.Future[Signing | None]] = {}
        self._threads = ThreadPoolExecutor(2, "weblake-webhook-secrets")
        self._allowed, self._refilled = burst, clock()

    async def find(self, conn_id: str) -> Signing | None:
        """Return the signing of a connection, or None; raise Unavailable as `read_signing` does, or over the rate."""
        kept = self._cache.get(conn_id)
        if kept is not None and self._clock() < kept.until:
            return kept.signing
        if conn_id not in self._reading and (kept is None or kept.signing is None) and not self._take():
            await self._check_named(conn_id)
        reading = self._reading.get(conn_id)
        if reading is None:
            reading = asyncio.ensure_future(self._look_up(conn_id))
            self._reading[conn_id] = reading
            reading.add_done_callback(lambda done: self._end(conn_id, done))
        # One look-up serves all requests that wait for it, also if the first one is cancelled.
        return await asyncio.shield(reading)

    async def _look_up(self, conn_id: str) -> Signing | None:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._read, conn_id)
        now = self._clock()
        self._cache = {name: kept for name, kept in self._cache.items() if kept.signing or now < kept.until}
        self._cache.pop(conn_id, None)  # so that the first one is the oldest
        while len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[conn_id] = _CacheEntry(found, now + CACHE_S)
        return found

    def __len__(self) -> int:
        """Return how many secrets are kept."""
        return len(self._cache)

    def _end(self, conn_id: str, done: asyncio.Future[Signing | None]) -> None:
        del self._reading[conn_id]
        if not done.cancelled():
            done.exception()  # marks it as retrieved, if no request waits any more

    def _take(self) -> bool:
        """Return whether one more connection may be looked up that is not known to have a secret."""
        now = self._clock()
        self._allowed = min(self._burst, self._allowed + (now - self._refilled) * RATE)
        self._refilled = now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True

    async def _check_named(self, conn_id: str) -> None:
        """Raise Unavailable if no DAG names an asset of the connection, as far as was known in the last half minute."""
        if self._clock() >= self._named_until:
            self._named_until = self._clock() + CACHE_S  # before the wait: one look for all requests
            self._named = await asyncio.get_running_loop().run_in_executor(self._threads, self._read_named)
        if conn_id not in self._named:
            raise Unavailable("Too many unknown connections were asked for.")
