"""Locks by key: one holder for each key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class KeyedLocks:
    """The keys that are locked or waited for; used on one event loop."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def lock(self, name: Hashable, wait_s: float | None = None) -> AsyncIterator[None]:
        """Hold the lock of a key while the block runs.

        Raises:
            TimeoutError: The lock is still held after `wait_s` seconds; without a number the wait is unlimited.
        """
        lock, users = self._locks.setdefault(name, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with asyncio.timeout(wait_s):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            users.pop()
            if not users:
                self._locks.pop(name, None)
