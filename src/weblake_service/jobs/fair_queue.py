"""Who may fetch next: the places that a team has, shared among its jobs in turn.

A single call goes before the pages of jobs, and jobs take turns, so that ten pages are not kept waiting by a hundred
thousand. Where a team has eight places or more, one in eight is kept from any one site: a site that lets every fetch
wait for its timeout holds up its own pages and not those of others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

#: The line of what belongs to no job.
FIRST = ""
#: Of so many places one is kept from any one site.
_SHARE = 8


def of_one_site(room: int) -> int:
    """How many of a team's places may be taken by one site."""
    return room - room // _SHARE


@dataclass(slots=True, eq=False)
class _Wish:
    site: str
    granted: asyncio.Future[None]


@dataclass(slots=True)
class _Team:
    held: int = 0
    by_site: Counter[str] = field(default_factory=Counter)
    lines: OrderedDict[str, deque[_Wish]] = field(default_factory=OrderedDict)


class Gate:
    """The places of all teams; `room` says how many a team has."""

    def __init__(self, room: Callable[[str], int]) -> None:
        self._room = room
        self._teams: dict[str, _Team] = {}

    def held(self, team: str) -> int:
        """How many places the team holds now."""
        known = self._teams.get(team)
        return known.held if known is not None else 0

    @asynccontextmanager
    async def place(self, team: str, site: str, line: str = FIRST) -> AsyncIterator[bool]:
        """Holds a place while the block runs; says whether it had to be waited for.

        Args:
            team: Whose place.
            site: The host that is fetched from.
            line: The job, or FIRST for a call that somebody waits for.
        """
        waited = await self._enter(team, site, line)
        try:
            yield waited
        finally:
            self._leave(team, site)

    async def _enter(self, team: str, site: str, line: str) -> bool:
        mine = self._teams.setdefault(team, _Team())
        wish = _Wish(site, asyncio.get_running_loop().create_future())
        mine.lines.setdefault(line, deque()).append(wish)
        self._grant(team, mine)
        if wish.granted.done():
            return False
        try:
            await wish.granted
        except asyncio.CancelledError:
            if wish.granted.done() and not wish.granted.cancelled():
                self._leave(team, site)
            else:
                _forget(mine, line, wish)
                self._drop_idle(team, mine)
            raise
        return True

    def _leave(self, team: str, site: str) -> None:
        mine = self._teams[team]
        mine.held -= 1
        mine.by_site[site] -= 1
        if not mine.by_site[site]:
            del mine.by_site[site]
        self._grant(team, mine)
        self._drop_idle(team, mine)

    def _grant(self, team: str, mine: _Team) -> None:
        room = self._room(team)
        while mine.held < room and (wish := _next(mine, of_one_site(room))) is not None:
            mine.held += 1
            mine.by_site[wish.site] += 1
            wish.granted.set_result(None)

    def _drop_idle(self, team: str, mine: _Team) -> None:
        if not mine.held and not mine.lines:
            self._teams.pop(team, None)


def _next(mine: _Team, share: int) -> _Wish | None:
    """Takes the next wish that may be granted out of its line, which then goes behind the others."""
    lines = [FIRST, *mine.lines] if FIRST in mine.lines else list(mine.lines)
    for line in lines:
        for wish in mine.lines[line]:
            if mine.by_site[wish.site] < share and not wish.granted.cancelled():
                _forget(mine, line, wish)
                if line in mine.lines:
                    mine.lines.move_to_end(line)
                return wish
    return None


def _forget(mine: _Team, line: str, wish: _Wish) -> None:
    waiting = mine.lines[line]
    waiting.remove(wish)
    if not waiting:
        del mine.lines[line]
