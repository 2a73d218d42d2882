"""The observer of the provider's clients: Airflow's metrics, and spans below the task's span.

Airflow's settings decide where they go: `[metrics]` chooses StatsD, Datadog or OpenTelemetry, and lists of allowed
names; `[traces] otel_on` turns spans on.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_weblake.features import conf, metrics
from weblake import events, orchestration
from weblake.otel import OpenTelemetry

#: Airflow's names of metrics that have another one there: plain StatsD has no tags and no units.
NAMES = {
    "weblake.loads": "weblake.loads.{outcome}",
    "weblake.pages": "weblake.pages.{outcome}",
    "weblake.lost_starts": "weblake.lost_starts.{outcome}",
    "weblake.downloaded": "weblake.downloaded_bytes",
    "weblake.published": "weblake.published_bytes",
    "weblake.wait.duration": "weblake.wait",
    "weblake.usage": "weblake.usage.{report}",
    "weblake.usage.budget": "weblake.usage_budget.{report}",
    "weblake.orphans.oldest": "weblake.orphans_oldest_s",
    "weblake.orphans.refused": "weblake.orphans_refused",
}


def observer() -> events.Observer:
    """Return the observer for a client of this process."""
    if conf.getboolean("traces", "otel_on", fallback=False):
        return orchestration.combine(send_to_stats, OpenTelemetry(metrics=False))
    return send_to_stats


def send_to_stats(event: events.Event) -> None:
    """Send the counters, timers and gauges of an event to Airflow's metrics."""
    for metric, kind, value, tags in orchestration.measurements(event):
        name = NAMES.get(metric, metric)
        left = {tag: text for tag, text in tags.items() if f"{{{tag}}}" not in name}
        name = name.format(**tags)
        if kind == "counter":
            metrics().incr(name, round(value), tags=left)
        elif kind == "histogram":
            metrics().timing(name, timedelta(seconds=value), tags=left)
        else:
            metrics().gauge(name, value, tags=left)
