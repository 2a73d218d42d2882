"""Tests of Dagster's Celery executor with the settings of docs/dagster_deployments.md.

A worker that waits for a paid job is killed, and the job lands once. Each worker has a home and a temporary directory
of its own; the dataset is in a bucket.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dagster_celery_lab import WORKERS, DagsterCeleryLab
from deployment_docs import executor
from gated_site import GatedSite

import weblake
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(420)]

HERE = Path(__file__).parent
PAGES = 3


@dataclass
class Environment:
    """Dagster with its workers, the service, the site and the dataset."""

    dagster: DagsterCeleryLab
    service: LocalService
    site: GatedSite
    root: str

    def launch(self) -> str:
        """Launches the asset and returns its run when its step waits for the job."""
        before = self.started
        self.site.held(1)
        run = self.dagster.launch(["held"], run_config={"ops": {"held": {"config": {"count": PAGES}}}})
        self.dagster.wait_event(run, lambda event: event["message"].startswith("The job: status "), 90)
        assert self.started - before == 1
        return run

    def landed(self, run: str) -> dict[str, Any]:
        """The metadata of the run's only materialization."""
        (found,) = [each for each in self.dagster.materializations("held") if each.run_id == run]
        return found.metadata

    def rows(self, load_id: str) -> int:
        table = weblake.read(self.root, columns=["load_id"]).to_table()
        return table["load_id"].to_pylist().count(load_id)

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    @property
    def billed(self) -> int:
        return self.service.counts().get("pages_billed", 0)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, module_s3_root: str) -> Iterator[Environment]:
    key, site = f"canary-{secrets.token_hex(16)}", GatedSite()
    try:
        with LocalService(keys=[ServiceKey(key)], allow_private=True) as service:
            env = {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": key}
            env |= {"E2E_SITE": site.url, "E2E_ROOT": module_s3_root}
            env |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
            home = tmp_path_factory.mktemp("dagster")
            with DagsterCeleryLab(home, HERE / "celery_definitions.py", env, executor("Celery")) as lab:
                yield Environment(lab, service, site, module_s3_root)
                site.release()
                assert lab.grep(key) == []
    finally:
        site.close()


@pytest.fixture(autouse=True)
def _released(environment: Environment) -> Iterator[None]:
    yield
    environment.site.release()


def test_another_worker_executes_the_step_of_a_lost_worker(environment: Environment) -> None:
    dagster, billed = environment.dagster, environment.billed
    run = environment.launch()
    lost = dagster.worker_of(run)
    dagster.kill_worker(lost)
    dagster.redeliver(lost)
    dagster.until("another execution", lambda: len(dagster.executions(run)) == 2, 60, lambda: dagster.describe(run))
    environment.site.release()
    assert dagster.wait_status(run, {"SUCCESS"}) == "SUCCESS"
    found = environment.landed(run)
    assert (found["dagster/row_count"], environment.rows(found["weblake/load_id"])) == (PAGES, PAGES)
    assert environment.billed - billed == PAGES


def test_a_run_whose_step_was_killed_for_lack_of_memory_is_retried(environment: Environment) -> None:
    dagster, started, billed = environment.dagster, environment.started, environment.billed
    run = environment.launch()
    os.kill(dagster.step_process(run), signal.SIGKILL)
    dagster.wait_status(run, {"FAILURE"})
    retry = dagster.wait_retry(run)
    environment.site.release()
    dagster.wait_status(retry.run_id, {"SUCCESS"})
    found = environment.landed(retry.run_id)
    assert (found["dagster/row_count"], environment.rows(found["weblake/load_id"])) == (PAGES, PAGES)
    assert (environment.started - started, environment.billed - billed) == (1, PAGES)


def test_a_step_that_waits_for_longer_than_the_visibility_timeout_lands_once(environment: Environment) -> None:
    """Celery gives the step to a second worker while the first still executes it."""
    dagster, started, billed = environment.dagster, environment.started, environment.billed
    run = environment.launch()
    (idle,) = set(WORKERS) - {dagster.worker_of(run)}
    dagster.kill_worker(idle)
    dagster.redeliver(idle)
    dagster.until("a second execution", lambda: len(dagster.executions(run)) > 1, 60, lambda: dagster.describe(run))
    assert set(dagster.executions(run)) == set(WORKERS)
    environment.site.release()
    assert dagster.wait_status(run, {"SUCCESS"}) == "SUCCESS"
    loads = {
        each.metadata["weblake/load_id"]: each.metadata["dagster/row_count"]
        for each in dagster.materializations("held")
        if each.run_id == run
    }
    ((load_id, rows),) = loads.items()
    assert (rows, environment.rows(load_id)) == (PAGES, PAGES)
    assert (environment.started - started, environment.billed - billed) == (1, PAGES)


def test_the_job_of_a_terminated_run_is_cancelled(environment: Environment) -> None:
    """Celery does not tell the step: it looks itself."""
    dagster, billed = environment.dagster, environment.billed
    run = environment.launch()
    dagster.terminate(run)
    assert dagster.wait_status(run, {"CANCELED"}) == "CANCELED"
    dagster.wait_event(run, lambda event: "its run was terminated" in event["message"], 90)
    environment.site.release()
    assert run not in [each.run_id for each in dagster.materializations("held")]
    assert environment.billed - billed < PAGES
