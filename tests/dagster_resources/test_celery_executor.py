"""Tests of Dagster's Celery executor with the settings of docs/dagster_deployments.md.

A worker that waits for a paid job is killed, and the job lands once. Each worker has a home and a temporary directory
of its own; the dataset is in a bucket.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster_celery_lab import WORKERS, DagsterCeleryLab
from deployed_dagster import PAGES, deployed
from deployed_dagster import Environment as AnyEnvironment
from deployment_docs import executor

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(420)]

HERE = Path(__file__).parent
Environment = AnyEnvironment[DagsterCeleryLab]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, module_s3_root: str) -> Iterator[Environment]:
    home = tmp_path_factory.mktemp("dagster")
    definitions = HERE / "celery_definitions.py"
    with deployed(module_s3_root, lambda env: DagsterCeleryLab(home, definitions, env, executor("Celery"))) as found:
        yield found


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
