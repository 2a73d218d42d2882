"""Tests of the components, loaded from YAML as a project loads them: attributes, mistakes, secrets and loads."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import get_type_hints

import dagster as dg
import jsonschema
import pydantic
import pytest
from component_files import assets_of, fields_without_words, loaded, refused, spec_of
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
from gated_site import GatedSite
from in_process import Bench
from project_shell import environment, said
from sensor_bench import Ticker

from dagster_weblake import (
    BatchScrapeRequest,
    CrawlRequest,
    UsageRequest,
    WeblakeBatchScrapeComponent,
    WeblakeCrawlComponent,
    WeblakeResource,
    WeblakeUsageComponent,
)
from dagster_weblake.components.option_schema import options_schema
from dagster_weblake.requests import Request
from weblake.api import options
from weblake.errors import InvalidOption

COMPONENTS = (WeblakeCrawlComponent, WeblakeBatchScrapeComponent, WeblakeUsageComponent)
CRAWL, BATCH, USAGE = (each.__name__ for each in COMPONENTS)
DOCS = {"asset": "docs", "url": "https://docs.example.com/"}
SCHEMA = jsonschema.Draft202012Validator(options_schema(options.CrawlOptions))
PAGE = [
    {},
    {"formats": ["markdown", "raw_html", "rawHtml", "change_tracking"]},
    {"formats": [{"type": "json", "prompt": "price", "schema": {"type": "object", "anyOf": []}}, {"type": "links"}]},
    {"formats": [{"type": "screenshot", "full_page": True, "viewport": {"width": 800, "height": 600}}, "markdown"]},
    {"headers": {"Cookie": "a=b"}, "wait_for": 100, "timeout": 30_000, "max_age": 0, "proxy": "auto"},
    {"parsers": ["pdf", {"type": "pdf", "mode": "ocr", "max_pages": 3}], "mobile": True, "include_tags": []},
    {"actions": [{"type": "wait", "selector": "a"}, {"type": "execute_javascript", "script": "1"}]},
    {"location": {"country": "DE", "languages": ["de"]}, "profile": {"name": "a"}, "audit_metadata": {"username": "a"}},
    {"redact_pii": {"entities": ["name"]}},
]
CRAWLS = [
    {"limit": 1, "max_discovery_depth": 0, "delay": 0.5, "sitemap": "only", "integration": None, "prompt": "docs only"},
    {"include_paths": [".*"], "exclude_paths": [], "webhook": "https://a.example.com/"},
    {"webhook": {"url": "https://a.example.com/", "headers": {"a": "b"}, "metadata": {"a": [1]}, "events": ["page"]}},
    *({"scrape_options": page} for page in PAGE),
]
WRONG = [
    {"limt": 1},
    {"limit": 0},
    {"limit": None},
    {"sitemap": "some"},
    {"include_paths": ".*"},
    {"webhook": {"headers": {}}},
    {"scrape_options": {"formats": [{"type": "jsn"}]}},
    {"scrape_options": {"formats": [{"type": "screenshot", "quality": 101}]}},
    {"scrape_options": {"headers": {"a": 1}}},
]


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_attribute_has_a_description_and_examples(component: type[dg.Component]) -> None:
    model = component.get_model_cls()
    assert model is not None
    assert fields_without_words(model) == []


@pytest.mark.smoke
def test_every_attribute_of_a_crawl_reaches_the_asset_and_its_steps() -> None:
    attributes = {
        "asset": {
            "key": "web/docs",
            "group_name": "web",
            "owners": ["team:data"],
            "tags": {"tier": "gold"},
            "description": "The documentation.",
            "deps": ["upstream"],
            "automation_condition": "{{ dg.AutomationCondition.eager() }}",
            "freshness_policy": "{{ dg.FreshnessPolicy.time_window(fail_window=datetime.timedelta(hours=36)) }}",
            "partitions_def": "{{ dg.MonthlyPartitionsDefinition('2026-01-01', end_offset=1) }}",
        },
        "url": "https://docs.example.com/{partition_key}",
        "options": {"limit": 5, "include_paths": ["2024"], "scrape_options": {"formats": ["raw_html"]}},
        "to": "s3://lake/web",
        "wait": "sensor",
        "backfill_policy": {"type": "multi_run", "max_partitions_per_run": 3},
        "pool": "weblake",
        "retry_policy": {"max_retries": 1, "delay": 2, "backoff": "LINEAR", "jitter": None},
        "partition": {"month": "{partition_key}"},
        "allow_partial": True,
        "missing_ratio": 0.1,
        "fail_ratio": 0.5,
        "max_credits": 7,
        "deadline": "1h30m",
        "poll_interval": 2,
        "report_changes": True,
        "checks": {"min_rows": 3, "only": ["rows_above_zero", "credits_under_budget"], "severity": "WARN"},
        "sensor": {"minimum_interval_seconds": 90, "default_status": "STOPPED"},
        "resource_key": "other",
    }
    with loaded(CRAWL, attributes) as (component, defs):
        assert component.request == CrawlRequest(
            url="https://docs.example.com/{partition_key}",
            options={"limit": 5, "include_paths": ["2024"], "scrape_options": {"formats": ["raw_html"]}},
            partition={"month": "{partition_key}"},
            allow_partial=True,
            missing_ratio=0.1,
            fail_ratio=0.5,
            max_credits=7,
            deadline=timedelta(minutes=90),
            poll_interval=2,
            report_changes=True,
        )
        start, docs = assets_of(defs)
        spec, job = spec_of(defs, "web/docs"), spec_of(defs, "web/docs_job")
        assert (spec.group_name, list(spec.owners), spec.description) == ("web", ["team:data"], "The documentation.")
        assert (spec.tags["tier"], spec.metadata["weblake/to"]) == ("gold", "s3://lake/web")
        assert (spec.kinds, spec.freshness_policy is not None) == ({"weblake", "parquet", "s3"}, True)
        assert spec.partitions_def == dg.MonthlyPartitionsDefinition("2026-01-01", end_offset=1)
        assert job.automation_condition == dg.AutomationCondition.eager()
        assert [dep.asset_key.to_user_string() for dep in job.deps] == ["upstream"]
        assert docs.backfill_policy == dg.BackfillPolicy.multi_run(3)
        assert docs.op.pool == "weblake"
        assert start.op.retry_policy == dg.RetryPolicy(max_retries=1, delay=2, backoff=dg.Backoff.LINEAR)
        assert docs.required_resource_keys == {"io_manager", "other"}
        (checks,) = defs.asset_checks or []
        assert isinstance(checks, dg.AssetsDefinition)
        assert {key.name for key in checks.check_keys} == {"rows_above_zero", "credits_under_budget"}
        (sensor,) = defs.sensors or []
        assert isinstance(sensor, dg.SensorDefinition)
        assert (sensor.minimum_interval_seconds, sensor.default_status) == (90, dg.DefaultSensorStatus.STOPPED)
        assert not defs.resources


def test_omitted_attributes_have_the_defaults_of_the_package() -> None:
    with loaded(CRAWL, DOCS) as (component, defs):
        assert component.request == CrawlRequest(url="https://docs.example.com/")
        (docs,) = assets_of(defs)
        assert docs.op.retry_policy is not None
        assert docs.op.retry_policy.max_retries == 3
        assert docs.required_resource_keys == {"io_manager", "weblake"}
        assert (defs.sensors, defs.asset_checks) == ([], [])
    nothing = dict.fromkeys(["to", "partition", "resource", "checks", "pool", "max_credits"])
    with loaded(CRAWL, {**DOCS, **nothing, "retry_policy": None, "wait": "sensor", "sensor": None}) as (_, defs):
        assert [asset.op.retry_policy for asset in assets_of(defs)] == [None, None]
        assert not defs.sensors


@pytest.mark.parametrize(("given", "expected"), [("2d", 172_800), (90, 90), ("1h30m5s", 5405), ("0.5h", 1800)])
def test_a_deadline_is_seconds_or_text_with_a_unit(given: object, expected: float) -> None:
    with loaded(CRAWL, {**DOCS, "deadline": given}) as (component, _):
        assert component.deadline.total_seconds() == expected


def test_the_urls_of_a_batch_are_a_list_a_file_or_an_asset() -> None:
    with loaded(BATCH, {"asset": "pages", "urls": ["https://a.example.com/"]}) as (component, _):
        assert component.request == BatchScrapeRequest(urls=["https://a.example.com/"])
    attributes = {"asset": "pages", "urls": "list.csv", "column": "address"}
    with loaded(BATCH, attributes, {"list.csv": "address\nhttps://a.example.com/\n"}) as (component, defs):
        urls, version = component.urls, spec_of(defs, "pages").code_version
        assert urls.endswith("/part/list.csv")
    with loaded(BATCH, attributes) as (component, defs):
        # Another checkout has another path, and the same asset.
        assert (component.urls != urls, spec_of(defs, "pages").code_version) == (True, version)
    with loaded(BATCH, {"asset": "pages", "urls_from": "web/list", "column": "url"}) as (component, defs):
        assert component.request == BatchScrapeRequest(urls=dg.AssetKey(["web", "list"]), column="url")
        assert [dep.asset_key for dep in spec_of(defs, "pages").deps] == [dg.AssetKey(["web", "list"])]


def test_usage_has_months_and_a_budget() -> None:
    attributes = {
        "asset": "usage",
        "report": "tokens",
        "by_api_key": True,
        "budget": 9,
        "start_date": "2026-04-01",
        "checks": {"severity": "WARN", "blocking": False},
    }
    with loaded(USAGE, attributes) as (component, defs):
        assert component.request == UsageRequest(report="tokens", by_api_key=True, budget=9)
        (usage,) = assets_of(defs)
        assert usage.backfill_policy == dg.BackfillPolicy.single_run()
        spec = spec_of(defs, "usage")
        assert spec.partitions_def == dg.MonthlyPartitionsDefinition("2026-04-01", end_offset=1)
        assert spec.metadata["weblake/report"] == "tokens_by_key"
        assert len(list(defs.asset_checks or [])) == 1
    with loaded(USAGE, {"asset": "usage", "start_date": "2026-04"}) as (component, defs):
        assert component.start_date == "2026-04-01"
        assert not defs.asset_checks
    with loaded(USAGE, {"asset": "usage"}) as (_, defs):
        assert spec_of(defs, "usage").partitions_def is None


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("kind", "attributes", "place", "words"),
    [
        (CRAWL, "options:\n  limt: 5", "options", "Did you mean `limit`?"),
        (CRAWL, "options:\n  limit: 0", "options", "an integer of at least 1"),
        (CRAWL, "wait: sensr", "wait", "'step' or 'sensor'"),
        (CRAWL, "fail_ratio: 2", "fail_ratio", "from 0 to 1"),
        (CRAWL, "deadline: 6 hours", "deadline", "is not a duration"),
        (CRAWL, "deadline: 0", "deadline", "is not a duration"),
        (CRAWL, "retry_policy:\n  backoff: up", "retry_policy.backoff", "'EXPONENTIAL'"),
        (CRAWL, "checks:\n  only: [speed]", "checks", "There is no check 'speed'"),
        (CRAWL, "checks:\n  max_error_ratio: 3", "checks", "max_error_ratio is 3.0"),
        (CRAWL, 'to: "{{ env.NOT_SET }}"', "to", "The environment variable NOT_SET is not set"),
        (CRAWL, 'retry_policy:\n  delay: "{{ env.NOT_SET }}"', "retry_policy.delay", "NOT_SET is not set"),
        (CRAWL, 'options:\n  include_paths: ["{{ env.NOT_SET }}/.*"]', "options.include_paths.0", "NOT_SET is not set"),
        (CRAWL, 'resource:\n  root: "{{ env.NOT_SET }}/lake"', "resource.root", "NOT_SET is not set"),
        (CRAWL, "resource:\n  call_timeout_s: soon", "resource", "call_timeout_s"),
        (BATCH, "column: url", "attributes", "urls or urls_from is needed"),
        (BATCH, "urls: []", "urls", "give at least one URL"),
        (USAGE, "report: euros", "report", "'credits' or 'tokens'"),
        (USAGE, "start_date: May", "start_date", "such as 2026-01-01"),
        (USAGE, "checks: {}", "checks", "give budget"),
    ],
)
def test_an_invalid_attribute_is_reported_with_its_line(kind: str, attributes: str, place: str, words: str) -> None:
    head = "asset: docs\nurl: https://docs.example.com/" if kind == CRAWL else "asset: docs"
    text = refused(kind, f"{head}\n{attributes}")
    assert words in text
    assert "Traceback" not in text
    where, _, path = text.splitlines()[0].partition(" - ")
    assert path == f"attributes.{place}".removesuffix(".attributes")
    number = where.rpartition(":")[2]
    (line,) = re.findall(rf"^ *{number} \| (.*)$", text, re.MULTILINE)
    assert [part for part in path.split(".") if not part.isdigit()][-1] in line


def test_no_message_holds_a_value_of_the_options() -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    options: dict[str, object] = {"scrape_options": {"headers": {"Cookie": canary}}}
    docs = dg.AssetSpec("docs")
    with pytest.raises(pydantic.ValidationError, match="limt") as caught:
        WeblakeCrawlComponent(asset=docs, url="https://docs.example.com/", options={**options, "limt": 1})
    assert canary not in str(caught.value)
    assert canary not in repr(WeblakeCrawlComponent(asset=docs, url="https://docs.example.com/", options=options))


@pytest.mark.parametrize("how", ["literal", "variable"])
def test_a_secret_is_in_no_snapshot(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, cookie, token, password = (f"canary-{secrets.token_hex(8)}" for _ in range(4))
    proxy = f"http://test-user:{password}@proxy.example:3128"
    for name, value in {"C_KEY": key, "C_COOKIE": cookie, "C_TOKEN": token, "C_PROXY": proxy}.items():
        monkeypatch.setenv(name, value)
    literal = how == "literal"
    attributes = {
        **DOCS,
        "wait": "sensor",
        "checks": {},
        "options": {"scrape_options": {"headers": {"Cookie": cookie if literal else "{{ env.C_COOKIE }}"}}},
        "resource": {
            "base_url": "https://api.example.com",
            "api_key": key if literal else "{{ env.C_KEY }}",
            "root": "s3://lake/web",
            "storage_options": {"token": token if literal else "{{ env.C_TOKEN }}"},
            "proxy": proxy if literal else "{{ env.C_PROXY }}",
        },
    }
    with loaded(CRAWL, attributes) as (component, defs):
        repository = defs.get_repository_def()
        text = serialize_value(RepositorySnap.from_def(repository))
        assert "weblake__docs" in text
        assert "docs_collect" in text
        for canary in (key, cookie, token, password):
            assert canary not in text
            assert canary not in repr(component)
            assert canary not in repr(defs.resources)
        headers = component.options["scrape_options"]["headers"]
        assert isinstance(headers["Cookie"], dg.EnvVar) is not literal
        assert component.resource.options_of_storage() == {"token": token}
        with component.resource.get_client() as client:
            assert client.transport._proxy.raw_auth == (b"test-user", password.encode())


def test_a_resource_of_a_component_is_shared_under_its_key() -> None:
    with loaded(CRAWL, {**DOCS, "resource": {"root": "/lake"}, "resource_key": "lake"}) as (_, defs):
        assert set(defs.resources or {}) == {"lake"}
        assert assets_of(defs)[0].required_resource_keys == {"io_manager", "lake"}


@pytest.mark.smoke
def test_a_batch_of_an_upstream_list_lands_with_its_checks(bench: Bench, site: GatedSite) -> None:
    @dg.asset
    def page_list() -> list[str]:
        return site.pages(3)

    attributes = {"asset": "pages", "urls_from": "page_list", "checks": {"min_rows": 3}, "max_credits": 10}
    with loaded(BATCH, attributes) as (_, defs):
        run = bench.run([page_list, *assets_of(defs), *(defs.asset_checks or [])])
        assert run.success
        found = {check.check_name: check.passed for check in run.result.get_asset_check_evaluations()}
    assert (bench.rows(), run.metadata("pages")["weblake/stored"]) == (3, 3)
    assert len(found) == 6
    assert found["credits_under_budget"]
    assert all(found.values())


class Ours(WeblakeBatchScrapeComponent):
    """A subclass with both overrides, as a project has it."""

    def get_asset_spec(self, request: Request) -> dg.AssetSpec:
        assert isinstance(request, BatchScrapeRequest)
        spec = super().get_asset_spec(request)
        return spec.replace_attributes(key=["ours", "pages"], owners=["team:ours"]).merge_attributes(
            tags={"urls": str(len(request.urls))}  # type: ignore[arg-type]
        )

    def execute(
        self, context: dg.AssetExecutionContext, weblake: WeblakeResource, request: Request
    ) -> Iterator[dg.MaterializeResult[None]]:
        assert isinstance(request, BatchScrapeRequest)
        for result in super().execute(context, weblake, request):
            told = f"{context.asset_key.to_user_string()}: {len(request.urls)}"  # type: ignore[arg-type]
            yield result._replace(metadata={**(result.metadata or {}), "ours": told})


def test_overrides_are_used_by_both_steps_when_a_sensor_waits(bench: Bench, site: GatedSite) -> None:
    component = Ours(asset=dg.AssetSpec("pages"), urls=site.held(2), wait="sensor", pool="weblake")
    defs = component.build_defs(dg.ComponentTree.for_test().load_context)
    assets = assets_of(defs)
    assert list(spec_of(defs, "ours/pages_job").owners) == ["team:ours"]
    started = bench.run(assets, "ours/pages_job")
    assert started.metadata("ours/pages_job")["ours"] == "ours/pages_job: 2"
    assert (bench.rows(), bench.started) == (0, 1)
    (sensor,) = defs.sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    ticker = Ticker(bench, sensor, assets)
    assert ticker.tick().requests == []
    site.release()
    tick = ticker.until(lambda tick: bool(tick.requests))
    result = ticker.run(tick.requests[0])
    assert result.success
    (event,) = result.get_asset_materialization_events()
    found = event.step_materialization_data.materialization
    assert found.asset_key.to_user_string() == "ours/pages"
    assert found.metadata["ours"].value == "ours/pages: 2"
    assert (bench.rows(), bench.started) == (2, 1)


@pytest.mark.parametrize("given", CRAWLS, ids=str)
def test_the_schema_accepts_all_valid_options(given: dict[str, object]) -> None:
    options.to_wire(options.CrawlOptions, given)
    assert [error.message for error in SCHEMA.iter_errors(given)] == []


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_the_schema_refuses_only_invalid_options(given: dict[str, object]) -> None:
    assert not SCHEMA.is_valid(given)
    with pytest.raises(InvalidOption):
        options.to_wire(options.CrawlOptions, given)


def test_a_template_may_stand_anywhere() -> None:
    text = "{{ anything }}"
    assert SCHEMA.is_valid(text)
    assert SCHEMA.is_valid({"limit": text, "scrape_options": {"formats": [text], "headers": {"Cookie": text}}})


@pytest.mark.parametrize("kind", [options.CrawlOptions, options.BatchScrapeOptions])
def test_every_option_is_in_the_schema(kind: type) -> None:
    schema = options_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["else"]["properties"]) == set(get_type_hints(kind))  # type: ignore[index]


WRONG_FILE = """\
type: dagster_weblake.WeblakeCrawlComponent

