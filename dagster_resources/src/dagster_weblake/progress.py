"""What a run tells while it waits: a line in the log and an observation of the asset, at changes and now and then.

Imports: metadata, weblake.orchestration.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from dagster_weblake.metadata import progress_metadata
from weblake import orchestration

#: Seconds between two observations of a job that goes on.
EVERY_S = 30.0


@dataclass(slots=True)
class Progress:
    """One load of one asset partition."""

    context: dg.AssetExecutionContext
    key: dg.AssetKey
    partition: str | None
    _status: object = None
    _done: object = None
    _at: float = float("-inf")

    def watch(self) -> orchestration.Watch:
        """Who is told by the core how it goes."""
        return orchestration.Watch(polled=self._polled, noted=self.context.log.warning)

    def _polled(self, head: Mapping[str, object]) -> None:
        status, done = head.get("status"), head.get("completed")
        changed = status != self._status
        due = time.monotonic() - self._at >= EVERY_S and done != self._done
        if not changed and not due:
            return
        self._status, self._done, self._at = status, done, time.monotonic()
        values = progress_metadata(head)
        if values:
            of = "" if self.partition is None else f" of {self.partition}"
            told = ", ".join(f"{name.rpartition('/')[2]} {value.value}" for name, value in values.items())
            self.context.log.info(f"The job{of}: {told}")
            self.context.log_event(dg.AssetObservation(self.key, partition=self.partition, metadata=values))
