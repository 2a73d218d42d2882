"""The public module `weblake.otel`: spans and metrics of OpenTelemetry, made of a client's events.

It uses OpenTelemetry's API only: which exporters there are, if any, is up to the program that sets up the SDK.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from weblake import events
from weblake.errors import FeatureMissing
from weblake.events import Event

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

Attributes = Mapping[str, str | int | float | bool]

#: Each metric: its kind, its unit, and its description. docs/observability.md lists them with their attributes.
METRICS = {
    "weblake.loads": ("counter", "{load}", "Calls of land, by outcome"),
    "weblake.pages": ("counter", "{page}", "Pages of ended jobs, by outcome"),
    "weblake.credits": ("counter", "{credit}", "Credits that ended jobs used"),
    "weblake.retries": ("counter", "{retry}", "Tries of requests that failed and were followed by another one"),
    "weblake.lost_starts": ("counter", "{start}", "Starts without a response, by what was found out"),
    "weblake.polls": ("counter", "{poll}", "Polls of the status of a job"),
    "weblake.downloaded": ("counter", "By", "Results of jobs, after decompression"),
    "weblake.published": ("counter", "By", "Files that were published"),
    "weblake.wait.duration": ("histogram", "s", "Waits for the end of a job"),
    "weblake.usage": ("gauge", "", "Credits or tokens that the running month has used"),
    "weblake.usage.budget": ("gauge", "", "Credits or tokens that the running month may use"),
    "weblake.orphans": ("gauge", "{load}", "Loads of a root that have not landed"),
    "weblake.orphans.oldest": ("gauge", "s", "Age of the oldest load of a root that has not landed"),
    "weblake.orphans.refused": ("gauge", "{load}", "Refused loads of a root, whose files are kept"),
}
#: Boundaries of the histogram in seconds: jobs take seconds to hours.
WAIT_BOUNDARIES = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)


class OpenTelemetry:
    """An observer that makes spans and metrics: `Client(observer=OpenTelemetry())`. Thread-safe.

    The span of a load is a child of the span that is current when `land` is called, and is current until it returns.
    Without an SDK, OpenTelemetry's API does nothing.

    Args:
        tracer_provider: Makes the tracer; by default the program's global one.
        meter_provider: Makes the meter; by default the program's global one.
        spans: Whether to make spans.
        metrics: Whether to make metrics.

    Raises:
        FeatureMissing: `weblake[otel]` is not installed.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        spans: bool = True,
        metrics: bool = True,
    ) -> None:
        try:
            from opentelemetry import metrics as metrics_api
            from opentelemetry import trace
        except ImportError:
            raise FeatureMissing("OpenTelemetry is not installed.", hint="pip install 'weblake[otel]'") from None
        own = version("weblake")
        handlers: list[dict[type[Event], Callable[[Any], None]]] = []
        if spans:
            handlers.append(_Spans(trace.get_tracer("weblake", own, tracer_provider)).handlers)
        if metrics:
            handlers.append(_Metrics(metrics_api.get_meter("weblake", own, meter_provider)).handlers)
        kinds = {kind for each in handlers for kind in each}
        self._handlers = {kind: [each[kind] for each in handlers if kind in each] for kind in kinds}

    def __call__(self, event: Event) -> None:
        """Make what there is to make of an event."""
        for handle in self._handlers.get(type(event), ()):
            handle(event)


