"""How much a team may ask at once. Imports: answers, clock."""

from __future__ import annotations

import math
from collections import deque

from weblake.service.answers import Refusal
from weblake.service.clock import Clock, iso

_WINDOW = 60.0


class RateLimit:
    """POST requests of each team within any 60 seconds; without a number there is no limit."""

    def __init__(self, per_minute: int | None, clock: Clock) -> None:
        self._most = per_minute
        self._clock = clock
        self._times: dict[str, deque[float]] = {}

    def take(self, team: str) -> None:
        """Counts one request.

        Raises:
            Refusal: 429 with the seconds to wait, in the header and in the text.
        """
        if self._most is None:
            return
        now = self._clock.now()
        times = self._times.setdefault(team, deque())
        while times and times[0] <= now - _WINDOW:
            times.popleft()
        if len(times) >= self._most:
            wait = max(1, math.ceil(times[0] + _WINDOW - now)) if times else int(_WINDOW)
            raise too_many(f"Rate limit exceeded: {self._most} requests a minute", wait, now)
        times.append(now)

    def forget(self) -> None:
        """Starts counting anew."""
        self._times.clear()


def too_many(what: str, wait: int, now: float) -> Refusal:
    """A 429 that tells programs and people how long to wait."""
    return Refusal(
        429,
        f"{what}, please retry after {wait}s, resets at {iso(now + wait)}",
        code="RATE_LIMITED",
        headers={"Retry-After": str(wait)},
    )
