"""One client for all the jobs that wait in a triggerer.

A client of its own for each of ten thousand triggers would be ten thousand connection pools and TLS sessions. So there
is one for each event loop and content of a connection, with a count of those who use it; the last one closes it. A key
that is changed makes another content, and so another client, while those who wait keep the one they have.
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
    """What belongs to one event loop. Only its own thread touches it, so it needs no lock."""

    clients: dict[Endpoint, _Shared] = field(default_factory=dict)
    #: Reads of connections that are under way, by connection id.
    reads: dict[str, asyncio.Task[Endpoint]] = field(default_factory=dict)


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = WeakKeyDictionary()


@asynccontextmanager
async def shared_client(weblake_conn_id: str) -> AsyncIterator[weblake.AsyncClient]:
    """Lends the client of this connection and event loop; it must not be closed by who borrows it.

    The connection is read anew at each call, with callers at the same moment sharing one read: a triggerer that starts
    with ten thousand jobs asks for it once and not ten thousand times.

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
            # Out of the table before the first await: who comes now opens another and never gets one that closes.
            del mine.clients[endpoint]
            await shared.client.aclose()


async def _read(mine: _OfLoop, conn_id: str) -> Endpoint:
    reading = mine.reads.get(conn_id)
    if reading is None:
        reading = mine.reads[conn_id] = asyncio.create_task(WeblakeHook(conn_id).aendpoint())
        reading.add_done_callback(lambda done: _is_read(mine, conn_id, done))
    # One of those who wait may be cancelled; the others still want it.
    return await asyncio.shield(reading)


def _is_read(mine: _OfLoop, conn_id: str, done: asyncio.Task[Endpoint]) -> None:
    if mine.reads.get(conn_id) is done:
        del mine.reads[conn_id]
    if not done.cancelled():
        done.exception()  # retrieved, also where nobody waits any more
