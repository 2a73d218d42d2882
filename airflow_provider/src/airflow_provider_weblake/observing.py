"""The observer of the provider's clients: Airflow's metrics, and spans below the task's span if Airflow traces.

Airflow's settings decide where they go: `[metrics]` chooses StatsD, Datadog or OpenTelemetry, and lists of allowed
names; `[traces] otel_on` turns spans on.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_weblake.features import conf, metrics
from weblake import events, orchestration
from weblake.otel import OpenTelemetry


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