class _Spans:
    """Makes the spans `weblake.load`, `weblake.start`, `weblake.wait`, `weblake.chunk` and `weblake.publish`."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        #: Spans of the loads that the current thread or task lands, outermost first.
        self._open: ContextVar[tuple[tuple[Span, Token[Context]], ...]] = ContextVar("weblake_open_spans", default=())
        self.handlers: dict[type[Event], Callable[[Any], None]] = {
            events.LoadStarted: self._on_load_started,
            events.LoadFinished: self._on_load_end,
            events.LoadRefused: self._on_load_end,
            events.LoadFailed: self._on_load_end,
            events.JobStarted: self._on_job_started,
            events.LostStartResolved: self._on_lost_start_resolved,
            events.WaitFinished: self._on_wait_finished,
            events.ChunkRead: self._on_chunk_read,
            events.FilesPublished: self._on_files_published,
        }

    def _on_load_started(self, event: events.LoadStarted) -> None:
        from opentelemetry import context, trace

        span = self._tracer.start_span("weblake.load", attributes=_attributes(load_id=event.load_id, kind=event.kind))
        token = context.attach(trace.set_span_in_context(span))
        self._open.set((*self._open.get(), (span, token)))

    def _on_load_end(self, event: events.LoadEnd) -> None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        *rest, (span, token) = self._open.get()
        self._open.set(tuple(rest))
        context.detach(token)
        span.set_attributes(_attributes(job_id=event.job_id, outcome=event.outcome))
        if event.receipt is not None:
            counts = {f"pages.{name}": getattr(event.receipt, name) for name in events.PAGE_OUTCOMES}
            span.set_attributes(_attributes(**counts, credits=event.receipt.credits_used))
        if event.error is not None:
            span.set_attribute("error.type", event.error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _on_job_started(self, event: events.JobStarted) -> None:
        self._record_step("start", event, kind=event.kind, job_id=event.job_id)

    def _on_lost_start_resolved(self, event: events.LostStartResolved) -> None:
        self._record_step("start", event, kind=event.kind, job_id=event.job_id, lost_start=event.outcome)

    def _on_wait_finished(self, event: events.WaitFinished) -> None:
        self._record_step("wait", event, kind=event.kind, job_id=event.job_id, outcome=event.outcome)

    def _on_chunk_read(self, event: events.ChunkRead) -> None:
        self._record_step("chunk", event, job_id=event.job_id, documents=event.documents, bytes=event.bytes)

    def _on_files_published(self, event: events.FilesPublished) -> None:
        self._record_step("publish", event, files=len(event.paths), rows=event.rows, bytes=event.bytes)

    def _record_step(self, name: str, event: Any, **attributes: object) -> None:
        """Make the span of a step that has just ended, below the current span."""
        end = time.time_ns()
        span = self._tracer.start_span(
            f"weblake.{name}",
            start_time=end - int(event.seconds * 1e9),
            attributes=_attributes(load_id=event.load_id, **attributes),
        )
        span.end(end)


class _Metrics:
    """Records the metrics of METRICS."""

    def __init__(self, meter: Any) -> None:
        instruments: dict[str, Any] = {}
        for name, (kind, unit, about) in METRICS.items():
            if kind == "histogram":
                instruments[name] = meter.create_histogram(
                    name, unit, about, explicit_bucket_boundaries_advisory=WAIT_BOUNDARIES
                )
            else:
                instruments[name] = getattr(meter, f"create_{kind}")(name, unit, about)
        self._instruments = instruments
        self.handlers: dict[type[Event], Callable[[Any], None]] = {
            events.LoadFinished: self._on_load_end,
            events.LoadRefused: self._on_load_end,
            events.LoadFailed: self._on_load_end,
            events.LoadAccounted: self._on_load_accounted,
            events.RetryScheduled: self._on_retry_scheduled,
            events.LostStartResolved: self._on_lost_start_resolved,
            events.StatusPolled: self._on_status_polled,
            events.WaitFinished: self._on_wait_finished,
            events.ChunkRead: self._on_chunk_read,
            events.FilesPublished: self._on_files_published,
            events.UsageReported: self._on_usage_reported,
            events.OrphansListed: self._on_orphans_listed,
        }

    def _on_load_end(self, event: events.LoadEnd) -> None:
        self._instruments["weblake.loads"].add(1, {"outcome": event.outcome, "kind": event.kind})

    def _on_load_accounted(self, event: events.LoadAccounted) -> None:
        receipt = event.receipt
        for name in events.PAGE_OUTCOMES:
            count = getattr(receipt, name)
            if count:
                self._instruments["weblake.pages"].add(count, {"outcome": name, "kind": receipt.kind})
        if receipt.credits_used:
            self._instruments["weblake.credits"].add(receipt.credits_used, {"kind": receipt.kind})

    def _on_retry_scheduled(self, event: events.RetryScheduled) -> None:
        self._instruments["weblake.retries"].add(1, {"operation": event.operation, "error.type": event.error})

    def _on_lost_start_resolved(self, event: events.LostStartResolved) -> None:
        self._instruments["weblake.lost_starts"].add(1, {"outcome": event.outcome})

    def _on_status_polled(self, event: events.StatusPolled) -> None:
        self._instruments["weblake.polls"].add(1, {"kind": event.kind})

    def _on_wait_finished(self, event: events.WaitFinished) -> None:
        self._instruments["weblake.wait.duration"].record(event.seconds, {"kind": event.kind, "outcome": event.outcome})

    def _on_chunk_read(self, event: events.ChunkRead) -> None:
        self._instruments["weblake.downloaded"].add(event.bytes, {"kind": event.kind})

    def _on_files_published(self, event: events.FilesPublished) -> None:
        self._instruments["weblake.published"].add(event.bytes)

    def _on_usage_reported(self, event: events.UsageReported) -> None:
        self._instruments["weblake.usage"].set(event.used, {"report": event.report})
        if event.budget is not None:
            self._instruments["weblake.usage.budget"].set(event.budget, {"report": event.report})

    def _on_orphans_listed(self, event: events.OrphansListed) -> None:
        self._instruments["weblake.orphans"].set(event.orphans, {"root": event.root})
        self._instruments["weblake.orphans.oldest"].set(event.oldest_s, {"root": event.root})
        self._instruments["weblake.orphans.refused"].set(event.refused, {"root": event.root})


def _attributes(**attributes: Any) -> Attributes:
    """Return the attributes that have a value, with names under `weblake.`."""
    return {f"weblake.{name}": value for name, value in attributes.items() if value is not None}
