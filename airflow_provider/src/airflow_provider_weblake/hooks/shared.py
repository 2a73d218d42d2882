"""One client, shared by all jobs that wait in a triggerer.

A client for each of a thousand triggers would be a thousand TLS contexts without a common bound on requests. So there
is one client for each event loop and content of a connection, with a reference count; the last user closes it. A
changed API key makes another content and so another client, while triggers that already wait keep theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_provider_weblake.hooks.weblake import WeblakeHook

if TYPE_CHECKING:
    import weblake
    from airflow_provider_weblake.hooks.endpoint import Endpoint


@dataclass(slots=True)
class _Shared:
    client: weblake.AsyncClient
    users: int = 0


@dataclass(slots=True)
class _OfLoop:
    """The shared clients of one event loop. Only the loop's own thread uses them, so they need no lock."""

    clients: dict[Endpoint, _Shared] = field(default_factory=dict)
    #: Reads of connections that are in progress, by connection id.
    reads: dict[str, asyncio.Task[Endpoint]] = field(default_factory=dict)


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = WeakKeyDictionary()


@asynccontextmanager
async def shared_client(weblake_conn_id: str) -> AsyncIterator[weblake.AsyncClient]:
    """Return a context manager for the shared client of a connection and event loop; do not close the client.

    The connection is read at each call, and concurrent callers share one read: a triggerer that starts with ten
    thousand jobs reads it once instead of ten thousand times.

    :param weblake_conn_id: the connection's id.

    Raises:
        AskPerson: The connection has no host or no password.
        InvalidOption: A field of it cannot be used.
        AirflowNotFoundException: There is no such connection.
    """
    mine = _LOOPS.setdefault(asyncio.get_running_loop(), _OfLoop())
    endpoint = await _read(mine, weblake_conn_id)
    shared = mine.clients.get(endpoint)
    if shared is None:
        shared = mine.clients[endpoint] = _Shared(endpoint.aclient(weblake_conn_id))
    shared.users += 1
    try:
        yield shared.client
    finally:
        shared.users -= 1
        if not shared.users:
            # Removed from the table before the first await: a later caller opens a new client and never gets one that
            # closes.
            del mine.clients[endpoint]
            await shared.client.aclose()


async def _read(mine: _OfLoop, conn_id: str) -> Endpoint:
    reading = mine.reads.get(conn_id)
    if reading is None:
        reading = mine.reads[conn_id] = asyncio.create_task(WeblakeHook(conn_id).aendpoint())
        reading.add_done_callback(lambda done: _is_read(mine, conn_id, done))
    # One of the waiting callers may be cancelled; the others still need the result.
    return await asyncio.shield(reading)


def _is_read(mine: _OfLoop, conn_id: str, done: asyncio.Task[Endpoint]) -> None:
    if mine.reads.get(conn_id) is done:
        del mine.reads[conn_id]
    if not done.cancelled():
        done.exception()  # mark the exception as retrieved if no caller waits any more
