"""Fair queue for a team's fetch slots: shared among its jobs in turn.

Single calls go before the pages of jobs, and jobs take turns, so that a job of ten pages does not wait for a job of a
hundred thousand. If a team has eight slots or more, one in eight cannot be taken by any single site: a site whose
fetches all wait for their timeout then delays only its own pages.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

#: The queue of calls that belong to no job.
NO_JOB = ""
#: The team for which the current task works.
TEAM: ContextVar[str] = ContextVar("TEAM", default="")
#: The queue of the current task at the limits of the service that all teams share.
QUEUE: ContextVar[str] = ContextVar("QUEUE", default=NO_JOB)
#: One slot in this many cannot be taken by a single user.
_SHARED_SLOTS_DIVISOR = 8


def largest_share(slots: int) -> int:
    """Return how many slots one user of them, such as a site, may take."""
    return slots - slots // _SHARED_SLOTS_DIVISOR


@dataclass(slots=True, eq=False)
class _Waiter:
    site: str
    granted: asyncio.Future[None]


@dataclass(slots=True)
class _TeamState:
    in_use: int = 0
    by_site: Counter[str] = field(default_factory=Counter)
    queues: OrderedDict[str, deque[_Waiter]] = field(default_factory=OrderedDict)


class SharedSlots:
    """A number of slots for each team, and one more for all teams together: no team delays the others."""

    def __init__(self, slots: int) -> None:
        self._all = asyncio.Semaphore(slots + 1)
        self._of_team: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(slots))

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold a slot of the current task's team while the block runs."""
        async with self._of_team[TEAM.get()], self._all:
            yield


class FairQueue:
    """The fetch slots of all teams; `limit` returns the number of slots of a team."""

    def __init__(self, limit: Callable[[str], int]) -> None:
        self._limit = limit
        self._teams: dict[str, _TeamState] = {}

    def in_use(self, team: str) -> int:
        """Return the number of slots that the team holds."""
        known = self._teams.get(team)
        return known.in_use if known is not None else 0

    @asynccontextmanager
    async def acquire(self, team: str, site: str, queue_id: str = NO_JOB) -> AsyncIterator[bool]:
        """Hold a slot while the block runs; yield whether it had to be waited for.

        Args:
            team: The team that owns the slot.
            site: The host that is fetched from.
            queue_id: The id of the job, or NO_JOB for a single call with a waiting client.
        """
        waited = await self._acquire(team, site, queue_id)
        try:
            yield waited
        finally:
            self._release(team, site)

    async def _acquire(self, team: str, site: str, queue_id: str) -> bool:
        state = self._teams.setdefault(team, _TeamState())
        waiter = _Waiter(site, asyncio.get_running_loop().create_future())
        state.queues.setdefault(queue_id, deque()).append(waiter)
        self._grant(team, state)
        if waiter.granted.done():
            return False
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._release(team, site)
            else:
                _remove_waiter(state, queue_id, waiter)
                self._drop_idle(team, state)
            raise
        return True

    def _release(self, team: str, site: str) -> None:
        state = self._teams[team]
        state.in_use -= 1
        state.by_site[site] -= 1
        if not state.by_site[site]:
            del state.by_site[site]
        self._grant(team, state)
        self._drop_idle(team, state)

    def _grant(self, team: str, state: _TeamState) -> None:
        slots = self._limit(team)
        while state.in_use < slots and (waiter := _next_waiter(state, largest_share(slots))) is not None:
            state.in_use += 1
            state.by_site[waiter.site] += 1
            waiter.granted.set_result(None)

    def _drop_idle(self, team: str, state: _TeamState) -> None:
        if not state.in_use and not state.queues:
            self._teams.pop(team, None)


def _next_waiter(state: _TeamState, share: int) -> _Waiter | None:
    """Remove and return the next waiter that may run, or None; its queue then moves behind the others."""
    queue_ids = [NO_JOB, *state.queues] if NO_JOB in state.queues else list(state.queues)
    for queue_id in queue_ids:
        for waiter in state.queues[queue_id]:
            if state.by_site[waiter.site] < share and not waiter.granted.cancelled():
                _remove_waiter(state, queue_id, waiter)
                if queue_id in state.queues:
                    state.queues.move_to_end(queue_id)
                return waiter
    return None


def _remove_waiter(state: _TeamState, queue_id: str, waiter: _Waiter) -> None:
    waiting = state.queues[queue_id]
    waiting.remove(waiter)
    if not waiting:
        del state.queues[queue_id]
