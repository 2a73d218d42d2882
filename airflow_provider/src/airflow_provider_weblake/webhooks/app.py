"""The HTTP side of the webhook receiver: bounds, signature, and the response to each delivery.

    POST /weblake/webhooks/{conn_id}

A delivery is authenticated by its signature alone, so everything before the check is bounded in time, memory and
database access.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import configure_mappers
from starlette.requests import ClientDisconnect

from airflow_provider_weblake.assets.jobs import CONN_ID
from airflow_provider_weblake.webhooks.events import JobEnd, NoAsset, record
from airflow_provider_weblake.webhooks.signing import Signing, SigningSecrets, Unavailable
from weblake import webhooks
from weblake.errors import WeblakeError

T = TypeVar("T")
LOG = logging.getLogger(__name__)
#: Bytes of one delivery that do not count, of one delivery, and of all deliveries that are being received. The first
#: bytes do not count, because the server buffers as many for each connection anyway, and an ordinary webhook, which is
#: smaller, must not be kept out by large bodies that are not signed.
SMALL_BODY, MAX_BODY, MAX_BUFFERED = 64 << 10, 10 << 20, 64 << 20
#: Seconds for a whole delivery: the service waits 10 seconds for the response.
DEADLINE_S = 9.0
#: Seconds between two warnings about a connection's signatures, or for one reason that secrets cannot be read.
WARN_EVERY_S = 60.0
#: How many accepted events are remembered, so that repeated deliveries do not reach the database.
REMEMBERED = 4096
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")


class Refused(Exception):
    """A delivery that is answered with an error."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class WarningLimit:
    """Allows one warning about each name, or with each text, in WARN_EVERY_S.

    It forgets older ones: an environment variable is a connection for each spelling of its id in upper and lower case.

    :param clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When each name had its warning, oldest first.
        self._last: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many names are remembered."""
        return len(self._last)

    def allow(self, name: str) -> bool:
        """Return whether a warning about the name is due; if so, it counts as given."""
        now = self._clock()
        while self._last and now - next(iter(self._last.values())) >= WARN_EVERY_S:
            del self._last[next(iter(self._last))]
        if name in self._last:
            return False
        self._last[name] = now
        return True


