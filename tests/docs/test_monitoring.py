"""Runs the examples of tasks/monitoring.md, and compares its tables, the dashboard and the alerts with the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
import respx
import yaml
from observed_lab import SITE, FirstResponseLost, ObservedLab, observed_lab
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from page_blocks import codes, section
from prometheus_client import generate_latest

from airflow_provider_weblake import observing
from weblake import Client, events, orchestration, orphans
from weblake.events import METRICS
from weblake.otel import OpenTelemetry
from weblake_service.page_failure import PageFailure

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
TEXT = (ROOT / "docs/site/tasks/monitoring.md").read_text()
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
ALERTS = yaml.safe_load((MONITORING / "alerts.yml").read_text())
METRIC = re.compile(r"\bweblake_\w+")


def examples(title: str) -> list[str]:
    """Return the Python blocks of a section."""
    return codes(section(TEXT, title), "python")


def table(head: str) -> list[list[str]]:
    """Return the cells of the rows of the table with this first row."""
    rows = TEXT.split(f"| {head} |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def run(code: str) -> dict[str, object]:
    """Run an example and return its variables."""
    names: dict[str, object] = {}
    exec(compile(code, "docs/site/tasks/monitoring.md", "exec"), names)
    return names


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObservedLab]:
    """A lab whose service the environment names, with the root `lake` of the examples."""
    monkeypatch.chdir(tmp_path)
    with observed_lab("lake") as made:
        monkeypatch.setenv("WEBLAKE_BASE_URL", made.service.url)
        monkeypatch.setenv("WEBLAKE_API_KEY", made.service.key)
        yield made


def test_the_example_of_logs_writes_a_line_for_the_load(lab: ObservedLab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "weblake.landing")
    caplog.set_level("DEBUG", "weblake.client")
    (code,) = examples("Logs")
    run(code)
    shown = [line.strip() for line in TEXT.splitlines() if line.startswith(("DEBUG:", "INFO:"))]
    records = {record.levelname: record for record in caplog.records if record.name.startswith("weblake.")}
    for line in shown:
        level, logger, message = line.split(":", 2)
        record = records[level]
        assert record.name == logger
        assert re.findall(r"(\w+)=", message) == re.findall(r"(\w+)=", record.getMessage())[: message.count("=")]
    fields = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table("`event` | fields")}
    assert {level: record.__dict__["weblake"]["event"] for level, record in records.items()} == {
        "DEBUG": "request",
        "INFO": "load",
    }
    for record in records.values():
        assert set(record.__dict__["weblake"]) - {"event"} <= fields[record.__dict__["weblake"]["event"]]


def test_the_examples_of_opentelemetry_land_and_list(lab: ObservedLab) -> None:
    names = run(examples("OpenTelemetry")[0])
    assert names["receipt"].complete  # type: ignore[attr-defined]
    assert names["old"] == []


def test_the_page_names_each_metric_and_no_other() -> None:
    metrics = {row[0].strip("`"): row[1] for row in table("metric | kind | unit | attributes | in Prometheus")}
    assert metrics == {name: kind for name, (kind, _, _) in METRICS.items()}


def test_the_page_names_each_of_airflows_metrics() -> None:
    sent = {re.sub(r"\{\w+\}", "<>", observing.NAMES.get(name, name)) for name in METRICS}
    paragraph = TEXT.split("\n## Airflow and Dagster\n", 1)[1].split("\n\n", 2)[1]
    listed = {re.sub(r"<\w+>", "<>", name) for name in re.findall(r"`(weblake\.[^`]+)`", paragraph)}
    assert sent == listed


def prometheus_names(lab: ObservedLab) -> dict[str, set[str]]:
    """Return the series that OpenTelemetry's exporter shows Prometheus once each event has happened: their labels."""
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader])
    try:
        observer = OpenTelemetry(meter_provider=provider)
        lab.web.failures[f"{SITE}/bad"] = PageFailure("SCRAPE_ALL_ENGINES_FAILED", "no engine")
        lab.land("1", "bad", observer=observer, transport=FirstResponseLost(lab.client.transport, "POST"))
        lab.service.faults({"match": {"path": "/v2/team/credit-usage"}, "times": 1, "effect": {"status": 503}})
        with Client(observer=observer) as client:
            client.retry.jitter = lambda: 0.0
            client.credit_usage()
            client.run(orchestration.report("credits", client.retry, budget=10))
            orphans(lab.root, client=client)
        shown = generate_latest().decode()
    finally:
        provider.shutdown()
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(weblake_\w+)(?:\{(.*)\})? ", shown, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def queries() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return panels + [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]


def test_the_dashboard_and_the_alerts_query_only_what_is_emitted(lab: ObservedLab) -> None:
    emitted = prometheus_names(lab)
    asked = {name for query in queries() for name in METRIC.findall(query)}
    assert len(queries()) > 12
    assert asked - set(emitted) == set()
    for query in queries():
        labels = {label for name in METRIC.findall(query) for label in emitted[name]}
        grouped = {label for names in re.findall(r"(?:by|on) \(([\w, ]+)\)", query) for label in names.split(", ")}
        matched = set(re.findall(r"(\w+)=\"", query))
        assert grouped | matched <= labels, query
    shown = [row[4].strip("`") for row in table("metric | kind | unit | attributes | in Prometheus")]
    assert [name for name in shown if not {name, f"{name}_bucket"} & set(emitted)] == []


def test_the_alerts_of_the_page_are_those_of_the_rules() -> None:
    rules = {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}
    assert {row[0].strip("`") for row in table("alert | condition | needs")} == rules


def test_the_loggers_of_the_page_exist() -> None:
    loggers = {row[0].strip("`") for row in table("logger | level | records")}
    assert {events._CLIENT_LOG.name, events._LANDING_LOG.name} <= loggers


@pytest.mark.parametrize("orchestrator", ["airflow.sdk", "dagster"])
def test_a_failed_task_tells_slack(orchestrator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [code for code in codes(TEXT, "python") if orchestrator in code and "tell_slack" in code]
    names = run(code)
    monkeypatch.setenv("SLACK_WEBHOOK_URL", "https://hooks.test/secret")
    if orchestrator == "dagster":
        context = dg.build_hook_context(op=dg.OpDefinition(lambda _: None, "docs"), op_exception=ValueError("a reason"))
        monkeypatch.setattr(type(context), "job_name", "docs_job")
    else:
        task = SimpleNamespace(dag_id="site", task_id="crawl")
        context = {"task_instance": task, "exception": ValueError("a reason")}
    with respx.mock:
        sent = respx.post("https://hooks.test/secret").respond(text="ok")
        tell = names["tell_slack"]
        (tell.decorated_fn if orchestrator == "dagster" else tell)(context)  # type: ignore[attr-defined, operator]
    assert "a reason" in json.loads(sent.calls.last.request.content)["text"]
