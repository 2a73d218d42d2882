"""How a watcher polls, shares its poll with its siblings, and remembers.

All watchers of one connection and question share one poll: the triggerer opens it once and hands every look at the
service to each of them. What a watcher has fired is noted in the state store of its assets, and only when Airflow has
confirmed that the events are in its database (the ack mode of Airflow's shared streams). A triggerer that dies before
the note fires those events again, one that dies after it does not: an event may come twice, and is never lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
from typing_extensions import Self

from airflow_provider_weblake.hooks.shared import shared_client
from airflow_provider_weblake.remedies import AIRFLOW
from weblake import aio
from weblake.errors import InvalidOption, RetryLater, WeblakeError

if TYPE_CHECKING:
    from weblake import AsyncClient

S = TypeVar("S")
#: What a watcher remembers: JSON, a few kilobytes at most.
Memory: TypeAlias = dict[str, object]
Question: TypeAlias = "Callable[[AsyncClient], Awaitable[S]]"

_LOG = logging.getLogger(__name__)
#: Failed polls in a row after which a watcher raises. Airflow logs it and starts the watcher anew.
MAX_FAILURES = 10
#: Seconds before the first repeat of a failed poll; it doubles up to the watcher's own interval.
FIRST_REPEAT_S = 30.0
#: The most that is taken from Retry-After.
RETRY_AFTER_MOST_S = 3600.0
#: Seconds that the state store may take for one write: a triggerer that shuts down no longer answers.
WRITE_S = 15.0
#: Pauses between tries to read the state; together far below the 300 s in which Airflow wants an event handled.
_READ_AGAIN_S = (1.0, 2.0, 4.0, 8.0)
#: Seconds between two polls at least.
LEAST_INTERVAL_S = 1.0
#: What can go wrong with a connection, the service, or the way there.
_TROUBLE = (WeblakeError, AirflowException, AirflowRuntimeError, OSError, TimeoutError)


class Store(Protocol):
    """The two methods of Airflow's asset state store that are used."""

    async def aget(self, key: str, default: None = None) -> object:
        """The value of a key."""

    async def aset(self, key: str, value: Memory) -> None:
        """Writes it."""


class Look(Generic[S]):
    """One look at the service, as each watcher gets it."""

    def __init__(self, seen: S) -> None:
        self.seen = seen
        self._keep: list[Callable[[], Awaitable[None]]] = []

    def when_stored(self, keep: Callable[[], Awaitable[None]]) -> None:
        """Has this called once the events that came of this look are in Airflow's database."""
        self._keep.append(keep)

    async def stored(self) -> None:
        """They are. A note that cannot be written now is written after the next look."""
        for keep in self._keep:
            try:
                async with aio.timeout(WRITE_S):
                    await keep()
            except Exception as error:  # noqa: BLE001 - one asset's store must not end the poll of all others
                _LOG.warning("A watcher's state could not be stored; the next poll tries again: %r", error)