class Receiver:
    """Receives deliveries, in one event loop.

    :param secrets: the signing secrets of connections.
    :param record: makes the asset event of a job's end, in a thread, and returns whether it is new.
    """

    def __init__(self, secrets: SigningSecrets, record: Callable[[str, JobEnd], bool] = record) -> None:
        self._secrets, self._record = secrets, record
        # Threads of its own: a database that hangs must not occupy those of Airflow's API.
        self._threads = ThreadPoolExecutor(4, "weblake-webhook-events")
        self._buffered = 0
        self._done: dict[tuple[str, JobEnd], None] = {}
        self._warnings = WarningLimit()

    async def receive(self, conn_id: str, request: Request) -> str:
        """Return what became of a delivery: `accepted`, `repeated` or `ignored`; raise Refused."""
        until = asyncio.get_running_loop().time() + DEADLINE_S
        signing = await _within(until, self._signing(conn_id), HTTPStatus.SERVICE_UNAVAILABLE)
        signatures = request.headers.getlist(signing.header)
        if len(signatures) != 1 or not _SIGNATURE.fullmatch(signatures[0]):
            raise Refused(HTTPStatus.UNAUTHORIZED)
        body = await _within(until, self._body(request), HTTPStatus.REQUEST_TIMEOUT)
        try:
            end = JobEnd.of(webhooks.receive(body, signatures[0], signing.secret))
        except webhooks.SignatureMismatch:
            self._warn(conn_id)
            raise Refused(HTTPStatus.UNAUTHORIZED) from None
        except WeblakeError:
            raise Refused(HTTPStatus.BAD_REQUEST) from None
        if end is None:
            return "ignored"
        return await _within(until, self._event(conn_id, end), HTTPStatus.SERVICE_UNAVAILABLE)

    async def _signing(self, conn_id: str) -> Signing:
        if not CONN_ID.fullmatch(conn_id):
            raise Refused(HTTPStatus.NOT_FOUND)
        try:
            signing = await self._secrets.find(conn_id)
        except Unavailable as error:
            if self._warnings.allow(str(error)):
                LOG.warning("A webhook is to be delivered again: %s", error)
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE) from None
        if signing is None:
            raise Refused(HTTPStatus.NOT_FOUND)
        return signing

    async def _body(self, request: Request) -> bytes:
        """Return the raw body; it is not decompressed, because the signature covers what was sent."""
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > MAX_BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        # Chunks, because a buffer that grows by reallocation leaves holes in the memory of the process.
        chunks, size, counted = list[bytes](), 0, 0
        try:
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY:
                    raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                more = max(size - SMALL_BODY, 0) - counted
                if self._buffered + more > MAX_BUFFERED:
                    raise Refused(HTTPStatus.SERVICE_UNAVAILABLE)
                self._buffered, counted = self._buffered + more, counted + more
                chunks.append(chunk)
            return b"".join(chunks)
        except ClientDisconnect:
            raise Refused(HTTPStatus.BAD_REQUEST) from None
        finally:
            # An exception keeps this frame until the garbage collector runs, but not what is not counted any more.
            chunks.clear()
            chunk = b""
            self._buffered -= counted

    async def _event(self, conn_id: str, end: JobEnd) -> str:
        known = (conn_id, end)
        if known in self._done:
            return "repeated"
        try:
            new = await asyncio.get_running_loop().run_in_executor(self._threads, self._record, conn_id, end)
        except (NoAsset, SQLAlchemyError) as error:
            LOG.warning("The webhook %s of job %s is to be delivered again: %s", end.type, end.job_id, error)
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE) from None  # the service delivers it again
        while len(self._done) >= REMEMBERED:
            del self._done[next(iter(self._done))]
        self._done[known] = None
        if new:
            LOG.info("The webhook %s of job %s is an event of connection %s.", end.type, end.job_id, conn_id)
        return "accepted" if new else "repeated"

    def _warn(self, conn_id: str) -> None:
        """Log that signatures do not match, at most once a minute; only connections with a secret come here."""
        if self._warnings.allow(conn_id):
            LOG.warning(
                "A webhook for connection %s is not signed with its webhook_secret. "
                "If the service sent it, compare the secrets.",
                conn_id,
            )


def receiver_app(receiver: Receiver | None = None) -> FastAPI:
    """Return the FastAPI app with the one route of the receiver: no documentation, no schema, no redirects."""
    # The first use of Airflow's models configures them, which takes a second that the first webhook need not wait for.
    configure_mappers()
    receiving = receiver or Receiver(SigningSecrets())
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    @app.post("/webhooks/{conn_id}")
    async def deliver(conn_id: str, request: Request) -> JSONResponse:
        try:
            return JSONResponse({"outcome": await receiving.receive(conn_id, request)})
        except Refused as refused:
            # The rest of the body is not read: the connection ends with the response.
            return JSONResponse({"detail": str(refused)}, refused.status.value, {"connection": "close"})

    return app


async def _within(until: float, doing: Coroutine[object, object, T], status: HTTPStatus) -> T:
    """Return a coroutine's result; raise Refused with the status if it is not there at a time of the event loop.

    It does not wait for the end of what it cancels, as `asyncio.wait_for` does: reading the body passes through
    middleware of Airflow whose cancel scopes can swallow a cancellation. The reading ends with the connection then.
    """
    task = asyncio.ensure_future(doing)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks it as retrieved
    try:
        await asyncio.wait({task}, timeout=max(until - asyncio.get_running_loop().time(), 0))
        if not task.done():
            raise Refused(status)
        return task.result()
    finally:
        task.cancel()
