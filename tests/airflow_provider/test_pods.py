"""Test of a task in a pod that runs out of memory: each execution has an empty disk, and the dataset is on S3.

There is no cluster here: `pod_executor` starts each task as KubernetesExecutor's image does, in a process with a file
system of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from airflow_lab import AirflowLab
from gated_site import GatedSite
from live_files import walk
from supervised_processes import descendants, is_alive

import weblake
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

HERE = Path(__file__).parent
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

PAGES = 3
#: Each page of results has one document, and the second is not answered.
HALF = (
    {"match": {"path": "skip="}, "times": None, "effect": {"stall": True}},
    {"match": {}, "times": None, "effect": {"chunk_documents": 1}},
)


class PodLab(AirflowLab):
    """Airflow with an executor that starts a pod for each execution of a task."""

    def settings(self) -> dict[str, str]:
        """The usual ones, with the executor."""
        return {**super().settings(), "CORE__EXECUTOR": "pod_executor.PodExecutor"}

    def environment(self) -> dict[str, str]:
        """The usual one, in which the executor is found."""
        usual = super().environment()
        path = os.pathsep.join([str(HERE), usual["PYTHONPATH"]])
        return {**usual, "PYTHONPATH": path, "POD_LIST": str(self.home / "pods")}

    def pods(self) -> list[int]:
        """The processes of all pods so far, in order."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.home / "pods").read_text().split()]
        return []

    def scratch(self, pod: int) -> list[str]:
        """The files on a living pod's disk that are weblake's."""
        home = Path(f"/proc/{pod}/root{self.home}/tmp")
        return [str(path.relative_to(home)) for path in walk(home) if path.is_file()]


@dataclass
class Environment:
    """Airflow, the service, the site and the bucket."""

    airflow: PodLab
    service: LocalService
    site: GatedSite

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    @property
    def billed(self) -> int:
        return self.service.counts().get("pages_billed", 0)

    def has_request(self, text: str) -> bool:
        return any(each["method"] == "GET" and text in str(each["path"]) for each in self.service.requests())

    def until(self, what: str, done: Any, run: str) -> None:
        self.airflow.until(what, done, 240, lambda: self.airflow.describe("blocking", run))


@pytest.fixture(scope="module")
def _environment(tmp_path_factory: pytest.TempPathFactory, module_s3_root: str) -> Iterator[Environment]:
    key, site = f"canary-{secrets.token_hex(16)}", GatedSite()
    try:
        with LocalService(keys=[ServiceKey(key)], allow_private=True) as service:
            connection = {"conn_type": "weblake", "host": service.url, "password": key}
            env = {"AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection)}
            with PodLab(tmp_path_factory.mktemp("airflow"), HERE / "e2e_dags", env) as lab:
                lab.wait_for_dags({"blocking"})
                yield Environment(lab, service, site)
                site.release()
    finally:
        site.close()


@pytest.fixture
def environment(_environment: Environment) -> Iterator[Environment]:
    _environment.site.release()
    _environment.service.reset()
    yield _environment
    _environment.service.faults()
    _environment.site.release()
    for run in _environment.airflow.api("GET", "/dags/~/dagRuns?state=running&limit=10")[
        "dag_runs"
    ]:  # of a failed test
        _environment.airflow.mark_run(run["dag_id"], run["dag_run_id"], "failed")
    for pod in _environment.airflow.pods():
        run_out_of_memory(_environment, pod)


def run_out_of_memory(environment: Environment, pod: int) -> None:
    """SIGKILL to all processes of the pod at once, if it lives."""
    for pid in (pod, *descendants(pod)) if is_alive(pod) else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    environment.airflow.until("the end of the pod", lambda: not is_alive(pod))


def test_the_next_pod_lands_the_job_of_one_that_is_gone(environment: Environment, module_s3_root: str) -> None:
    root = f"{module_s3_root}/{secrets.token_hex(4)}"
    urls = [*environment.site.pages(PAGES - 1), *environment.site.held(1)]
    environment.service.faults(*HALF)
    environment.site.release()
    before = len(environment.airflow.pods())
    run = environment.airflow.trigger("blocking", {"urls": urls, "to": root})
    environment.until("the pod to read the second page of results", lambda: environment.has_request("skip="), run)
    (first,) = environment.airflow.pods()[before:]
    job = str(environment.airflow.xcom("blocking", run, "land", "job_id"))
    environment.until("a file in the pod's scratch", lambda: environment.airflow.scratch(first), run)
    run_out_of_memory(environment, first)
    environment.service.faults()
    environment.site.release()
    assert environment.airflow.wait_run("blocking", run) == "success", environment.airflow.describe("blocking", run)
    receipt = environment.airflow.xcom("blocking", run, "land")
    assert (receipt["job_id"], receipt["stored"], receipt["complete"]) == (job, PAGES, True)
    assert (environment.started, environment.billed) == (1, PAGES)
    _, second = environment.airflow.pods()[before:]
    assert second != first
    assert sorted(weblake.read(root, columns=["url"]).to_table()["url"].to_pylist()) == sorted(urls)
    (file,) = parquet_files(root)
    assert receipt["load_id"] in file


def parquet_files(root: str) -> list[str]:
    """All Parquet files below a root."""
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    found = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    return [each["Key"] for each in found if each["Key"].endswith(".parquet")]
