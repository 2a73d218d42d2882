"""Delivers queued webhooks and retries until the receiver answers 2xx.

A receiver has 10 seconds to respond; a failed delivery is retried after 1, 5 and 15 minutes and then dropped. The queue
is in the database, so deliveries that were not acknowledged before a restart are sent after it, with the same
webhookId. Concurrent deliveries to one receiver are limited, and a slow receiver delays neither jobs nor other
receivers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from sqlite3 import Connection, Row

from weblake.api import webhooks
from weblake_service.clock import Clock
from weblake_service.config import ServiceConfig
from weblake_service.jobs import webhook_queue
from weblake_service.jobs.job_records import decode_object
from weblake_service.page_failure import PageFailure
from weblake_service.store.database import Store

_LOG = logging.getLogger("weblake.service")
#: Response timeout of a receiver in seconds.
TIMEOUT_S = 10.0
#: Maximum concurrent deliveries: to one receiver, and in total.
_MAX_PER_RECEIVER, _MAX_CONCURRENT = 4, 64
#: Maximum seconds between two reads of the queue.
_POLL_S = 60.0
#: Seconds until a delivery whose outcome could not be recorded is tried again.
_RECORD_AGAIN_S = 5.0
#: Maximum seconds that a change of the clock waits for deliveries.
_WAIT_TIMEOUT_S = 1.0

#: Posts a body to a URL and returns the status of the response; raises network errors.
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]


class WebhookDelivery:
    """Delivers the webhooks of all jobs."""

    def __init__(self, store: Store, clock: Clock, post: Post, config: ServiceConfig) -> None:
        self._store = store
        self._clock = clock
        self._post = post
        self._config = config
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._in_flight: dict[int, Row] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the delivery task."""
        self._task = asyncio.create_task(self._deliver(), name="webhook delivery")

    def wake(self) -> None:
        """Notify the delivery task that a webhook may be due."""
        self._bell.set()

    async def wait_for_deliveries(self) -> None:
        """Wait, at most a second, until the outcomes of current deliveries are recorded; called before the clock is
        changed.
        """
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_WAIT_TIMEOUT_S)

    async def close(self) -> None:
        """Stop; unfinished deliveries are repeated after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        under_way = list(self._tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _deliver(self) -> None:
        while True:
            self._bell.clear()
            due = None
            try:
                now = self._clock.now()
                rows, due = await self._store.read(partial(self._start_ready, in_flight=dict(self._in_flight), now=now))
                for row in rows:
                    self._start_delivery(row)
            except Exception:  # noqa: BLE001 - the next round tries again
                _LOG.exception("Webhook deliveries could not be read.")
            wait = _POLL_S if due is None else min(_POLL_S, max(0.0, due - self._clock.now()))
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                continue

    def _start_ready(self, db: Connection, in_flight: Mapping[int, Row], now: float) -> tuple[list[Row], float | None]:
        """Start the due deliveries; return them, and when to read the queue again.

        The end of a delivery also wakes the delivery task.
        """
        rows = webhook_queue.ready(
            db, now, in_flight, max_per_receiver=_MAX_PER_RECEIVER, max_concurrent=_MAX_CONCURRENT
        )
        return rows, webhook_queue.next_due(db, now)

    def _start_delivery(self, row: Row) -> None:
        self._in_flight[row["seq"]] = row
        task = asyncio.create_task(self._deliver_one(row["seq"]))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._in_flight.pop(row["seq"], None)
            self.wake()

        task.add_done_callback(ended)

    async def _deliver_one(self, place: int) -> None:
        try:
            row = await self._store.read(partial(webhook_queue.find, place=place))
            if row is not None:
                await self._record(row, *await self._attempt(row))
        except Exception:  # noqa: BLE001 - the delivery stays queued
            _LOG.exception("A webhook delivery could not be read or noted.")
            await asyncio.sleep(_RECORD_AGAIN_S)

    async def _attempt(self, row: Row) -> tuple[bool, str]:
        """Post a delivery; return whether it was acknowledged, and the receiver's response."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._post(row["url"], row["body"], self._headers(row))
        except TimeoutError:
            return False, f"no answer within {TIMEOUT_S:.0f} s"
        except PageFailure as failure:
            return False, failure.code
        except Exception as error:  # noqa: BLE001 - any failure of a receiver is retried
            return False, type(error).__name__
        return 200 <= status < 300, str(status)

    def _headers(self, row: Row) -> dict[str, str]:
        headers = {str(name): str(value) for name, value in decode_object(row["headers"]).items()}
        headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        headers["Content-Type"] = "application/json"
        secret = self._config.plan(row["team"]).webhook_secret
        if secret is not None:
            headers[webhooks.SIGNATURE_HEADER] = webhooks.sign(secret, row["body"])
        return headers

    async def _record(self, row: Row, arrived: bool, answer: str) -> None:
        now = self._clock.now()
        if arrived:
            await self._store.write(partial(webhook_queue.acknowledge, place=row["seq"], at=now, answer=answer))
            return
        alive = await self._store.write(partial(webhook_queue.schedule_retry, place=row["seq"], at=now, answer=answer))
        then = "it is tried again" if alive else "it is dropped, as that was the last try"
        _LOG.warning("Webhook delivery %s of job %s failed (%s): %s.", row["id"], row["job"], answer, then)
