"""Locks by key: one holder for each key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from weblake import aio


class KeyedLocks:
    """The names under which somebody acts or waits; used on one event loop."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def lock(self, name: Hashable, wait_s: float | None = None) -> AsyncIterator[None]:
        """Is the only one under a name while the block runs.

        Raises:
            TimeoutError: Somebody else still is after so many seconds; without a number it waits for good.
        """
        lock, users = self._locks.setdefault(name, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with aio.timeout(wait_s):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            users.pop()
            if not users:
                self._locks.pop(name, None)
