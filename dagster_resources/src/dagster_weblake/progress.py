"""Progress of a waiting run in its log: a message at changes and at intervals.

Nothing is reported on the asset's page before the load has landed: observations would hide the materializations there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import dagster as dg

from dagster_weblake.metadata.text_format import amount, number
from dagster_weblake.templates import Part
from weblake import events, orchestration

#: Seconds between two messages about a job that goes on.
EVERY_S = 30.0
#: An upper bound for any count of pages.
_LARGEST = 2**53


@dataclass(slots=True)
class Progress:
    """Logs the progress of one load of one asset partition."""

    context: dg.AssetExecutionContext
    part: Part
    #: Called at each poll.
    check: Callable[[], None]
    _status: object = None
    _done: object = None
    _at: float = float("-inf")

    def callbacks(self) -> orchestration.ProgressCallbacks:
        """Return the callbacks by which the core reports progress."""
        return orchestration.ProgressCallbacks(
            on_poll=self._polled, on_message=lambda message: self.context.log.warning(f"{self.part}{message}")
        )

    def _polled(self, head: Mapping[str, object]) -> None:
        self.check()
        status, done = head.get("status"), head.get("completed")
        changed = status != self._status
        due = time.monotonic() - self._at >= EVERY_S and done != self._done
        if not changed and not due:
            return
        self._status, self._done, self._at = status, done, time.monotonic()
        message = progress_of(head)
        if message:
            self.context.log.info(f"{self.part}The job: {message}")


def progress_of(head: Mapping[str, object]) -> str:
    """Return a message about a job from the head of a poll; values of a wrong type are left out."""
    parts: list[str] = []
    status = head.get("status")
    if isinstance(status, str) and status.strip():
        parts.append(f"status {events.known_status(status)}")
    for name in ("total", "completed"):
        count = head.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _LARGEST:
            parts.append(f"{name} {number(count)}")
    used = amount(head.get("creditsUsed"))
    if used is not None and used >= 0:
        parts.append(f"credits used {number(used)}")
    return ", ".join(parts)
