"""Fixtures of a metadata database, which is initialised once per test process, and of DAGs that run in it."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.sdk import DAG
    from airflow.sdk.types import DagRunProtocol
    from gated_site import GatedSite

    from weblake.testing import WeblakeService

# Modules that only these tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))
from airflow_home import AIRFLOW_PATCHES, template_database

runpy.run_path(str(AIRFLOW_PATCHES / "sitecustomize.py"))  # before `dag.test()` builds the API in this process

_HOME = Path(os.environ["AIRFLOW_HOME"])  # tests/conftest.py


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """An initialised metadata database."""
    (_HOME / "dags").mkdir(exist_ok=True)
    shutil.copyfile(template_database(), _HOME / "airflow.db")


@pytest.fixture
def weblake_connection(weblake_service: WeblakeService, monkeypatch: pytest.MonkeyPatch) -> WeblakeService:
    """The embedded service as the Airflow connection `weblake_default`."""
    connection = {"conn_type": "weblake", "host": weblake_service.url, "password": weblake_service.key}
    monkeypatch.setenv("AIRFLOW_CONN_WEBLAKE_DEFAULT", json.dumps(connection))
    return weblake_service


@pytest.fixture
def deferred_jobs(site: GatedSite, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Release the pages that the site holds as soon as a trigger waits for a job, and return the ids of these jobs."""
    from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger

    run, job_ids = WeblakeJobTrigger.run, list[str]()

    async def run_and_release(self: WeblakeJobTrigger) -> Any:
        job_ids.append(self.job_id)
        site.release()
        async for event in run(self):
            yield event

    monkeypatch.setattr(WeblakeJobTrigger, "run", run_and_release)
    return job_ids


@pytest.fixture
def run_dag(airflow_db: None) -> Iterator[Callable[..., DagRunProtocol]]:
    """Runs a DAG with `dag.test()`: `run_dag(dag, logical_date=…, run_conf=…)` returns the finished DAG run."""

    def run(dag: DAG, **kwargs: object) -> DagRunProtocol:
        from airflow_provider_weblake.features import dag_bag_in_database

        dag_bag_in_database(str(_HOME / "dags"), dag)
        return dag.test(**kwargs)  # type: ignore[arg-type]

    return run
