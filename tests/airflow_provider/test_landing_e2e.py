"""Tests of the promises in a real Airflow: scheduler, triggerer, DAG processor, API server and workers as processes.

Every test counts the starts at the service, because these are paid for.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow_lab import AirflowLab
from catalogue import proves
from gated_site import GatedSite
from held_requests import held_requests
from secret_search import in_files

from airflow_provider_weblake.features import TASKS_IN_TRIGGERER
from weblake import Client
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

__all__ = ["held_requests"]

HERE = Path(__file__).parent
pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]
KILLED_TASKS_ARE_RETRIED = not version("apache-airflow").startswith("3.0.")
DAGS = {"deferred", "blocking", "late", "late_partial", "short_run", "watching"}


@dataclass
class Environment:
    """Airflow, the service and the site, and where this test lands."""

    airflow: AirflowLab
    service: LocalService
    site: GatedSite
    roots: Path
    root: Path
    #: Ids of jobs that were landed: what the search for the key must be able to find, if it can find anything.
    landed: list[str] = field(default_factory=list)
    #: How many requests the service had had, and since when it is so many.
    last: tuple[int, float] = (-1, 0.0)
    #: How many runs had failed before this test.
    failed: int = 0

    def run(self, dag_id: str, urls: list[str], **conf: Any) -> str:
        return self.airflow.trigger(dag_id, {"urls": urls, "to": str(self.root), **conf})

    def deferred(self, dag_id: str, run: str) -> str:
        """Waits until the triggerer asks about the task's job, and returns its id.

        Between the deferral and that moment nobody is there to hear of a kill: that is Airflow's own gap.
        """
        self.airflow.wait_task(dag_id, run, "land", {"deferred"})
        job = self.job(dag_id, run)
        self.asks(job)
        return job

    def asks(self, job: str) -> None:
        """Waits until the triggerer, or a worker that waits itself, asks about the job once more."""
        before = self.request_count("GET", job)  # also the worker's own
        self.poll(lambda: self.request_count("GET", job) > before, "a poll of the job")

    def job(self, dag_id: str, run: str) -> str:
        """Waits until the task has reported the job that it started, and returns its id."""
        self.poll(lambda: self.airflow.has_xcom(dag_id, run, "land", "job_id"), "the task to report its job")
        return str(self.airflow.xcom(dag_id, run, "land", "job_id"))

    def request_count(self, method: str, path: str) -> int:
        requests = self.service.requests()
        return sum(1 for each in requests if each["method"] == method and str(each["path"]).endswith(path))

    def status(self, job_id: str) -> str:
        with Client(self.service.url, self.service.key) as client:
            return str(client.get_batch_scrape(job_id).status)

    def poll(self, done: Callable[[], object], what: str, timeout: float = 240) -> None:
        self.airflow.until(what, done, timeout)  # which starts a scheduler again that its own race has ended

    def end_all_runs(self) -> None:
        for state in ("running", "queued"):
            for run in self.airflow.api("GET", f"/dags/~/dagRuns?state={state}&limit=100")["dag_runs"]:
                self.airflow.mark_run(run["dag_id"], run["dag_run_id"], "failed")
        busy = "/dags/~/dagRuns/~/taskInstances?state=running&state=queued&state=restarting&state=deferred&limit=1"
        self.poll(lambda: not self.airflow.api("GET", busy)["total_entries"], "all tasks to end")
        # Tasks that succeeded have said so themselves, and ask no more.
        if self.failed_runs() != self.failed:
            self.poll(self.is_quiet, "processes of ended tasks to leave the service alone")

    def outlives_a_kill(self, dag_id: str, run: str) -> None:
        """Waits until a run has succeeded whose task's process was killed.

        Airflow 3.0 fails such a task without a retry, and a person has to clear it.
        """
        state = self.airflow.wait_run(dag_id, run)
        if state == "failed" and not KILLED_TASKS_ARE_RETRIED:
            self.airflow.clear(dag_id, run, ["land"])
            state = self.airflow.wait_run(dag_id, run, {"success"})
        assert state == "success"

    def failed_runs(self) -> int:
        return int(self.airflow.api("GET", "/dags/~/dagRuns?state=failed&limit=1")["total_entries"])

    def is_quiet(self) -> bool:
        """Return whether the service has received no request for longer than the longest pause between polls."""
        now = (len(self.service.requests()), time.monotonic())
        if self.last[0] != now[0]:
            self.last = now
        return now[1] - self.last[1] > 5.0

    def receipt(self, dag_id: str, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.airflow.xcom(dag_id, run, "land")
        self.landed.append(found["job_id"])
        return found

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    @property
    def files(self) -> list[str]:
        return sorted(path.name[:16] for path in self.root.glob("documents/**/*.parquet"))

    @property
    def urls(self) -> list[str]:
        rows = duckdb.sql(f"select url from '{self.root}/documents/**/*.parquet' order by url").fetchall()
        return [row[0] for row in rows]


@pytest.fixture(scope="module")
def canary() -> str:
    return f"canary-{secrets.token_hex(16)}"


@pytest.fixture(scope="module")
def _environment(tmp_path_factory: pytest.TempPathFactory, canary: str) -> Iterator[Environment]:
    home = tmp_path_factory.mktemp("airflow")
    roots = tmp_path_factory.mktemp("lakes")
    site = GatedSite()
    with LocalService(keys=[ServiceKey(canary)], allow_private=True) as service:
        connection = {"conn_type": "weblake", "host": service.url, "password": canary}
        with AirflowLab(home, HERE / "e2e_dags", {"AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection)}) as lab:
            lab.wait_for_dags(DAGS)
            environment = Environment(lab, service, site, roots, roots)
            yield environment
            site.release()
            if environment.landed:
                # Whatever ran: every log, every row of the metadata, every XCom, every landed file and record.
                places = lab.grep(environment.landed[-1])
                assert any("xcom" in place for place in places), "the search finds XComs"
                assert any(".log" in place for place in places), "the search finds logs"
                assert lab.grep(canary) == []
                assert in_files([roots], canary) == []
    site.close()


@pytest.fixture
def environment(_environment: Environment) -> Iterator[Environment]:
    _environment.site.release()
    _environment.service.reset()
    _environment.failed = _environment.failed_runs()
    _environment.root = Path(tempfile.mkdtemp(dir=_environment.roots))
    yield _environment
    _environment.service.faults()
    _environment.site.release()
    _environment.end_all_runs()  # what a failed test left behind must not start a job in the next one


@proves(
    "4.2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='context["ti"].xcom_push(key=JOB_URL_KEY, value=url)',
    becomes='context["ti"].xcom_push(key=JOB_URL_KEY, value=f"{url}?key={self.hook.endpoint().api_key}")',
)
@proves(
    "O2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, occasion, records_return=True)',
    becomes='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, "")',
)
def test_o2_a_clear_after_success_pays_again_and_replaces_the_load(environment: Environment, canary: str) -> None:
    """Nothing that Airflow keeps holds the key: while the task waits, a trigger with its arguments, and afterwards."""
    run = environment.run("deferred", environment.site.held(2))
    job = environment.deferred("deferred", run)
    assert environment.airflow.grep(job), "the search finds the trigger and what was pushed"
    assert environment.airflow.grep(canary) == []
    environment.site.release()
    assert environment.airflow.wait_run("deferred", run) == "success"
    first = environment.receipt("deferred", run)
    assert environment.airflow.grep(canary) == []
    assert in_files([environment.roots], canary) == []
    environment.airflow.clear("deferred", run, ["land"])
    environment.poll(lambda: environment.started == 2, "a second job")
    assert environment.airflow.wait_run("deferred", run) == "success"
    second = environment.receipt("deferred", run)
    assert environment.files == [second["load_id"]] != [first["load_id"]]
    assert environment.started == 2


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="await asyncio.shield(killing)",
    becomes="killing.cancel()",
)
@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/operators/killing.py",
    line="self._cancel(f\"its task is {state or 'cleared'}\")",
    becomes="pass",
)
def test_o3_a_mark_during_the_wait_cancels_the_job(environment: Environment) -> None:
    """One task waits in the triggerer, another one in its worker, and a sensor watches the job of a third one."""
    urls, runs, jobs = environment.site.held(2), {}, {}
    for dag_id in ("deferred", "blocking"):
        runs[dag_id] = environment.run(dag_id, urls)
    with Client(environment.service.url, environment.service.key) as client:
        watched = str(client.start_batch_scrape(environment.site.held(1), timeout=240_000).id)
    watching, failed = (environment.airflow.trigger("watching", {"job_id": watched}) for _ in range(2))
    for run in (watching, failed):
        environment.airflow.wait_task("watching", run, "watch", {"deferred"})
    environment.asks(watched)
    jobs["deferred"] = environment.deferred("deferred", runs["deferred"])
    jobs["blocking"] = environment.job("blocking", runs["blocking"])
    environment.asks(jobs["blocking"])

    environment.airflow.mark_task("deferred", runs["deferred"], "land", "success")
    environment.airflow.mark_task("blocking", runs["blocking"], "land", "failed")
    environment.airflow.mark_task("watching", failed, "watch", "failed")
    for dag_id, job in jobs.items():
        environment.poll(lambda job=job: environment.status(job) == "cancelled", f"the job of {dag_id} to be cancelled")
    assert environment.airflow.wait_run("deferred", runs["deferred"]) == "success"
    assert environment.airflow.wait_run("blocking", runs["blocking"]) == "failed"
    assert environment.airflow.wait_run("watching", failed) == "failed"
    assert (environment.files, environment.started) == ([], 3)

    environment.site.release()
    assert environment.airflow.wait_run("watching", watching) == "success"
    assert environment.request_count("DELETE", watched) == 0
    task = environment.airflow.task("watching", watching, "watch")
    assert (task["pid"] is None) == TASKS_IN_TRIGGERER, "no worker ever ran it, since Airflow 3.3"
    assert environment.airflow.xcom("watching", watching, "watch")["job_id"] == watched


def is_alive(pid: int) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/operators/killing.py",
    line="if state in CANCELLING_STATES:",
    becomes="if True:",
)
def test_a_worker_that_is_shut_down_leaves_the_job_to_the_retry(environment: Environment) -> None:
    run = environment.run("blocking", environment.site.held(2))
    pid = environment.airflow.wait_worker("blocking", run, "land")
    job = environment.job("blocking", run)
    environment.asks(job)
    os.kill(pid, signal.SIGTERM)  # as a node that drains sends it
    environment.poll(
        lambda: "and a retry lands it" in environment.airflow.log("blocking", run, "land"), "the operator to say so"
    )
    os.kill(pid, signal.SIGKILL)
    environment.site.release()
    environment.outlives_a_kill("blocking", run)
    assert environment.receipt("blocking", run)["job_id"] == job
    assert environment.started == 1


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="deadline=ends_at,",
    becomes="deadline=None,",
)
def test_a_time_limit_cancels_the_job(environment: Environment) -> None:
    """The deadline of a task, with and without `allow_partial`, and the time limit of a run: they wait together."""
    runs, jobs = {}, {}
    for dag_id in ("late", "late_partial", "short_run"):
        urls = [*environment.site.pages(1), *environment.site.held(1)]
        runs[dag_id] = environment.run(dag_id, urls, to=str(environment.root / dag_id))
        jobs[dag_id] = environment.job(dag_id, runs[dag_id])
    for dag_id, state in {"late": "failed", "late_partial": "success"}.items():
        assert environment.airflow.wait_run(dag_id, runs[dag_id]) == state
        assert environment.status(jobs[dag_id]) == "cancelled"
    environment.airflow.wait_task("short_run", runs["short_run"], "land", {"deferred"})
    environment.airflow.start_earlier("short_run", runs["short_run"], 2 * 3600)
    environment.poll(lambda: environment.status(jobs["short_run"]) == "cancelled", "the job to be cancelled")
    assert environment.airflow.wait_run("short_run", runs["short_run"]) == "failed"
    assert environment.started == 3

    task = environment.airflow.task("late", runs["late"], "land")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    for text in ("The time limit passed", "Clear the task, with allow_partial=True, to publish it"):
        # Airflow writes the last lines of a task's log after it has stored its state.
        environment.poll(lambda text=text: text in environment.airflow.log("late", runs["late"], "land"), text)
    assert list((environment.root / "late").glob("_weblake/refused/*.documents.parquet"))

    receipt = environment.receipt("late_partial", runs["late_partial"])
    assert (receipt["stored"], receipt["complete"], receipt["status"]) == (1, False, "cancelled")
    assert [path.parts[len(environment.root.parts)] for path in environment.root.glob("*/documents/**/*.parquet")] == [
        "late_partial"
    ]


def test_o4_a_triggerer_that_is_restarted_cancels_nothing(environment: Environment) -> None:
    run = environment.run("deferred", environment.site.held(2))
    job = environment.deferred("deferred", run)
    environment.airflow.restart_triggerer()
    assert environment.status(job) == "scraping"
    environment.site.release()
    assert environment.airflow.wait_run("deferred", run) == "success"
    assert environment.receipt("deferred", run)["job_id"] == job
    assert (len(environment.files), environment.started) == (1, 1)


@proves(
    "O1",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, occasion, records_return=True)',
    becomes='("airflow", ti.task_id, ti.try_number, map_index), ti.run_id, occasion, records_return=True)',
)
def test_o1_a_worker_that_is_killed_while_its_start_is_answered_pays_once(
    environment: Environment, held_requests: threading.Event
) -> None:
    start = {"method": "POST", "path": "/v2/batch/scrape$"}
    environment.service.faults({"match": start, "times": None, "effect": {"latency_ms": 1}})
    urls = environment.site.pages(2)
    run = environment.run("deferred", urls)
    environment.poll(lambda: environment.request_count("POST", "/v2/batch/scrape") > 0, "the worker to send its start")
    os.kill(environment.airflow.wait_worker("deferred", run, "land"), signal.SIGKILL)
    held_requests.set()
    environment.outlives_a_kill("deferred", run)
    assert environment.airflow.task("deferred", run, "land")["try_number"] == 2
    assert environment.receipt("deferred", run)["stored"] == 2
    assert environment.urls == urls
    assert (len(environment.files), environment.started) == (1, 1)


@proves(
    "O5",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, occasion, records_return=True)',
    becomes='("airflow", ti.task_id, ti.try_number, map_index), ti.run_id, occasion, records_return=True)',
)
def test_o5_a_second_worker_that_runs_by_mistake_changes_nothing(environment: Environment) -> None:
    run = environment.run("blocking", environment.site.held(2))
    pid = environment.airflow.wait_worker("blocking", run, "land")
    environment.asks(environment.job("blocking", run))
    supervisor = environment.airflow.supervisor_pid("blocking", run, "land")
    os.kill(
        supervisor, signal.SIGKILL
    )  # Airflow gets no heartbeat of the worker any more, and the worker goes on waiting
    try:
        environment.airflow.wait_task("blocking", run, "land", {"running"}, try_number=2)
        assert is_alive(pid), "the first worker is there and waits, too"
        environment.site.release()
        assert environment.airflow.wait_run("blocking", run) == "success"
        environment.poll(lambda: not is_alive(pid), "the first worker to end by itself")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    environment.receipt("blocking", run)
    assert (len(environment.files), environment.started) == (1, 1)
