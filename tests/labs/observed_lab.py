"""A landing lab whose client's observer keeps the events, and exporters of OpenTelemetry in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from landing_lab import LandingLab, landing_lab
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import weblake
from weblake import Client, Receipt, Terms
from weblake.api.options import BatchScrapeOptions
from weblake.api.steps import NoResponse, Request, Response, Transport
from weblake.events import Event, Observer
from weblake.loads import intents, load_request
from weblake.otel import OpenTelemetry

SITE = "http://pages.test"
FAST_POLLS = Terms(poll_s=0.05, timeout_s=60)

E = TypeVar("E", bound=Event)


@dataclass
class ObservedLab(LandingLab):
    """Lands small batches with a client whose observer the test chooses; by default one that keeps the events."""

    events: list[Event] = field(default_factory=list)

    def land(
        self,
        *names: str,
        observer: Observer | None = None,
        transport: Any = None,
        terms: Terms = FAST_POLLS,
        **options: BatchScrapeOptions,
    ) -> Receipt:
        """Land a batch of these pages of the fake web."""
        where = (None, None) if transport is not None else (self.service.url, self.service.key)
        with Client(*where, observer=observer or self.events.append, transport=transport) as client:
            urls = [f"{SITE}/{name}" for name in names]
            return weblake.land_batch(urls, to=self.root, client=client, terms=terms, **options)

    def start(self, name: str) -> str:
        """Start a load and leave it unlanded; return its id."""
        request = load_request.batch([f"{SITE}/{name}"], load_request.Naming())
        intent, _, _ = intents.start_load(self.client, self.dataset, request)
        return intent.load_id

    def events_of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def observed_lab(root: str | Path) -> Iterator[ObservedLab]:
    """Yield a lab with its service running."""
    with landing_lab(ObservedLab, root) as lab:
        yield lab


@dataclass
class FirstResponseLost:
    """A transport that sends the first matching request, and loses its response."""

    transport: Transport
    method: str
    times: int = 1

    def send(self, request: Request) -> Response | NoResponse:
        reply = self.transport.send(request)
        if request.method == self.method and self.times:
            self.times -= 1
            return NoResponse("lost")
        return reply


@dataclass
class WithoutReplay:
    """A transport to a service that replays no start: the header that says so is removed.

    The response to the first start is lost; `sends` says whether the request itself arrives, `lists` whether the
    service has an activity list.
    """

    transport: Transport
    sends: bool = True
    lists: bool = True
    is_first: bool = True

    def send(self, request: Request) -> Response | NoResponse:
        if request.method == "POST" and self.is_first:
            self.is_first = False
            if self.sends:
                self.transport.send(request)
            return NoResponse("lost")
        if request.path.endswith("/activity") and not self.lists:
            return Response(404, body=b'{"success": false, "error": "none"}')
        reply = self.transport.send(request)
        if isinstance(reply, Response):
            kept = {name: value for name, value in reply.headers.items() if name != "weblake-idempotency"}
            return replace(reply, headers=kept)
        return reply


class ExportedTelemetry:
    """Spans and metrics that an observer has made."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader])
        self.observer = OpenTelemetry(tracer_provider=self.tracer_provider, meter_provider=self.meter_provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The ended spans, in the order of their ends."""
        return list(self._spans.get_finished_spans())

    def metrics(self) -> dict[str, dict[tuple[tuple[str, object], ...], float]]:
        """Return the value of each metric by its attributes; the count of a histogram."""
        found: dict[str, dict[tuple[tuple[str, object], ...], float]] = {}
        for name, point in self._points():
            value = point.count if hasattr(point, "count") else point.value
            found.setdefault(name, {})[tuple(sorted(point.attributes.items()))] = value
        return found

    def boundaries(self) -> dict[str, tuple[float, ...]]:
        """Return the boundaries of each histogram."""
        return {name: point.explicit_bounds for name, point in self._points() if hasattr(point, "explicit_bounds")}

    def _points(self) -> Iterator[tuple[str, Any]]:
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        yield metric.name, point

    def close(self) -> None:
        """Shut both providers down, and their threads."""
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()
