"""Tests of the spans and metrics of OpenTelemetry, read from exporters in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed_lab import ExportedTelemetry, FirstResponseLost, ObservedLab, observed_lab
from opentelemetry.trace import StatusCode

from weblake import Receipt, events
from weblake.errors import FeatureMissing, LoadIncomplete
from weblake.otel import WAIT_BOUNDARIES, OpenTelemetry
from weblake_service.page_failure import PageFailure

FAILED = "http://pages.test/bad"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ObservedLab]:
    with observed_lab(f"memory://otel-{tmp_path.name}") as made:
        made.web.failures[FAILED] = PageFailure("SCRAPE_ALL_ENGINES_FAILED", "no engine")
        yield made


@pytest.fixture
def exported() -> Iterator[ExportedTelemetry]:
    made = ExportedTelemetry()
    yield made
    made.close()


def test_the_spans_of_a_load_nest_below_the_current_span(lab: ObservedLab, exported: ExportedTelemetry) -> None:
    tracer = exported.tracer_provider.get_tracer("a task")
    with tracer.start_as_current_span("task"):
        receipt = lab.land("1", "2", observer=exported.observer)
        with tracer.start_as_current_span("after"):
            pass
    spans = {span.name: span for span in exported.spans}
    steps = ["weblake.start", "weblake.wait", "weblake.chunk", "weblake.publish"]
    assert [span.name for span in exported.spans] == [*steps, "weblake.load", "after", "task"]
    load, task = spans["weblake.load"], spans["task"]
    assert [spans[name].parent for name in steps] == [load.context] * 4
    assert load.parent == spans["after"].parent == task.context
    assert load.attributes is not None
    assert load.attributes["weblake.load_id"] == receipt.load_id
    assert (load.attributes["weblake.outcome"], load.attributes["weblake.pages.stored"]) == ("landed", 2)
    wait = spans["weblake.wait"]
    times = [load.start_time, wait.start_time, wait.end_time, load.end_time]
    assert times == sorted(times, key=lambda at: at or 0)


def test_a_refused_load_ends_its_span_with_the_error(lab: ObservedLab, exported: ExportedTelemetry) -> None:
    with pytest.raises(LoadIncomplete):
        lab.land("bad", observer=exported.observer)
    load = exported.spans[-1]
    assert (load.name, load.parent, load.status.status_code) == ("weblake.load", None, StatusCode.ERROR)
    assert load.attributes is not None
    assert (load.attributes["error.type"], load.attributes["weblake.outcome"]) == ("LoadIncomplete", "refused")


def test_the_metrics_count_pages_credits_retries_lost_starts_bytes_and_waits(
    lab: ObservedLab, exported: ExportedTelemetry
) -> None:
    seen = lab.events
    transport = FirstResponseLost(lab.client.transport, "POST")
    receipt = lab.land("1", "2", "bad", observer=exported.observer, transport=transport)
    lab.land("1", "2", "bad", observer=seen.append)  # has landed before
    metrics = exported.metrics()
    kind = ("kind", "batch_scrape")
    assert metrics["weblake.pages"] == {(kind, ("outcome", "stored")): 2, (kind, ("outcome", "failed")): 1}
    assert metrics["weblake.loads"] == {(kind, ("outcome", "landed")): 1}
    assert metrics["weblake.credits"] == {(kind,): receipt.credits_used}
    assert metrics["weblake.lost_starts"] == {(("outcome", "replayed"),): 1}
    assert metrics["weblake.published"] == {(): sum(file.bytes for file in receipt.files)}
    assert metrics["weblake.downloaded"][(kind,)] > 100
    assert metrics["weblake.wait.duration"] == {(kind, ("outcome", "completed")): 1}
    assert metrics["weblake.polls"][(kind,)] >= 1


def test_without_an_sdk_the_api_does_nothing(lab: ObservedLab) -> None:
    """In this process no global provider is set, so that this is what a program without the SDK has."""
    assert lab.land("1", observer=OpenTelemetry()).complete


def test_without_opentelemetry_everything_else_works_and_the_remedy_is_named(
    lab: ObservedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FeatureMissing) as caught:
        OpenTelemetry()
    assert caught.value.hint == "pip install 'weblake[otel]'"
    assert lab.land("1").complete


@pytest.mark.system
def test_a_client_without_an_observer_does_not_import_opentelemetry() -> None:
    program = (
        "import sys, weblake, weblake.otel; weblake.Client('http://127.0.0.1:9', 'k')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_irrelevant_event_makes_no_span_and_no_metric(exported: ExportedTelemetry) -> None:
    exported.observer(events.RequestFinished(method="GET", path="/", status=200, attempt=1, bytes=0, seconds=0.1))
    assert (exported.spans, exported.metrics()) == ([], {})


def test_the_wait_of_a_job_has_buckets_of_seconds_to_hours(exported: ExportedTelemetry) -> None:
    exported.observer(events.WaitFinished(kind="crawl", job_id="j", outcome="completed", seconds=2.0))
    assert exported.boundaries() == {"weblake.wait.duration": WAIT_BOUNDARIES}


def test_a_budget_of_nothing_is_a_budget(exported: ExportedTelemetry) -> None:
    exported.observer(events.UsageReported(report="credits", used=3.0, budget=0.0))
    exported.observer(events.UsageReported(report="tokens", used=3.0, budget=None))
    assert exported.metrics()["weblake.usage.budget"] == {(("report", "credits"),): 0.0}


def test_the_gauges_of_orphans_have_the_numbers_of_the_listing(exported: ExportedTelemetry) -> None:
    exported.observer(events.OrphansListed(root="lake", orphans=3, oldest_s=90.5, refused=1))
    values = {"weblake.orphans": 3, "weblake.orphans.oldest": 90.5, "weblake.orphans.refused": 1}
    assert exported.metrics() == {name: {(("root", "lake"),): value} for name, value in values.items()}


def test_a_load_without_pages_and_credits_counts_none_of_them(exported: ExportedTelemetry) -> None:
    """No series without a value begins with it."""
    for credits_used in (None, 0):
        exported.observer(events.LoadAccounted(receipt=Receipt("a", "crawl", credits_used=credits_used)))
    assert exported.metrics() == {}


def test_a_load_within_a_load_has_a_span_below_that_of_the_other(exported: ExportedTelemetry) -> None:
    """An observer may land what another load has found."""
    for load_id in ("outer", "inner"):
        exported.observer(events.LoadStarted(load_id=load_id, kind="crawl"))
    for load_id in ("inner", "outer"):
        exported.observer(
            events.LoadFinished(load_id=load_id, kind="crawl", job_id=None, seconds=1.0, landed_before=False)
        )
    inner, outer = exported.spans
    for span, load_id in ((inner, "inner"), (outer, "outer")):  # without job_id, which has no value
        expected = {"weblake.load_id": load_id, "weblake.kind": "crawl", "weblake.outcome": "landed"}
        assert dict(span.attributes or {}) == expected
    assert (inner.parent, outer.parent) == (outer.context, None)


def test_each_step_has_a_span_with_its_attributes(exported: ExportedTelemetry) -> None:
    job = {"kind": "crawl", "job_id": "j", "load_id": "a", "seconds": 2.0}
    for event, name, attributes in (
        (events.JobStarted(**job), "start", {"kind": "crawl", "job_id": "j"}),
        (
            events.LostStartResolved(**job, outcome="adopted"),
            "start",
            {"kind": "crawl", "job_id": "j", "lost_start": "adopted"},
        ),
        (events.WaitFinished(**job, outcome="failed"), "wait", {"kind": "crawl", "job_id": "j", "outcome": "failed"}),
        (events.ChunkRead(**job, documents=0, bytes=9), "chunk", {"job_id": "j", "documents": 0, "bytes": 9}),
    ):
        exported.observer(event)
        span = exported.spans[-1]
        assert span.name == f"weblake.{name}"
        assert dict(span.attributes or {}) == {f"weblake.{key}": value for key, value in attributes.items()} | {
            "weblake.load_id": "a"
        }
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time - span.start_time == 2_000_000_000
