"""Idempotency keys: one key, one execution, one response.

The response is stored in the transaction that creates the job, so that after a crash either both or neither exist. A
request that was refused before execution (400, 401, 402, 429, 503) is not stored: its key may be used again. Of a
billed request with zero data retention only the key is stored: a repeat is refused, because it would be billed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response

from weblake.api.options.values import uuid_problem
from weblake_service.clock import Clock
from weblake_service.config import Access
from weblake_service.keyed_locks import KeyedLocks
from weblake_service.responses import ErrorResponse, bad_request, encoded_json_response
from weblake_service.store.database import Store

#: Seconds for which the response to a start is stored: much longer than the job, so that a late retry starts nothing
#: new.
KEEP_STARTS_S = 30 * 24 * 3600.0
#: Seconds for which the response to a scrape is stored: as long as the document itself.
KEEP_SCRAPES_S = 24 * 3600.0
#: The fingerprint of a request of which nothing is stored but its key.
_NOT_KEPT = ""


@dataclass(frozen=True, slots=True)
class IdempotencyTicket:
    """Stores the response under one idempotency key; `save` is called in the transaction that executes the request."""

    team: str
    key: str | None
    fingerprint: str
    forget: float

    def save(self, db: Connection, status: int, body: bytes) -> None:
        """Store the response, if the request has a key."""
        self._save(db, self.fingerprint, status, body)

    def save_key_only(self, db: Connection) -> None:
        """Store that the request was executed and billed, if it has a key, but nothing of the request or response."""
        self._save(db, _NOT_KEPT, 409, b"")

    def _save(self, db: Connection, fingerprint: str, status: int, body: bytes) -> None:
        if self.key is not None:
            db.execute(
                "INSERT OR REPLACE INTO replays VALUES (?, ?, ?, ?, ?, ?)",
                (self.team, self.key, fingerprint, status, body, self.forget),
            )


class IdempotencyStore:
    """The idempotency keys of all teams."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turns = KeyedLocks()

    async def once(
        self,
        request: Request,
        access: Access,
        body: dict[str, object],
        act: Callable[[IdempotencyTicket], Awaitable[Response]],
        keep: float = KEEP_STARTS_S,
    ) -> Response:
        """Execute a request, or return the stored response to the same request with the same key.

        Raises:
            ErrorResponse: 409 if the key was used for another request, or for one whose response was not kept, or is
                not a UUID.
        """
        key = request.headers.get("x-idempotency-key")
        forget = self._clock.now() + keep
        if key is None:
            return await act(IdempotencyTicket(access.team, None, "", forget))
        if uuid_problem(key):
            raise ErrorResponse(
                409, "x-idempotency-key must be a UUID: take a new one.", code="IDEMPOTENCY_KEY_NO_UUID"
            )
        ticket = IdempotencyTicket(access.team, key, _fingerprint(request, body), forget)
        async with self._turns.lock((access.team, key)):
            return await self._stored_response(ticket) or await act(ticket)

    async def _stored_response(self, ticket: IdempotencyTicket) -> Response | None:
        row = await self._store.read(
            lambda db: db.execute(
                "SELECT fingerprint, status, body FROM replays WHERE team = ? AND key = ? AND forget > ?",
                (ticket.team, ticket.key, self._clock.now()),
            ).fetchone()
        )
        if row is None:
            return None
        if row["fingerprint"] == _NOT_KEPT:
            raise ErrorResponse(
                409,
                "A request with this idempotency key was executed and billed, and nothing of it was kept (zero data "
                "retention): a new key executes and bills it again.",
                code="IDEMPOTENCY_RESPONSE_NOT_KEPT",
            )
        if row["fingerprint"] != ticket.fingerprint:
            raise ErrorResponse(
                409,
                "Idempotency key already used for another request: send the same request again, or take a new key.",
                code="IDEMPOTENCY_KEY_REUSED",
            )
        response = encoded_json_response(row["body"], row["status"])
        response.headers["Idempotent-Replayed"] = "true"
        return response


def _fingerprint(request: Request, body: dict[str, object]) -> str:
    """Return a hash that is equal for two requests with the same content, regardless of JSON formatting."""
    try:
        canonical = json.dumps(body, sort_keys=True)
    except RecursionError:
        bad_request("The body is nested too deeply.")
    return hashlib.sha256(f"{request.method} {request.url.path}\n{canonical}".encode()).hexdigest()
