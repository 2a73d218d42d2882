"""Tests that the provider's clients send their events to Airflow's metrics and make spans if Airflow traces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.observability import stats
from observed_lab import ExportedTelemetry

import weblake
from airflow_provider_weblake import observing
from weblake import events, orchestration
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    from gated_site import GatedSite

TEXT = (Path(__file__).parents[2] / "docs/observability.md").read_text()


class Backend:
    """A backend of Airflow's metrics that keeps what it gets."""

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = {}

    def incr(self, name: str, count: int = 1, rate: float = 1, *, tags: object = None) -> None:
        self.values.setdefault(name, []).append(count)

    def timing(self, name: str, seconds: Any, *, tags: object = None) -> None:
        self.values.setdefault(name, []).append(seconds.total_seconds())

    def gauge(self, name: str, value: float, rate: float = 1, *, delta: bool = False, tags: object = None) -> None:
        self.values.setdefault(name, []).append(value)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """What Airflow's `[metrics]` settings would have chosen."""
    made = Backend()
    for name in ("_backend", "_factory"):
        monkeypatch.setattr(f"airflow.sdk._shared.observability.metrics.stats.{name}", None)
    stats.initialize(factory=lambda: made, export_legacy_names=False)  # type: ignore[arg-type, return-value]
    return made


def test_a_load_of_a_hooks_client_is_counted(
    backend: Backend, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path
) -> None:
    from airflow_provider_weblake.hooks.weblake import WeblakeHook

    with WeblakeHook().get_conn() as client:
        receipt = weblake.land_batch(site.pages(2), to=tmp_path, client=client, terms=weblake.Terms(poll_s=0.05))
        client.run(orchestration.report("credits", client.retry, budget=10))
        weblake.orphans(tmp_path, client=client)
    values = backend.values
    assert values["weblake.loads.landed"] == [1]
    assert values["weblake.pages.stored"] == [2]
    assert values["weblake.credits"] == [2]
    assert values["weblake.published_bytes"] == [receipt.files[0].bytes]
    assert 0 < values["weblake.wait"][0] < 60
    assert sum(values["weblake.polls"]) >= 1
    assert (values["weblake.usage.credits"], values["weblake.usage_budget.credits"]) == ([2.0], [10])
    assert (values["weblake.orphans"], values["weblake.orphans_oldest_s"]) == ([0], [0.0])


def test_retries_and_lost_starts_are_counted(backend: Backend) -> None:
    observing.send_to_stats(
        events.RetryScheduled(operation="credit_usage", attempt=1, error="RateLimited", status=429, pause_s=1.0)
    )
    observing.send_to_stats(events.LostStartResolved(kind="crawl", job_id=None, outcome="unknown", seconds=1.0))
    assert backend.values == {"weblake.retries": [1], "weblake.lost_starts.unknown": [1]}


def test_an_operator_reports_the_budget(backend: Backend, weblake_connection: WeblakeService) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    assert WeblakeUsageOperator(task_id="usage", budget="500").execute({})["over_budget"] is False
    assert backend.values["weblake.usage_budget.credits"] == [500.0]


def test_spans_are_made_where_airflow_traces(
    weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_weblake.hooks.weblake import WeblakeHook

    exported = ExportedTelemetry()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: exported.tracer_provider)
    for is_on in ("False", "True"):
        monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", is_on)
        with WeblakeHook().get_conn() as client:
            weblake.land_batch(site.pages(1), to=tmp_path / is_on, client=client, terms=weblake.Terms(poll_s=0.05))
        assert ("weblake.load" in [span.name for span in exported.spans]) == (is_on == "True")
    exported.close()


def test_the_documented_dag_fails_for_an_old_orphan_only(
    weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = orchestration.batch_request(site.pages(1), orchestration.Naming())
    with weblake_connection.client() as client:
        orchestration.start_load(client, orchestration.open_dataset(tmp_path), request)
    (code,) = re.findall(r"^```python\n(from airflow.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/observability.md", "exec"), names)
    check = names["orphans_of_the_lake"]().get_task("no_old_orphans").python_callable
    check(str(tmp_path))
    monkeypatch.setattr("weblake.loads.orphans.Orphan.age_s", 100_000.0)
    with pytest.raises(RuntimeError, match="1 loads have not landed for a day"):
        check(str(tmp_path))
