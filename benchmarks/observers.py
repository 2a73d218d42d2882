"""What an observer costs the CPU of a landing: with none, and with OpenTelemetry's SDK and an exporter in memory.

    uv run python benchmarks/observers.py [--job tiny] [--rounds 20]

One process lands the same job in turns, in an order that changes each round. CPU is user and system time of the process
with all its threads; the median of the rounds' ratios counts, and its middle half is shown.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from job_server import JOB_ID
from landing import CACHE, served
from made_jobs import make
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import weblake
from weblake.events import Event, Observer, RequestFinished, log_event
from weblake.otel import OpenTelemetry


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def landed(url: str, observer: Observer | None) -> float:
    """Return the CPU seconds of one landing into a new root."""
    root = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        with weblake.Client(url, "of-a-benchmark", observer=observer) as client:
            before = cpu()
            weblake.land("batch", JOB_ID, to=root, client=client)
            return cpu() - before
    finally:
        shutil.rmtree(root)


def microseconds(observe: Observer) -> float:
    """Return what making and observing the event of a request costs."""
    count = 100_000
    began = time.process_time()
    for _ in range(count):
        observe(RequestFinished(method="GET", path="/", status=200, attempt=1, bytes=0, seconds=0.1))
    return (time.process_time() - began) / count * 1e6


def replayed(observe: Observer, events: list[Event]) -> float:
    """Return the CPU seconds of observing the events of one landing: noise of the machine hardly matters here."""
    count = max(10, 10_000 // len(events))
    began = cpu()
    for _ in range(count):
        for event in events:
            observe(event)
    return (cpu() - began) / count


def with_sdk() -> tuple[Observer, InMemorySpanExporter, Callable[[], None]]:
    exporter = InMemorySpanExporter()
    tracer_provider, meter_provider = TracerProvider(), MeterProvider([InMemoryMetricReader()])
    tracer_provider.add_span_processor(BatchSpanProcessor(exporter))

    def close() -> None:
        tracer_provider.shutdown()
        meter_provider.shutdown()

    return OpenTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider), exporter, close


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--job", default="medium", choices=["small", "medium", "tiny"])
    asked.add_argument("--rounds", type=int, default=20)
    given = asked.parse_args()
    CACHE.mkdir(exist_ok=True)
    sdk, exporter, close = with_sdk()
    events: list[Event] = []
    observers: dict[str, Observer | None] = {"no observer": None, "API without SDK": OpenTelemetry(), "SDK": sdk}
    runs: dict[str, list[float]] = {name: [] for name in observers}
    with served(make(CACHE, given.job)) as url:
        landed(url, events.append)  # also warms up
        for number in range(given.rounds):
            names = [*observers]
            for name in names[number % 3 :] + names[: number % 3]:
                runs[name].append(landed(url, observers[name]))
    alone = {name: replayed(observe, events) for name, observe in observers.items() if observe is not None}
    close()
    print(f"{given.job}: {len(events)} events a landing, {len(exporter.get_finished_spans())} spans exported in all")
    base = runs.pop("no observer")
    print(f"no observer: median {statistics.median(base):.3f} s of CPU, least {min(base):.3f} s")
    for name, found in runs.items():
        ratios = [one / other for one, other in zip(found, base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name}: {(middle - 1) * 100:+.1f} % (middle half {(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f} %), "
            f"least {min(found):.3f} s: {(min(found) / min(base) - 1) * 100:+.1f} %; its events alone "
            f"{alone[name] * 1000:.2f} ms: {alone[name] / min(base) * 100:+.2f} %"
        )
    print(f"an event without an observer: {microseconds(log_event):.2f} µs")


if __name__ == "__main__":
    main()