class Polls(SharedStreamProducer, Generic[S]):
    """Asks again and again; trouble that may pass is waited out."""

    def __init__(self, weblake_conn_id: str, poll_interval: float, ask: Question[S]) -> None:
        self._conn_id = weblake_conn_id
        self._interval = poll_interval
        self._ask = ask

    async def open_stream(self) -> AsyncIterator[tuple[Look[S], Look[S]]]:
        """Yields each look twice: for the watchers, and for `advance`."""
        failures = 0
        async with _Line(self._conn_id) as line:
            while True:
                try:
                    look = Look(await self._ask(await line.client()))
                except _TROUBLE as error:
                    failures += 1
                    if failures >= MAX_FAILURES:
                        raise
                    pause = self._repeat_after(error, failures)
                    _LOG.warning("Poll failed, %d in a row, again in %.0f s: %s", failures, pause, _said(error))
                else:
                    failures = 0
                    yield look, look
                    pause = _jittered(self._interval)
                await asyncio.sleep(pause)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Airflow has stored the events of these looks."""
        for item in batch:
            # Where one watcher failed, nobody can tell which: the others note it with their next look.
            if item.outcome.is_clean:
                await item.broker_payload.stored()

    def _repeat_after(self, error: BaseException, failures: int) -> float:
        pause = _jittered(min(self._interval, FIRST_REPEAT_S * 2.0 ** (failures - 1)))
        asked = error.retry_after if isinstance(error, RetryLater) else None
        return max(pause, min(asked or 0.0, RETRY_AFTER_MOST_S))


class _Line:
    """The client of a connection for one poll after the other.

    The connection is read for each, so that a key that was changed is used. The client before is given back only then:
    while nothing has changed it is the same one, with its open connections.
    """

    def __init__(self, weblake_conn_id: str) -> None:
        self._conn_id = weblake_conn_id
        self._held = AsyncExitStack()

    async def client(self) -> AsyncClient:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(shared_client(self._conn_id))
            await self._held.aclose()
            self._held = stack.pop_all()
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._held.aclose()


class Watcher(BaseEventTrigger, Generic[S]):
    """Base of the event triggers: what differs is the question and what follows from the answer."""

    def __init__(self, weblake_conn_id: str, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not poll_interval >= LEAST_INTERVAL_S:
            raise InvalidOption(
                f"poll_interval is {poll_interval}, and at least {LEAST_INTERVAL_S:.0f} second was expected.",
                hint="Give seconds.",
            )
        self.weblake_conn_id = weblake_conn_id
        self.poll_interval = poll_interval
        #: What the store holds, as far as is known.
        self._kept: Memory | None = None

    @abstractmethod
    def subject(self) -> str:
        """What is asked about: watchers of one connection with the same subject share one poll."""

    @abstractmethod
    def question(self) -> Question[S]:
        """A new asker of it."""

    def choice(self) -> Sequence[object]:
        """What of it this watcher fires on: with another choice it begins with an empty memory."""
        return ()

    @abstractmethod
    def follow(self, memory: Memory | None, seen: S) -> tuple[Memory | None, list[Memory]]:
        """What is to be remembered after this look, and the events to fire. No I/O."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fires for as long as it is watched, with a poll of its own."""

        async def looks() -> AsyncIterator[Look[S]]:
            async with aclosing(self._polls().open_stream()) as stream:  # type: ignore[type-var]  # a generator
                async for look, _ in stream:
                    yield look
                    await look.stored()  # whoever takes the events has come back for more

        async with aclosing(looks()) as stream:  # type: ignore[type-var]
            async for event in self.filter_shared_stream(stream):
                yield event

    def shared_stream_key(self) -> Hashable:
        """The class, the connection, the subject and the interval."""
        return type(self).__name__, self.weblake_conn_id, self.subject(), self.poll_interval

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, object]) -> SharedStreamProducer:
        """The poll that watchers with one key share."""
        return cls(**kwargs)._polls()  # type: ignore[arg-type]  # its own serialised arguments

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Look[S]]) -> AsyncIterator[TriggerEvent]:
        """Turns each look into the events that are new to this watcher."""
        memory = self._kept = await self._read()
        async for look in shared_stream:
            memory, events = self.follow(memory, look.seen)
            if memory is not None and memory != self._kept:
                # Said before the events are handed over: afterwards this look may already be settled.
                look.when_stored(partial(self.keep, memory))
            for event in events:
                yield TriggerEvent(event)

    async def keep(self, memory: Memory) -> None:
        """Writes the memory into the state store of every asset that is watched."""
        note = {**memory, "noted_at": datetime.now(timezone.utc).isoformat(timespec="milliseconds")}
        for store in self._stores():
            await store.aset(self._key, note)
        self._kept = memory

    def _polls(self) -> Polls[S]:
        return Polls(self.weblake_conn_id, self.poll_interval, self.question())

    @property
    def _key(self) -> str:
        of = json.dumps([self.weblake_conn_id, self.subject(), *self.choice()])
        return f"{type(self).__name__}_{hashlib.sha256(of.encode()).hexdigest()[:16]}"

    def _stores(self) -> list[Store]:
        """One for each asset: Airflow runs one trigger for all assets that are watched with the same arguments."""
        given = self.asset_state_store
        if given is None:
            return []
        # Airflow 3.3 has no public way to name the assets from here, and its shorthand refuses more than one.
        of_assets = [*getattr(given, "_by_name", {}).values(), *getattr(given, "_by_uri", {}).values()]
        return of_assets or [given]

    async def _read(self) -> Memory | None:
        stores = self._stores()
        if not stores:
            self.log.warning("There is no asset state store: what was fired is forgotten when the triggerer restarts.")
        notes = [note for store in stores if isinstance(note := await self._read_one(store), dict)]
        # An asset that was added later knows nothing yet, or something old from an earlier time.
        newest = max(notes, key=lambda note: str(note.get("noted_at")), default=None)
        return None if newest is None else {name: value for name, value in newest.items() if name != "noted_at"}

    async def _read_one(self, store: Store) -> object:
        for pause in _READ_AGAIN_S:
            try:
                return await store.aget(self._key)
            except _TROUBLE as error:
                self.log.warning("The watcher's state cannot be read, again in %.0f s: %s", pause, _said(error))
                await asyncio.sleep(pause)
        return await store.aget(self._key)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.9, 1.1)  # noqa: S311 - it spreads polls, it keeps no secret


def _said(error: BaseException) -> str:
    """An error in a log: ours and Airflow's hold no key; of others only the type is known to hold none."""
    if isinstance(error, WeblakeError):
        error.interface = AIRFLOW
    told = isinstance(error, WeblakeError | AirflowException)
    return f"{type(error).__name__}: {error}" if told else type(error).__name__
