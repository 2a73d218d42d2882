"""The public module `weblake.otel`: spans and metrics of OpenTelemetry, made of a client's events.

It uses OpenTelemetry's API only: which exporters there are, if any, is up to the program that sets up the SDK.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar, Token
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from weblake import events
from weblake.errors import FeatureMissing
from weblake.events import METRICS, Event, Observer, measurements

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

Attributes = Mapping[str, str | int | float | bool]

#: Boundaries of the histogram in seconds: jobs take seconds to hours.
WAIT_BOUNDARIES = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
#: The method of an instrument that records a value.
_RECORD = {"counter": "add", "histogram": "record", "gauge": "set"}


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
        self._exporters: list[Observer] = []
        if spans:
            self._exporters.append(_Spans(trace.get_tracer("weblake", own, tracer_provider)))
        if metrics:
            self._exporters.append(_Metrics(metrics_api.get_meter("weblake", own, meter_provider)))

    def __call__(self, event: Event) -> None:
        """Make what there is to make of an event."""
        for export in self._exporters:
            export(event)


class _Spans:
    """Makes the spans `weblake.load`, `weblake.start`, `weblake.wait`, `weblake.chunk` and `weblake.publish`."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        #: Spans of the loads that the current thread or task lands, outermost first.
        self._open: ContextVar[tuple[tuple[Span, Token[Context]], ...]] = ContextVar("weblake_open_spans", default=())

    def __call__(self, event: Event) -> None:
        match event:
            case events.LoadStarted():
                self._on_load_started(event)
            case events.LoadEnd():
                self._on_load_end(event)
            case events.JobStarted():
                self._record_step("start", event, kind=event.kind, job_id=event.job_id)
            case events.LostStartResolved():
                self._record_step("start", event, kind=event.kind, job_id=event.job_id, lost_start=event.outcome)
            case events.WaitFinished():
                self._record_step("wait", event, kind=event.kind, job_id=event.job_id, outcome=event.outcome)
            case events.ChunkRead():
                self._record_step("chunk", event, job_id=event.job_id, documents=event.documents, bytes=event.bytes)
            case events.FilesPublished():
                self._record_step("publish", event, files=len(event.paths), rows=event.rows, bytes=event.bytes)

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
    """Records the measurements of events."""

    def __init__(self, meter: Any) -> None:
        advice = {"histogram": {"explicit_bucket_boundaries_advisory": WAIT_BOUNDARIES}}
        self._instruments = {
            name: getattr(meter, f"create_{kind}")(name, unit, about, **advice.get(kind, {}))
            for name, (kind, unit, about) in METRICS.items()
        }

    def __call__(self, event: Event) -> None:
        for name, kind, value, tags in measurements(event):
            getattr(self._instruments[name], _RECORD[kind])(value, tags)


def _attributes(**attributes: Any) -> Attributes:
    """Return the attributes that have a value, with names under `weblake.`."""
    return {f"weblake.{name}": value for name, value in attributes.items() if value is not None}
