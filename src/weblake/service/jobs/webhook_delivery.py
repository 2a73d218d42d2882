"""Delivers the queued webhooks, again and again until a receiver answers 2xx.

A receiver has 10 seconds; after a failure comes another try in 1, 5 and 15 minutes, then the delivery is dropped. The
queue is in the database, so what was not acknowledged before a restart is delivered after it, with the same webhookId.
Imports: clock, deliveries, records, store, webhooks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from sqlite3 import Connection, Row

from weblake import webhooks
from weblake.service.clock import Clock
from weblake.service.jobs import deliveries
from weblake.service.jobs.records import decoded
from weblake.service.store.database import Store

_LOG = logging.getLogger("weblake.service")
#: Seconds that a receiver may take.
TIMEOUT = 10.0
#: Deliveries under way at the same time.
_AT_ONCE = 8
#: Seconds after which the queue is looked at again in any case.
_LOOK_AGAIN = 60.0

#: Posts a body to a URL and returns the status of the answer; raises what a network raises.
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]


class WebhookDelivery:
    """The one that delivers, for all jobs."""

    def __init__(self, store: Store, clock: Clock, post: Post, secret: str | None) -> None:
        self._store = store
        self._clock = clock
        self._post = post
        self._secret = secret
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to deliver."""
        self._task = asyncio.create_task(self._deliver(), name="webhook delivery")

    def wake(self) -> None:
        """Says that there may be something to deliver now."""
        self._bell.set()

    async def close(self) -> None:
        """Stops; what is under way is delivered again by the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver(self) -> None:
        while True:
            self._bell.clear()
            try:
                rows = await self._store.read(partial(deliveries.due, at=self._clock.now(), most=_AT_ONCE))
                await asyncio.gather(*(self._one(row) for row in rows))
                if rows:
                    continue
                due = await self._store.read(deliveries.next_due)
            except Exception:  # noqa: BLE001 - the next round tries again
                _LOG.exception("Webhook deliveries could not be read or noted.")
                due = None
            wait = _LOOK_AGAIN if due is None else min(_LOOK_AGAIN, max(0.0, due - self._clock.now()))
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def _one(self, row: Row) -> None:
        headers = {str(name): str(value) for name, value in decoded(row["headers"]).items()}
        headers = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        headers["Content-Type"] = "application/json"
        if self._secret is not None:
            headers[webhooks.SIGNATURE_HEADER] = webhooks.sign(self._secret, row["body"])
        try:
            async with asyncio.timeout(TIMEOUT):
                status = await self._post(row["url"], row["body"], headers)
            problem = "" if 200 <= status < 300 else f"it answered {status}"
        except Exception as error:  # noqa: BLE001 - whatever a receiver does, it is tried again
            problem = type(error).__name__
        if not problem:
            await self._store.write(partial(deliveries.acknowledge, delivery_id=row["id"]))
            return
        await self._again(row, problem)

    async def _again(self, row: Row, problem: str) -> None:
        tries, at = row["tries"] + 1, self._clock.now()

        def put_off(db: Connection) -> bool:
            return deliveries.put_off(db, row["id"], tries, at)

        alive = await self._store.write(put_off)
        then = "it is tried again" if alive else "it is dropped, as that was the last try"
        _LOG.warning("Webhook delivery %s of job %s failed (%s): %s.", row["id"], row["job"], problem, then)


#: Headers that a webhook's configuration cannot set.
_OURS = frozenset({"content-type", "content-length", "host", "transfer-encoding", webhooks.SIGNATURE_HEADER.lower()})