attributes:
  asset:
    key: wrong
  url: https://docs.example.com/
  options:
    limit: 0
    scrape_options:
      formats:
        - markdwn
  resource:
    rot: ./lake
  limt: 3
"""


@pytest.mark.system
def test_dg_lists_the_components_and_reports_the_lines_of_invalid_attributes(tmp_path: Path) -> None:
    (tmp_path / "dg.toml").write_text('directory_type = "project"\n\n[project]\nroot_module = "site_lake"\n')
    file = tmp_path / "site_lake" / "defs" / "wrong" / "defs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(WRONG_FILE)
    for folder in (tmp_path / "site_lake", tmp_path / "site_lake" / "defs"):
        (folder / "__init__.py").touch()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = environment(tmp_path, COLUMNS="300")
        return subprocess.run(["dg", *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)

    listed = {item["key"] for item in json.loads(said(run("list", "components", "--json")))["items"]}
    assert {key for key in listed if "weblake" in key} == {f"dagster_weblake.{each.__name__}" for each in COMPONENTS}
    checked = run("check", "yaml")
    assert checked.returncode == 1
    for number, place, words in (
        (8, "options.limit", "0 is less than the minimum of 1"),
        (11, "options.scrape_options.formats.0", "'markdwn' is not one of ['markdown'"),
        (13, "resource.rot", "'rot' was unexpected"),
        (14, "limt", "'limt' was unexpected"),
    ):
        wanted = f"{file}:{number} - dagster_weblake.WeblakeCrawlComponent attributes.{place} "
        assert any(line.startswith(wanted) and words in line for line in checked.stdout.splitlines()), checked.stdout
