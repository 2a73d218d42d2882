"""Tests of docs/dagster_deployments.md, managed_airflow.md and scale.md: settings that Dagster accepts, and links."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import deployment_docs
import pytest
from dagster_celery import celery_executor

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("dagster_deployments.md", "managed_airflow.md", "scale.md")
LINKS = sorted({link for page in PAGES for link in re.findall(r"\]\(([^)]+)\)", (DOCS / page).read_text())})


def test_each_block_of_settings_is_tested() -> None:
    """Those of Docker and Kubernetes in test_container_executors.py, in an environment of their own."""
    tried = {"What a step needs": 1, "Celery": 1, "Docker": 1, "Kubernetes": 1}
    assert {heading: len(found) for heading, found in deployment_docs.blocks().items()} == tried
    assert len(re.findall(r"^```\w", deployment_docs.TEXT, re.MULTILINE)) == len(tried)


@pytest.mark.system
def test_the_instance_accepts_its_settings(tmp_path: Path) -> None:
    (settings,) = deployment_docs.blocks()["What a step needs"]
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=settings) as instance:
        assert (instance.run_monitoring_enabled, instance.run_retries_max_retries) == (True, 3)


def test_the_celery_executor_accepts_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"):
        monkeypatch.setenv(name, "redis://redis.example.com/0")

    @dg.job(executor_def=celery_executor)
    def job() -> None:
        pass

    config = deployment_docs.executor("Celery")
    assert dg.validate_run_config(job, {"execution": {"config": config}})
    with pytest.raises(dg.DagsterInvalidConfigError, match="brokr"):
        dg.validate_run_config(job, {"execution": {"config": {**config, "brokr": "redis://"}}})


@pytest.mark.parametrize("link", LINKS)
def test_links_lead_to_existing_targets(link: str) -> None:
    assert (DOCS / link).exists()
