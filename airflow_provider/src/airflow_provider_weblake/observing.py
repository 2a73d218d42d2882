"""The observers of the provider's clients: Airflow's metrics, spans below the task's span, and the log of a task.

Airflow's settings decide where they go: `[metrics]` chooses StatsD, Datadog or OpenTelemetry, and lists of allowed
names; `[traces] otel_on` turns spans on.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_weblake.features import conf, metrics
from weblake import events, orchestration
from weblake.otel import OpenTelemetry

if TYPE_CHECKING:
    from airflow.sdk._shared.logging.types import Logger

    from weblake.orchestration import Retry

#: Seconds between two lines of the log about a job in the same state.
EVERY_S = 60.0


def observer() -> events.Observer:
    """Return the observer for a client of this process."""
    if conf.getboolean("traces", "otel_on", fallback=False):
        return orchestration.combine(send_to_stats, OpenTelemetry(metrics=False))
    return send_to_stats


def send_to_stats(event: events.Event) -> None:
    """Send the counters, timers and gauges of an event to Airflow's metrics, with names under `weblake.`."""
    match event:
        case events.StatusPolled():
            metrics().incr("weblake.polls", tags={"kind": event.kind})
        case events.LoadFinished() | events.LoadRefused() | events.LoadFailed():
            metrics().incr(f"weblake.loads.{event.outcome}", tags={"kind": event.kind})
        case events.LoadAccounted():
            _send_account(event)
        case events.RetryScheduled():
            metrics().incr("weblake.retries", tags={"operation": event.operation, "error": event.error})
        case events.LostStartResolved():
            metrics().incr(f"weblake.lost_starts.{event.outcome}")
        case events.ChunkRead():
            metrics().incr("weblake.downloaded_bytes", event.bytes, tags={"kind": event.kind})
        case events.FilesPublished():
            metrics().incr("weblake.published_bytes", event.bytes)
        case events.WaitFinished():
            metrics().timing("weblake.wait", timedelta(seconds=event.seconds), tags={"kind": event.kind})
        case events.UsageReported():
            metrics().gauge(f"weblake.usage.{event.report}", event.used)
            if event.budget is not None:
                metrics().gauge(f"weblake.usage_budget.{event.report}", event.budget)
        case events.OrphansListed():
            tags = {"root": event.root}
            metrics().gauge("weblake.orphans", event.orphans, tags=tags)
            metrics().gauge("weblake.orphans_oldest_s", event.oldest_s, tags=tags)
            metrics().gauge("weblake.orphans_refused", event.refused, tags=tags)


def _send_account(event: events.LoadAccounted) -> None:
    receipt = event.receipt
    for name in events.PAGE_OUTCOMES:
        count = getattr(receipt, name)
        if count:
            metrics().incr(f"weblake.pages.{name}", count, tags={"kind": receipt.kind})
    if receipt.credits_used:
        metrics().incr("weblake.credits", round(receipt.credits_used), tags={"kind": receipt.kind})


@dataclass(slots=True)
class ProgressLog:
    """An observer that logs the state of one task's job: at the start, at each change, and each minute."""

    log: Logger
    _state: str = ""
    _at: float = -math.inf

    def observing(self, retry: Retry) -> Retry:
        """Return the retry rules of a client that other tasks share, with this observer as well."""
        return replace(retry, observe=orchestration.combine(retry.observe, self))

    def __call__(self, event: events.Event) -> None:
        """Log a poll, a retry, or a start that got no answer."""
        match event:
            case events.StatusPolled():
                of = "" if event.total is None else f" of {event.total}"
                counts = [] if event.completed is None else [f"completed {event.completed}{of}"]
                counts += [] if event.credits_used is None else [f"{event.credits_used:.12g} credits"]
                text = f"{event.status}: {', '.join(counts)}" if counts else event.status
                self.say(event.status, f"{orchestration.JobRef(event.kind, event.job_id)} is {text}.")
            case events.RetryScheduled():
                error = f"{event.error} ({event.status})" if event.status else event.error
                self.say("trouble", f"{event.operation}: {error}; it is tried again in {event.pause_s:.0f} s.")
            case events.StartLost():
                self.log.warning(
                    "The start of load %s got no answer. weblake looks up whether the service has started its job, "
                    "which may take minutes; nothing is paid twice. Let the task run.",
                    event.load_id,
                )

    def say(self, state: str, message: str) -> None:
        """Log a message if the state has changed, or a minute has passed since the last one."""
        now = time.monotonic()
        if state != self._state or now - self._at >= EVERY_S:
            self._state, self._at = state, now
            self.log.log(logging.WARNING if state == "trouble" else logging.INFO, message)
