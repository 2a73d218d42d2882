"""Tests that the events of the provider's clients go to Airflow's metrics, its traces and the log of the task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.observability import stats
from dag_runs import Run, run_one, task_logs
from observed_lab import ExportedTelemetry
from page_blocks import codes

import weblake
from airflow_provider_weblake import observing
from weblake import events, orchestration
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    from gated_site import GatedSite

TEXT = (Path(__file__).parents[2] / "docs/site/tasks/monitoring.md").read_text()


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
    (code,) = [code for code in codes(TEXT, "python") if "no_old_orphans" in code]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/site/tasks/monitoring.md", "exec"), names)
    check = names["orphans_of_the_lake"]().get_task("no_old_orphans").python_callable
    check(str(tmp_path))
    monkeypatch.setattr("weblake.loads.orphans.Orphan.age_s", 100_000.0)
    with pytest.raises(RuntimeError, match="1 loads have not landed for a day"):
        check(str(tmp_path))


@pytest.mark.system
@pytest.mark.parametrize("way", ["blocking", "deferred", "sensor"])
def test_a_waiting_task_logs_its_state_at_each_change(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
    from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor

    monkeypatch.setattr("airflow_provider_weblake.triggers.weblake.FIRST_S", 0.1)
    heads: list[dict[str, object]] = [
        {"status": "scraping", "completed": n, "total": 500, "creditsUsed": n, "data": []} for n in (0, 12)
    ]
    status = {"method": "GET", "path": "/v2/batch/scrape/"}
    weblake_connection.faults(
        {"match": status, "times": 1, "effect": {"status": 200, "body": heads[0]}},
        {"match": status, "times": 1, "effect": {"status": 503}},
        {"match": status, "times": 4, "effect": {"status": 200, "body": heads[1]}},
    )

    def make() -> object:
        if way != "sensor":
            return WeblakeBatchScrapeOperator(
                task_id="wait", urls=site.pages(2), to=str(tmp_path), deferrable=way == "deferred", poll_interval=0.2
            )
        with weblake_connection.client() as client:
            job_id = client.start_batch_scrape(site.pages(2)).id
        return WeblakeBatchScrapeSensor(task_id="wait", job_id=str(job_id), deferrable=False, poke_interval=0.2)

    assert run_one(run_dag, make).state == "success"
    lines = [line for line in task_logs(capfd).splitlines() if "batch " in line or "batch_scrape" in line]
    said = [line for line in lines if re.search(r" is scraping| is completed|tried again|cannot be asked", line)]
    wanted = ["completed 0 of 500, 0 credits", "503|cannot be asked", "completed 12 of 500, 12 credits"]
    assert len(said) >= 4, said
    for line, each in zip(said, wanted, strict=False):
        assert re.search(each, line), said
    assert len([line for line in said if "completed 12 of 500" in line]) == 1, said
    assert "is completed: completed 2 of 2, 2 credits" in said[-1]
