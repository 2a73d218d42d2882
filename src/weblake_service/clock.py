"""The service's clock, which tests can advance."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone


class Clock:
    """Wall-clock seconds since 1970 plus an offset; used for the ages of jobs and caches and for retries."""

    def __init__(self, source: Callable[[], float] = time.time) -> None:
        self._source = source
        self._offset = 0.0
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> float:
        """Return the service's time in seconds since 1970."""
        return self._source() + self._offset

    @property
    def offset(self) -> float:
        """Return the offset from the machine's clock in seconds."""
        return self._offset

    def advance(self, seconds: float) -> None:
        """Move the clock forward and notify the listeners.

        Raises:
            ValueError: `seconds` is negative or not a number; the clock cannot be moved back.
        """
        if not seconds >= 0 or seconds == float("inf"):
            raise ValueError(f"A clock is advanced by seconds >= 0, not by {seconds}.")
        self._offset += seconds
        self._notify_listeners()

    def set_offset(self, seconds: float) -> None:
        """Set the offset from the machine's clock: after a restart, or to 0 for a reset."""
        self._offset = seconds
        self._notify_listeners()

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the clock is changed."""
        self._listeners.append(callback)

    def _notify_listeners(self) -> None:
        for callback in self._listeners:
            callback()


def iso(seconds: float) -> str:
    """Return a time in the API's format: ISO 8601, UTC, milliseconds, `Z`."""
    whole, milliseconds = divmod(_milliseconds(seconds), 1000)
    return datetime.fromtimestamp(whole, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds:03d}Z"


def iso_seconds(seconds: float) -> str:
    """Return a time in the API's format with zero milliseconds, as in `expiresAt`."""
    return iso(float(int(seconds)))


def month_of(seconds: float) -> str:
    """Return the billing period of a time: its UTC month, such as `2026-11`."""
    return datetime.fromtimestamp(_milliseconds(seconds) // 1000, timezone.utc).strftime("%Y-%m")


def month_bounds(month: str) -> tuple[float, float]:
    """Return the first and last instant (to the millisecond) of a UTC month."""
    year, number = int(month[:4]), int(month[5:7])
    start = datetime(year, number, 1, tzinfo=timezone.utc)
    after = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=timezone.utc)
    return start.timestamp(), after.timestamp() - 0.001


def _milliseconds(seconds: float) -> int:
    """Return whole milliseconds, truncated and not rounded, so that a time just before midnight stays in its day.

    The float nearest to .999 may be slightly smaller.
    """
    return int(seconds * 1000 + 0.001)
