"""Where the requests of one kind wait for a connection on an event loop. Imports nothing of ours.

httpcore's own pool walks all of its connections, and all requests that wait, whenever a request comes or goes: with a
thousand waiting, the event loop stood still for ten seconds. Here either costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from httpcore import AsyncConnectionInterface


class Line:
    """Lends connections, first come, first served."""

    def __init__(self, most: int, make: Callable[[], AsyncConnectionInterface], *, keep: bool) -> None:
        self._turns = asyncio.Semaphore(most)
        self._make = make
        #: Whether a connection serves more than one request.
        self._keep = keep
        self._lent: set[AsyncConnectionInterface] = set()
        #: The one used last is at the end and taken first; the others are left to their expiry.
        self._free: list[AsyncConnectionInterface] = []

    async def lent(self) -> AsyncConnectionInterface:
        """Lends one for one request, as soon as there is one; it has to be given back."""
        await self._turns.acquire()
        try:
            mine = self._free.pop() if self._free else self._make()
            while mine.is_closed() or (mine.is_idle() and mine.has_expired()):
                await mine.aclose()
                mine = self._free.pop() if self._free else self._make()
        except BaseException:
            self._turns.release()
            raise
        self._lent.add(mine)
        return mine

    async def back(self, mine: AsyncConnectionInterface) -> None:
        """Takes it back, whatever became of it."""
        self._lent.discard(mine)
        try:
            if self._keep and mine.is_idle() and not mine.is_closed():
                self._free.append(mine)
            else:
                # Left in the middle of a reply, or of a request that was cancelled: nobody else can use it.
                await mine.aclose()
        finally:
            self._turns.release()

    async def aclose(self) -> None:
        """Closes them all."""
        for connection in [*self._free, *self._lent]:
            await connection.aclose()
