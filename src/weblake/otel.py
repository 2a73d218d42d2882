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
            events.LoadStarted: self._begin_load,
            events.LoadFinished: self._end_load,
            events.LoadRefused: self._end_load,
            events.LoadFailed: self._end_load,
            events.JobStarted: self._started,
            events.LostStartResolved: self._resolved,
            events.WaitFinished: self._waited,
            events.ChunkRead: self._read,
            events.FilesPublished: self._published,
        }

    def _begin_load(self, event: events.LoadStarted) -> None:
        from opentelemetry import context, trace

        span = self._tracer.start_span("weblake.load", attributes=_given(load_id=event.load_id, kind=event.kind))
        token = context.attach(trace.set_span_in_context(span))
        self._open.set((*self._open.get(), (span, token)))

    def _end_load(self, event: events.LoadEnd) -> None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        *rest, (span, token) = self._open.get()
        self._open.set(tuple(rest))
        context.detach(token)
        span.set_attributes(_given(job_id=event.job_id, outcome=event.outcome))
        if event.receipt is not None:
            counts = {f"pages.{name}": getattr(event.receipt, name) for name in events.PAGE_OUTCOMES}
            span.set_attributes(_given(**counts, credits=event.receipt.credits_used))
        if event.error is not None:
            span.set_attribute("error.type", event.error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _started(self, event: events.JobStarted) -> None:
        self._step("start", event, kind=event.kind, job_id=event.job_id)

    def _resolved(self, event: events.LostStartResolved) -> None:
        self._step("start", event, kind=event.kind, job_id=event.job_id, lost_start=event.outcome)

    def _waited(self, event: events.WaitFinished) -> None:
        self._step("wait", event, kind=event.kind, job_id=event.job_id, outcome=event.outcome)

    def _read(self, event: events.ChunkRead) -> None:
        self._step("chunk", event, job_id=event.job_id, documents=event.documents, bytes=event.bytes)

    def _published(self, event: events.FilesPublished) -> None:
        self._step("publish", event, files=len(event.paths), rows=event.rows, bytes=event.bytes)

    def _step(self, name: str, event: Any, **attributes: object) -> None:
        """Make the span of a step that has just ended, below the current span."""
        end = time.time_ns()
        span = self._tracer.start_span(
            f"weblake.{name}",
            start_time=end - int(event.seconds * 1e9),
            attributes=_given(load_id=event.load_id, **attributes),
        )
        span.end(end)


class _Metrics:
    """Records the metrics of METRICS."""

    def __init__(self, meter: Any) -> None:
        made: dict[str, Any] = {}
        for name, (kind, unit, about) in METRICS.items():
            if kind == "histogram":
                made[name] = meter.create_histogram(
                    name, unit, about, explicit_bucket_boundaries_advisory=WAIT_BOUNDARIES
                )
            else:
                made[name] = getattr(meter, f"create_{kind}")(name, unit, about)
        self._made = made
        self.handlers: dict[type[Event], Callable[[Any], None]] = {
            events.LoadFinished: self._ended,
            events.LoadRefused: self._ended,
            events.LoadFailed: self._ended,
            events.LoadAccounted: self._accounted,
            events.RetryScheduled: self._retried,
            events.LostStartResolved: self._resolved,
            events.StatusPolled: self._polled,
            events.WaitFinished: self._waited,
            events.ChunkRead: self._read,
            events.FilesPublished: self._published,
            events.UsageReported: self._used,
            events.OrphansListed: self._listed,
        }

    def _ended(self, event: events.LoadEnd) -> None:
        self._made["weblake.loads"].add(1, {"outcome": event.outcome, "kind": event.kind})

    def _accounted(self, event: events.LoadAccounted) -> None:
        receipt = event.receipt
        for name in events.PAGE_OUTCOMES:
            count = getattr(receipt, name)
            if count:
                self._made["weblake.pages"].add(count, {"outcome": name, "kind": receipt.kind})
        if receipt.credits_used:
            self._made["weblake.credits"].add(receipt.credits_used, {"kind": receipt.kind})

    def _retried(self, event: events.RetryScheduled) -> None:
        self._made["weblake.retries"].add(1, {"operation": event.operation, "error.type": event.error})

    def _resolved(self, event: events.LostStartResolved) -> None:
        self._made["weblake.lost_starts"].add(1, {"outcome": event.outcome})

    def _polled(self, event: events.StatusPolled) -> None:
        self._made["weblake.polls"].add(1, {"kind": event.kind})

    def _waited(self, event: events.WaitFinished) -> None:
        self._made["weblake.wait.duration"].record(event.seconds, {"kind": event.kind, "outcome": event.outcome})

    def _read(self, event: events.ChunkRead) -> None:
        self._made["weblake.downloaded"].add(event.bytes, {"kind": event.kind})

    def _published(self, event: events.FilesPublished) -> None:
        self._made["weblake.published"].add(event.bytes)

    def _used(self, event: events.UsageReported) -> None:
        self._made["weblake.usage"].set(event.used, {"report": event.report})
        if event.budget is not None:
            self._made["weblake.usage.budget"].set(event.budget, {"report": event.report})

    def _listed(self, event: events.OrphansListed) -> None:
        self._made["weblake.orphans"].set(event.orphans, {"root": event.root})
        self._made["weblake.orphans.oldest"].set(event.oldest_s, {"root": event.root})
        self._made["weblake.orphans.refused"].set(event.refused, {"root": event.root})


def _given(**attributes: Any) -> Attributes:
    """Return the attributes that have a value, with names under `weblake.`."""
    return {f"weblake.{name}": value for name, value in attributes.items() if value is not None}
