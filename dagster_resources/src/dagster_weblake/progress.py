"""Progress of a running step in its log.

Nothing is reported on the asset's page before the load has landed: observations would hide the materializations there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import dagster as dg

from dagster_weblake.templates import Part
from weblake import events, orchestration


@dataclass(slots=True)
class Progress:
    """An observer that logs the progress of each partition of a step."""

    context: dg.AssetExecutionContext
    #: The partition of each load and of each job, by id.
    parts: Mapping[str, Part]
    #: Called at each poll; its interrupt ends the wait.
    check: Callable[[], None]
    _logs: dict[str | None, orchestration.ProgressLog] = field(default_factory=dict)

    def __call__(self, event: events.Event) -> None:
        """Log an event of a load."""
        if isinstance(event, events.StatusPolled):
            self.check()
        ids = (str(event.load_id), str(getattr(event, "job_id", None)))
        part = next((self.parts[each] for each in ids if each in self.parts), Part())

        def log(level: int, message: str) -> None:
            self.context.log.log(level, f"{part}{message}")

        if isinstance(event, events.LoadMessage):
            log(logging.WARNING, event.text)
        self._logs.setdefault(part.key, orchestration.ProgressLog(log))(event)
