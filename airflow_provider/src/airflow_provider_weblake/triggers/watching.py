"""Polling, sharing of polls and persistent state of the event triggers.

All watchers of one connection and question share one poll: the triggerer opens it once and passes each result to each
of them. A watcher stores its memory in the state store of its assets only after Airflow has confirmed that the events
are in its database (the ack mode of Airflow's shared streams). A triggerer that dies before the write fires those
events again, and one that dies after it does not: an event may come twice, and is never lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_weblake.features import AdvanceItem, AirflowException, SharedStreamProducer
from airflow_provider_weblake.hooks.shared import shared_client
from airflow_provider_weblake.remedies import in_airflow_terms
from airflow_provider_weblake.triggers.stored import check_interval, error_text, serialized
from weblake.errors import RetryLater, WeblakeError

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor

    from weblake import AsyncClient

S = TypeVar("S")
#: The state of a watcher: JSON, a few kilobytes at most.
Memory: TypeAlias = dict[str, object]
Question: TypeAlias = "Callable[[AsyncClient], Awaitable[S]]"

_LOG = logging.getLogger(__name__)
#: Failed polls in a row after which a watcher raises. Airflow logs the error and starts the watcher anew.
MAX_FAILURES = 10
#: Seconds before the first retry of a failed poll; it doubles up to the watcher's own interval.
FIRST_REPEAT_S = 30.0
#: The longest pause that is accepted from Retry-After, in seconds.
MAX_RETRY_AFTER_S = 3600.0
#: Seconds that the state store may take for one write: it no longer answers a triggerer that shuts down.
WRITE_S = 15.0
#: The minimum interval between two polls, in seconds.
MIN_INTERVAL_S = 1.0
#: Errors of the connection, the service or the network that end one poll.
_POLL_ERRORS = (WeblakeError, AirflowException, AirflowRuntimeError, OSError, TimeoutError)


@dataclass
class PollResult(Generic[S]):
    """The result of one poll, as each watcher gets it."""

    seen: S
    #: Called when the events of this result are in Airflow's database.
    when_stored: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    async def stored(self) -> None:
        """Persist watcher state after Airflow has stored the events; a failed write is repeated after the next poll."""
        for keep in self.when_stored:
            try:
                async with asyncio.timeout(WRITE_S):
                    await keep()
            except Exception as error:  # noqa: BLE001 - one asset's store must not end the poll of all others
                _LOG.warning("A watcher's state could not be stored; the next poll tries again: %r", error)


@dataclass
class Polls(SharedStreamProducer, Generic[S]):
    """Polls the service repeatedly and retries after temporary errors."""

    weblake_conn_id: str
    poll_interval: float
    ask: Question[S]

    async def open_stream(self) -> AsyncIterator[tuple[PollResult[S], PollResult[S]]]:
        """Yield each result twice: for the watchers, and for `advance`."""
        failures = 0
        while True:
            try:
                with in_airflow_terms():
                    # Read for each poll, so that a changed key is used.
                    async with shared_client(self.weblake_conn_id) as client:
                        look = PollResult(await self.ask(client))
            except _POLL_ERRORS as error:
                failures += 1
                if failures >= MAX_FAILURES:
                    raise
                pause = self._repeat_after(error, failures)
                _LOG.warning("Poll failed, %d in a row, again in %.0f s: %s", failures, pause, error_text(error))
            else:
                failures = 0
                yield look, look
                pause = _jittered(self.poll_interval)
            await asyncio.sleep(pause)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Persist watcher state for results whose events Airflow has stored."""
        for item in batch:
            # If one watcher failed, Airflow does not say which; the others are stored with their next result.
            if item.outcome.is_clean:
                await item.broker_payload.stored()

    def _repeat_after(self, error: BaseException, failures: int) -> float:
        pause = _jittered(min(self.poll_interval, FIRST_REPEAT_S * 2.0 ** (failures - 1)))
        asked = error.retry_after if isinstance(error, RetryLater) else None
        return max(pause, min(asked or 0.0, MAX_RETRY_AFTER_S))


