"""Rate limit of each team: starts and reads per minute."""

from __future__ import annotations

import math
from collections import deque

from weblake_service.clock import Clock, iso
from weblake_service.config import ServiceConfig
from weblake_service.responses import ErrorResponse

_WINDOW_S = 60.0


class RateLimit:
    """The starts and reads of each team within any 60 seconds, over all its keys."""

    def __init__(self, config: ServiceConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._times: dict[tuple[str, str], deque[float]] = {}

    def take(self, team: str) -> None:
        """Count a start: a valid POST that is about to be executed and is no replay.

        Raises:
            ErrorResponse: 429 with the seconds to wait, in the header and in the message.
        """
        self._count(team, "starts", self._config.plan(team).requests_per_minute)

    def take_read(self, team: str) -> None:
        """Count any other request to the API.

        Raises:
            ErrorResponse: 429, as for a start.
        """
        self._count(team, "reads", self._config.plan(team).reads_per_minute)

    def reset(self) -> None:
        """Reset the counters."""
        self._times.clear()

    def _count(self, team: str, what: str, limit: int | None) -> None:
        if limit is None:
            return
        now = self._clock.now()
        times = self._times.setdefault((team, what), deque())
        while times and times[0] <= now - _WINDOW_S:
            times.popleft()
        if len(times) >= limit:
            wait = max(1, math.ceil(times[0] + _WINDOW_S - now)) if times else int(_WINDOW_S)
            raise rate_limited(f"Rate limit exceeded: {limit} {what} a minute", wait, now)
        times.append(now)


def rate_limited(what: str, wait: int, now: float) -> ErrorResponse:
    """Return a 429 response with the seconds to wait, in the header and in the message."""
    return ErrorResponse(
        429,
        f"{what}, please retry after {wait}s, resets at {iso(now + wait)}",
        code="RATE_LIMITED",
        headers={"Retry-After": str(wait)},
    )
