"""Tests of the example project: loaded as Dagster loads it, and run on the embedded service."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg
import pytest
from gated_site import GatedSite
from project_shell import environment

import dagster_weblake
from weblake.testing import WeblakeService
from weblake_service.server import LocalService

pytestmark = pytest.mark.system

PROJECT = Path(dagster_weblake.__file__).parent / "example_project"
AT_THE_ROOT = Path(__file__).parents[2] / "example_dags" / "dagster_project"
#: What every service can do, and what takes one with a browser.
PLAIN = {"site_pages", "watch_list", "watched_pages", "page_report", "sites", "site_documents", "site_documents_job"}
PLAIN |= {"site_map", "new_pages"}
PLAIN |= {"usage", "activity"}
ALL = PLAIN | {"page_pictures", "page_visit"}


@pytest.fixture
def settings(
    tmp_path: Path, site: GatedSite, weblake_service: WeblakeService, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    found = {
        "WEBLAKE_BASE_URL": weblake_service.url,
        "WEBLAKE_API_KEY": weblake_service.key,
        "WEBLAKE_ROOT": str(tmp_path / "lake"),
        "EXAMPLE_SITE": f"{site.url}/",
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def definitions(settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    monkeypatch.syspath_prepend(str(PROJECT))
    return dg.load_from_defs_folder(path_within_project=PROJECT)


def test_the_example_project_has_assets_checks_schedules_and_sensors(
    definitions: dg.Definitions, weblake_service: WeblakeService
) -> None:
    assert AT_THE_ROOT.resolve() == PROJECT.resolve()
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    assert set(specs) == ALL
    deps = {name: {dep.asset_key.to_user_string() for dep in spec.deps} for name, spec in specs.items()}
    assert deps["watch_list"] == {"site_pages"}
    assert deps["watched_pages"] == {"watch_list"}
    assert deps["page_report"] == {"watched_pages"}
    assert deps["site_documents_job"] == {"sites"}
    assert deps["site_documents"] == {"site_documents_job"}
    assert isinstance(specs["site_documents"].partitions_def, dg.DynamicPartitionsDefinition)
    assert isinstance(specs["usage"].partitions_def, dg.MonthlyPartitionsDefinition)
    assert specs["watched_pages"].freshness_policy is not None
    assert specs["site_pages"].automation_condition is not None
    checked = {key.asset_key.to_user_string() for key in definitions.resolve_asset_graph().asset_check_keys}
    assert checked == {"site_pages", "watched_pages", "site_documents", "usage"}
    running = {
        sensor.name
        for sensor in definitions.get_repository_def().sensor_defs
        if sensor.default_status == dg.DefaultSensorStatus.RUNNING
    }
    assert running == {"site_documents_collect"}
    schedule = definitions.get_repository_def().get_schedule_def("usage_closed")
    second = datetime(2026, 11, 2, 6, tzinfo=timezone.utc)
    request = schedule(dg.build_schedule_context(scheduled_execution_time=second))
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == "2026-10-01"
    dg.Definitions.validate_loadable(definitions)
    assert weblake_service.requests() == []


def start(tmp_path: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dagster_weblake.run_example", *arguments],
        env=environment(tmp_path, **env),
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_a_run_prints_one_object_and_leaves_neither_home_nor_key(tmp_path: Path, site: GatedSite) -> None:
    key = f"test-canary-{secrets.token_hex(8)}"
    with LocalService(keys=key) as service:
        done = start(
            tmp_path,
            "--browser",
            "pictures",
            WEBLAKE_BASE_URL=service.url,
            WEBLAKE_API_KEY=key,
            WEBLAKE_ROOT=str(tmp_path / "lake"),
            EXAMPLE_SITE=f"{site.url}/",
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert service.counts()["crawl_started"] == 2
    told = json.loads(done.stdout)
    assert (told["state"], told["failed"], told["checks"]["failed"]) == ("success", [], [])
    assert set(told["partitions"]) == PLAIN | {"page_pictures"}
    assert told["partitions"]["usage"] >= 8
    assert {name: receipt["stored"] for name, receipt in told["loads"].items()} == {
        "site_pages": 6,
        "watched_pages": 6,
        "new_pages": 0,
        "site_documents": 6,
        "page_pictures": 1,
    }
    assert os.listdir(tmp_path / "scratch") == []
    assert key not in done.stdout + done.stderr


def test_a_missing_variable_is_a_usage_error(tmp_path: Path) -> None:
    done = start(
        tmp_path, WEBLAKE_ROOT=str(tmp_path / "lake"), WEBLAKE_BASE_URL="", WEBLAKE_API_KEY="", EXAMPLE_SITE=""
    )
    assert done.returncode == 2
    assert "WEBLAKE_BASE_URL, WEBLAKE_API_KEY, EXAMPLE_SITE must be set" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "lake").exists()