class Watcher(BaseEventTrigger, Generic[S]):
    """Base of the event triggers, which are dataclasses; they define the question and how to follow its answers."""

    weblake_conn_id: str
    poll_interval: float

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_interval("poll_interval", self.poll_interval, MIN_INTERVAL_S)
        #: The content of the state store, as far as it is known.
        self._kept: Memory | None = None

    @abstractmethod
    def subject(self) -> str:
        """Return what is asked about: watchers of one connection with the same subject share one poll."""

    @abstractmethod
    def question(self) -> Question[S]:
        """Return a new function that asks the service."""

    def choice(self) -> Sequence[object]:
        """Return what this watcher fires on; with another choice it begins with an empty memory."""
        return ()

    @abstractmethod
    def follow(self, memory: Memory | None, seen: S) -> tuple[Memory | None, list[Memory]]:
        """Return the new memory after this result, and the events to fire. No I/O."""

    def serialize(self) -> tuple[str, dict[str, object]]:
        """Return the class path and the arguments, which are names and numbers."""
        return serialized(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events of a poll of its own.

        Airflow calls this before 3.3, and later `filter_shared_stream`. It has no asset state then, so what was fired
        is forgotten with the trigger.
        """
        memory: Memory | None = None
        async for look, _ in self._polls().open_stream():
            memory, events = self.follow(memory, look.seen)
            for event in events:
                yield TriggerEvent(event)

    def shared_stream_key(self) -> Hashable:
        """Return the class, the connection, the subject and the interval."""
        return type(self).__name__, self.weblake_conn_id, self.subject(), self.poll_interval

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, object]) -> SharedStreamProducer:
        """Return the poll that watchers with one key share."""
        return cls(**kwargs)._polls()  # its own serialised arguments

    async def filter_shared_stream(self, shared_stream: AsyncIterator[PollResult[S]]) -> AsyncIterator[TriggerEvent]:
        """Yield the events of each result that are new to this watcher."""
        memory = self._kept = await self._read()
        async for look in shared_stream:
            memory, events = self.follow(memory, look.seen)
            if memory is not None and memory != self._kept:
                # Registered before the events are yielded: afterwards this result may already be stored.
                look.when_stored.append(partial(self.keep, memory))
            for event in events:
                yield TriggerEvent(event)

    async def keep(self, memory: Memory) -> None:
        """Write the memory into the state store of every asset that is watched."""
        note: dict[str, Any] = {**memory, "noted_at": datetime.now(timezone.utc).isoformat(timespec="milliseconds")}
        for store in self._stores():
            await store.aset(self._key, note)
        self._kept = memory

    def _polls(self) -> Polls[S]:
        return Polls(self.weblake_conn_id, self.poll_interval, self.question())

    @property
    def _key(self) -> str:
        of = json.dumps([self.weblake_conn_id, self.subject(), *self.choice()])
        return f"{type(self).__name__}_{hashlib.sha256(of.encode()).hexdigest()[:16]}"

    def _stores(self) -> list[AssetStateStoreAccessor]:
        """Return one store for each asset: Airflow runs one trigger for all assets watched with the same arguments."""
        given = getattr(self, "asset_state_store", None)
        if given is None:
            return []
        # Airflow 3.3 has no public way to name the assets from here, and its shorthand refuses more than one.
        of_assets = [*getattr(given, "_by_name", {}).values(), *getattr(given, "_by_uri", {}).values()]
        return of_assets or [given]

    async def _read(self) -> Memory | None:
        stores = self._stores()
        if not stores:
            self.log.warning("There is no asset state store: what was fired is forgotten when the triggerer restarts.")
        notes = [note for store in stores if isinstance(note := await store.aget(self._key), dict)]
        # An asset that was added later has no state yet, or an outdated one.
        newest = max(notes, key=lambda note: str(note.get("noted_at")), default=None)
        return None if newest is None else {name: value for name, value in newest.items() if name != "noted_at"}


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.9, 1.1)  # noqa: S311 - jitter between polls, no secret
