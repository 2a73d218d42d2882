"""Where the requests of threads wait for a connection. Imports nothing of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpcore

#: Idle connections that are kept: after many requests at once, few are wanted.
MOST_IDLE = 20


class ThreadLine:
    """Lends connections, each to one request at a time."""

    def __init__(self, most: int, make: Callable[[], httpcore.ConnectionInterface], *, keep: bool) -> None:
        self._turns = threading.BoundedSemaphore(most)
        self._make = make
        #: Whether a connection serves more than one request.
        self._keep = keep
        self._lent: set[httpcore.ConnectionInterface] = set()
        #: The one used last is at the end and taken first; the others are left to their expiry. Lists and sets are
        #: whole for every thread, so that nothing here is locked.
        self._free: list[httpcore.ConnectionInterface] = []

    @contextmanager
    def lent(self, seconds: float) -> Iterator[httpcore.ConnectionInterface]:
        """Lends one for one request, as soon as there is one; raises httpcore.PoolTimeout where that takes longer."""
        if not self._turns.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX))):
            raise httpcore.PoolTimeout
        mine = None
        try:
            mine = self._taken()
            self._lent.add(mine)
            yield mine
        finally:
            if mine is not None:
                self._back(mine)
            self._turns.release()

    def close(self) -> None:
        """Closes them all."""
        for connection in [*self._free, *self._lent]:
            connection.close()

    def _taken(self) -> httpcore.ConnectionInterface:
        while True:
            try:
                mine = self._free.pop()
            except IndexError:
                return self._make()
            if not mine.is_closed() and not mine.has_expired():
                return mine
            mine.close()

    def _back(self, mine: httpcore.ConnectionInterface) -> None:
        self._lent.discard(mine)
        if self._keep and mine.is_idle() and not mine.is_closed() and len(self._free) < MOST_IDLE:
            self._free.append(mine)
        else:
            # Most often left in the middle of a reply, or of a request that was given up: nobody else can use it.
            mine.close()
