"""Tests of the promises in a real Airflow: scheduler, triggerer, DAG processor, API server and workers as processes.

Every test counts the starts at the service, because these are paid for. Under `system` a worker is killed at each
moment in one kind of task; `nightly` has the other kind.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import tempfile
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
from secret_search import in_files

from airflow_provider_weblake.features import RETRY_POLICIES, TASKS_IN_TRIGGERER
from weblake import Client, tables
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

HERE = Path(__file__).parent
pytestmark = [pytest.mark.system, pytest.mark.timeout(420)]
KILLED_TASKS_ARE_RETRIED = not version("apache-airflow").startswith("3.0.")
DAGS = {
    *("deferred", "blocking", "late", "late_partial", "short_run", "mapped", "apart", "watching"),
    *("consumer", "synced"),
}


@dataclass
class World:
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
        self.triggerer_asks(job)
        return job

    def triggerer_asks(self, job: str) -> None:
        before = self.asked("GET", job)  # the worker's own looks
        self.poll(lambda: self.asked("GET", job) > before, "the triggerer to ask about the job")

    def job(self, dag_id: str, run: str) -> str:
        return str(self.airflow.xcom(dag_id, run, "land", "job_id"))

    def triggers(self, dag_id: str, run: str) -> str:
        """What was logged of the task's first two tries."""
        return "".join(self.airflow.log(dag_id, run, "land", number) for number in (1, 2))

    def has(self, text: str) -> bool:
        return any(text in str(request["path"]) for request in self.service.requests())

    def asked(self, method: str, path: str) -> int:
        requests = self.service.requests()
        return sum(1 for each in requests if each["method"] == method and str(each["path"]).endswith(path))

    def status(self, job_id: str) -> str:
        with Client(self.service.url, self.service.key) as client:
            return str(client.get_batch_scrape(job_id).status)

    def poll(self, done: Callable[[], object], what: str, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s"
            time.sleep(0.1)

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
        """Whether nobody has asked the service for longer than anybody pauses between two polls."""
        now = (len(self.service.requests()), time.monotonic())
        if self.last[0] != now[0]:
            self.last = now
        return now[1] - self.last[1] > 2.0

    def receipt(self, dag_id: str, run: str, map_index: int = -1) -> dict[str, Any]:
        found: dict[str, Any] = self.airflow.xcom(dag_id, run, "land", map_index=map_index)
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
def _world(tmp_path_factory: pytest.TempPathFactory, canary: str) -> Iterator[World]:
    home = tmp_path_factory.mktemp("airflow")
    roots = tmp_path_factory.mktemp("lakes")
    site = GatedSite()
    with LocalService(keys=[ServiceKey(canary)], allow_private=True) as service:
        connection = {"conn_type": "weblake", "host": service.url, "password": canary}
        # A catalog without a server: nothing listens on port 9 (discard).
        down = {"conn_type": "iceberg", "host": "http://127.0.0.1:9", "login": "client", "password": canary}
        env = {"AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection), "AIRFLOW_CONN_DOWN": json.dumps(down)}
        with AirflowLab(home, HERE / "e2e_dags", env) as lab:
            lab.wait_for_dags(DAGS)
            world = World(lab, service, site, roots, roots)
            yield world
            site.release()
            if world.landed:
                # Whatever ran: every log, every row of the metadata, every XCom, every landed file and record.
                places = lab.grep(world.landed[-1])
                assert any("xcom" in place for place in places), "the search finds XComs"
                assert any(".log" in place for place in places), "the search finds logs"
                assert lab.grep(canary) == []
                assert in_files([roots], canary) == []
    site.close()


@pytest.fixture
def world(_world: World) -> Iterator[World]:
    _world.site.release()
    _world.service.reset()
    _world.failed = _world.failed_runs()
    _world.root = Path(tempfile.mkdtemp(dir=_world.roots))
    yield _world
    _world.service.faults()
    _world.site.release()
    _world.end_all_runs()  # what a failed test left behind must not start a job in the next one


def test_a_deferred_batch_lands(world: World) -> None:
    urls = [*world.site.pages(3), *world.site.held(1)]
    run = world.run("deferred", urls)
    world.deferred("deferred", run)
    world.site.release()
    assert world.airflow.wait_run("deferred", run) == "success"
    receipt = world.receipt("deferred", run)
    assert (receipt["stored"], receipt["complete"]) == (4, True)
    assert world.urls == sorted(urls)
    assert world.started == 1


@proves(
    "4.2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='context["ti"].xcom_push(key=JOB_URL_KEY, value=url)',
    becomes='context["ti"].xcom_push(key=JOB_URL_KEY, value=f"{url}?key={self.hook.endpoint().api_key}")',
)
def test_s1_nothing_that_airflow_keeps_of_a_deferred_task_holds_the_key(world: World, canary: str) -> None:
    """While it waits there is a trigger with its arguments; what a whole run leaves is searched when all is over."""
    run = world.run("deferred", world.site.held(1))
    job = world.deferred("deferred", run)
    assert world.airflow.grep(job), "the search finds the trigger and what was pushed"
    assert world.airflow.grep(canary) == []
    world.site.release()
    assert world.airflow.wait_run("deferred", run) == "success"
    world.receipt("deferred", run)
    assert world.airflow.grep(canary) == []
    assert in_files([world.roots], canary) == []


def test_tables_are_synced_after_a_deferred_landing_also_if_one_fails(world: World, canary: str) -> None:
    first = world.run("synced", world.site.pages(1))
    assert world.airflow.wait_run("synced", first) == "success"
    assert "tables" not in world.receipt("synced", first), "none are registered"
    catalog = {"type": "sql", "uri": f"sqlite:///{world.root}/catalog.db", "warehouse": f"file://{world.root}/tables"}
    tables.add(world.root, "delta")
    tables.add(world.root, "iceberg", catalog="lake", identifier="web.documents", table_options=catalog)
    second = world.run("synced", world.site.pages(2))
    assert world.airflow.wait_run("synced", second) == "success"
    receipt = world.receipt("synced", second)
    assert [(each["format"], each["added"]) for each in receipt["tables"]] == [("delta", 2)]
    assert "Iceberg catalog of the connection 'down'" in receipt["tables_error"]
    assert tables.status(world.root, format="delta")[0].in_step
    assert "Sync them later with WeblakeTableSyncOperator" in world.triggers("synced", second)
    (told,) = [
        event["extra"]
        for event in world.airflow.api("GET", "/assets/events?limit=100")["asset_events"]
        if event["source_run_id"] == second
    ]
    assert told["tables_error"] == receipt["tables_error"]
    assert world.airflow.grep(canary) == []


def test_o2_a_clear_during_the_wait_cancels_the_job_and_pays_again_or_keeps_it(world: World) -> None:
    """Which of the two is Airflow's: it stops the trigger, and runs the task again, at about the same moment."""
    run = world.run("deferred", world.site.held(2))
    first = world.deferred("deferred", run)
    world.airflow.clear("deferred", run, ["land"])
    world.poll(
        lambda: world.started == 2 or f"{first} goes on" in world.triggers("deferred", run), "one or the other", 120
    )
    assert (world.status(first) == "cancelled") == (world.started == 2)
    world.site.release()
    assert world.airflow.wait_run("deferred", run) == "success"
    assert (world.receipt("deferred", run)["job_id"] == first) == (world.started == 1)
    assert len(world.files) == 1


@proves(
    "O2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, f"max_tries={ti.max_tries}")',
    becomes='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, "")',
)
def test_o2_a_clear_after_success_pays_again_and_replaces_the_load(world: World) -> None:
    run = world.run("deferred", world.site.pages(2))
    assert world.airflow.wait_run("deferred", run) == "success"
    first = world.receipt("deferred", run)
    world.airflow.clear("deferred", run, ["land"])
    world.poll(lambda: world.started == 2, "a second job")
    assert world.airflow.wait_run("deferred", run) == "success"
    second = world.receipt("deferred", run)
    assert world.files == [second["load_id"]] != [first["load_id"]]
    assert world.started == 2


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="await asyncio.shield(killing)",
    becomes="killing.cancel()",
    case="success",
)
@pytest.mark.parametrize("state", ["failed", "success"])
def test_o3_a_mark_during_the_wait_cancels_the_job(world: World, state: str) -> None:
    run = world.run("deferred", world.site.held(2))
    job = world.deferred("deferred", run)
    world.airflow.mark_task("deferred", run, "land", state)
    world.poll(lambda: world.status(job) == "cancelled", "the job to be cancelled")
    assert world.airflow.wait_run("deferred", run) == state
    assert world.files == []
    assert world.started == 1


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/operators/killing.py",
    line="self._cancel(f\"its task is {state or 'cleared'}\")",
    becomes="pass",
)
def test_o3_a_mark_while_a_worker_waits_cancels_the_job(world: World) -> None:
    run = world.run("blocking", world.site.held(2))
    world.poll(lambda: world.started == 1, "the job")
    world.airflow.wait_worker("blocking", run, "land")
    world.poll(lambda: world.has(job_path(world)), "the worker to wait")
    job = world.job("blocking", run)
    world.airflow.mark_task("blocking", run, "land", "failed")
    world.poll(lambda: world.status(job) == "cancelled", "the job to be cancelled")
    assert world.airflow.wait_run("blocking", run) == "failed"


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def job_path(world: World) -> str:
    """The status address of the only job that was asked about; something that is nowhere before."""
    paths = [str(each["path"]) for each in world.service.requests() if each["method"] == "GET"]
    return next((path for path in paths if path.startswith("/v2/batch/scrape/")), "nowhere")


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/operators/killing.py",
    line="if state in UNWANTED:",
    becomes="if True:",
)
def test_a_worker_that_is_shut_down_leaves_the_job_to_the_retry(world: World) -> None:
    run = world.run("blocking", world.site.held(2))
    pid = world.airflow.wait_worker("blocking", run, "land")
    world.poll(lambda: world.has(job_path(world)), "the worker to wait")
    job = world.job("blocking", run)
    os.kill(pid, signal.SIGTERM)  # as a node that drains sends it
    world.poll(lambda: "and a retry lands it" in world.airflow.log("blocking", run, "land"), "the operator to say so")
    os.kill(pid, signal.SIGKILL)
    world.site.release()
    world.outlives_a_kill("blocking", run)
    assert world.receipt("blocking", run)["job_id"] == job
    assert world.started == 1


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="deadline=ends_at,",
    becomes="deadline=None,",
)
def test_a_time_limit_cancels_the_job(world: World) -> None:
    """The deadline of a task, with and without `allow_partial`, and the time limit of a run: they wait together."""
    runs, jobs = {}, {}
    for dag_id in ("late", "late_partial", "short_run"):
        urls = [*world.site.pages(1), *world.site.held(1)]
        runs[dag_id] = world.run(dag_id, urls, to=str(world.root / dag_id))
        jobs[dag_id] = world.deferred(dag_id, runs[dag_id])
    for dag_id, state in {"late": "failed", "late_partial": "success"}.items():
        assert world.airflow.wait_run(dag_id, runs[dag_id]) == state
        assert world.status(jobs[dag_id]) == "cancelled"
    world.poll(lambda: world.status(jobs["short_run"]) == "cancelled", "the job to be cancelled", timeout=90)
    assert world.airflow.wait_run("short_run", runs["short_run"]) == "failed"
    assert world.started == 3

    task = world.airflow.task("late", runs["late"], "land")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    log = world.airflow.log("late", runs["late"], "land")
    assert "The time limit passed" in log
    assert "allow_partial=True publishes it" in log
    assert list((world.root / "late").glob("_weblake/refused/*.documents.parquet"))

    receipt = world.receipt("late_partial", runs["late_partial"])
    assert (receipt["stored"], receipt["complete"], receipt["status"]) == (1, False, "cancelled")
    assert [path.parts[len(world.root.parts)] for path in world.root.glob("*/documents/**/*.parquet")] == [
        "late_partial"
    ]


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/retry_policy.py",
    line='return RetryDecision.fail(reason=f"{_name(error)}: a retry would end the same way")',
    becomes="return RetryDecision.default()",
)
def test_without_credits_there_is_no_retry(world: World) -> None:
    body = {"success": False, "error": "Payment required"}
    world.service.faults({"match": {"method": "POST"}, "times": None, "effect": {"status": 402, "body": body}})
    run = world.run("deferred", world.site.pages(2))
    assert world.airflow.wait_run("deferred", run) == "failed"
    assert world.airflow.task("deferred", run, "land")["try_number"] == 1
    assert world.asked("POST", "/v2/batch/scrape") == 1


def test_a_busy_service_is_requested_again_after_its_retry_after(world: World) -> None:
    body = {"success": False, "error": "Rate limit exceeded"}
    busy = {"status": 429, "body": body, "retry_after": 100}
    world.service.faults({"match": {"path": "/v2/team/activity"}, "times": 1, "effect": busy})
    run = world.run("deferred", world.site.pages(2))
    # Before Airflow 3.3 it waits in the triggerer, and uses up none of its tries.
    world.airflow.wait_task("deferred", run, "land", {"up_for_retry" if RETRY_POLICIES else "deferred"})
    said = re.search(r"again in (\d+) s", world.airflow.log("deferred", run, "land"))
    assert said, "the policy says when"
    assert 101 <= int(said[1]) <= 126, "the time that the service named, and up to a quarter more"
    world.airflow.mark_run("deferred", run, "failed")


@pytest.mark.nightly  # a shorter pause is that of a single call
def test_a_worker_that_waits_for_a_busy_service_lands_afterwards(world: World) -> None:
    busy = {"status": 429, "body": {"success": False, "error": "Rate limit exceeded"}, "retry_after": 62}
    world.service.faults({"match": {"path": "/v2/team/activity"}, "times": 1, "effect": busy})
    urls = world.site.pages(2)
    run = world.run("blocking", urls)
    assert world.airflow.wait_run("blocking", run, timeout=180) == "success"
    assert "Retry policy decision" in world.airflow.log("blocking", run, "land")
    assert world.airflow.task("blocking", run, "land")["try_number"] == (2 if RETRY_POLICIES else 1)
    assert world.urls == urls
    assert (len(world.files), world.started) == (1, 1)


def test_o4_a_triggerer_that_is_restarted_cancels_nothing(world: World) -> None:
    run = world.run("deferred", world.site.held(2))
    job = world.deferred("deferred", run)
    world.airflow.restart_triggerer()
    assert world.status(job) == "scraping"
    world.airflow.kill_triggerer()
    world.airflow.start_triggerer()
    assert world.status(job) == "scraping"
    world.site.release()
    assert world.airflow.wait_run("deferred", run) == "success"
    assert world.receipt("deferred", run)["job_id"] == job
    assert (len(world.files), world.started) == (1, 1)


@proves(
    "O4",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="return state in GOES_ON",
    becomes="return False",
)
def test_o4_a_triggerer_that_hung_cancels_no_job_that_another_has_taken_over(world: World) -> None:
    run = world.run("deferred", world.site.held(2))
    job = world.deferred("deferred", run)
    with world.airflow.hung_triggerer():
        world.airflow.start_second_triggerer()
        world.triggerer_asks(job)
    try:
        told = f"{job} goes on"
        back = lambda: told in world.triggers("deferred", run) or world.asked("DELETE", job)  # noqa: E731
        world.poll(back, "the first triggerer to come back", timeout=90)
        assert world.asked("DELETE", job) == 0
        world.site.release()
        assert world.airflow.wait_run("deferred", run) == "success"
    finally:
        world.airflow.end_second_triggerer()
    assert world.asked("DELETE", job) == 0, "it was cancelled after the first triggerer came back"
    assert world.receipt("deferred", run)["job_id"] == job
    assert (len(world.files), world.started) == (1, 1)


#: Where a worker is killed: the fault that holds it there, and how a test sees that it has come there.
MOMENTS: dict[str, tuple[dict[str, object] | None, tuple[str, str]]] = {
    "before the start": (
        {"match": {"path": "/v2/team/activity"}, "effect": {"latency_ms": 20_000}},
        ("GET", "/v2/team/activity?limit=1"),
    ),
    "while the start is answered": (
        {"match": {"method": "POST", "path": "/v2/batch/scrape$"}, "effect": {"latency_ms": 3_000}},
        ("POST", "/v2/batch/scrape"),
    ),
    "while it lands": ({"match": {"path": "/errors$"}, "effect": {"stall": True}}, ("GET", "/errors")),
}


@proves(
    "O1",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, f"max_tries={ti.max_tries}")',
    becomes='("airflow", ti.task_id, ti.try_number, map_index), ti.run_id, f"max_tries={ti.max_tries}")',
    case="blocking-while it lands",
)
@pytest.mark.parametrize(
    ("dag_id", "moment"),
    [
        ("deferred", "before the start"),
        ("deferred", "while the start is answered"),
        ("blocking", "while it lands"),
        pytest.param("blocking", "before the start", marks=pytest.mark.nightly),
        pytest.param("blocking", "while the start is answered", marks=pytest.mark.nightly),
        pytest.param("deferred", "while it lands", marks=pytest.mark.nightly),
    ],
)
def test_o1_a_worker_that_is_killed_pays_once(world: World, dag_id: str, moment: str) -> None:
    fault, (method, path) = MOMENTS[moment]
    world.service.faults(fault)
    urls = world.site.pages(2)
    run = world.run(dag_id, urls)
    world.poll(lambda: world.asked(method, path) > 0, f"the worker to come to {moment!r}")
    os.kill(world.airflow.wait_worker(dag_id, run, "land"), signal.SIGKILL)
    world.outlives_a_kill(dag_id, run)
    assert world.airflow.task(dag_id, run, "land")["try_number"] == 2
    assert world.receipt(dag_id, run)["stored"] == 2
    assert world.urls == urls
    assert (len(world.files), world.started) == (1, 1)


@proves(
    "O5",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, f"max_tries={ti.max_tries}")',
    becomes='("airflow", ti.task_id, ti.try_number, map_index), ti.run_id, f"max_tries={ti.max_tries}")',
)
def test_o5_a_second_worker_that_runs_by_mistake_changes_nothing(world: World) -> None:
    run = world.run("blocking", world.site.held(2))
    pid = world.airflow.wait_worker("blocking", run, "land")
    world.poll(lambda: world.has(job_path(world)), "the worker to wait")
    supervisor = world.airflow.supervisor_pid("blocking", run, "land")
    os.kill(supervisor, signal.SIGKILL)  # nobody tells Airflow any more that the worker lives, and it goes on waiting
    try:
        world.airflow.wait_task("blocking", run, "land", {"running"}, try_number=2, timeout=120)
        assert lives(pid), "the first worker is there and waits, too"
        world.site.release()
        assert world.airflow.wait_run("blocking", run) == "success"
        world.poll(lambda: not lives(pid), "the first worker to end by itself")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    world.receipt("blocking", run)
    assert (len(world.files), world.started) == (1, 1)


def test_mapped_tasks_land_one_load_each(world: World) -> None:
    lists = [world.site.pages(2), world.site.pages(1, first=2), world.site.held(1)]
    run = world.airflow.trigger("mapped", {"lists": lists, "to": str(world.root)})

    def waits() -> bool:
        return any((each["map_index"], each["state"]) == (2, "deferred") for each in world.airflow.tasks("mapped", run))

    world.poll(waits, "the third task to wait")
    world.site.release()
    assert world.airflow.wait_run("mapped", run) == "success"
    assert [world.receipt("mapped", run, index)["stored"] for index in range(3)] == [2, 1, 1]
    assert (len(world.files), world.started) == (3, 3)


def test_a_job_is_started_watched_landed_and_consumed_by_another_dag(world: World) -> None:
    world.airflow.unpause("consumer")
    before = {run["dag_run_id"] for run in world.airflow.api("GET", "/dags/consumer/dagRuns")["dag_runs"]}
    run = world.run("apart", world.site.pages(3))
    assert world.airflow.wait_run("apart", run) == "success"
    receipt = world.receipt("apart", run)

    def consumed() -> list[str]:
        runs = world.airflow.api("GET", "/dags/consumer/dagRuns")["dag_runs"]
        return [each["dag_run_id"] for each in runs if each["dag_run_id"] not in before]

    (consumer,) = world.airflow.until("the consumer", consumed, 60)
    assert world.airflow.wait_run("consumer", consumer) == "success"
    extra = world.airflow.xcom("consumer", consumer, "read")
    assert (extra["load_id"], extra["stored"]) == (receipt["load_id"], 3)
    assert world.started == 1


def test_a_sensor_needs_no_worker(world: World) -> None:
    with Client(world.service.url, world.service.key) as client:
        job = client.start_batch_scrape(world.site.held(1)).id
    run = world.airflow.trigger("watching", {"job_id": job})
    world.airflow.wait_task("watching", run, "watch", {"deferred"})
    world.triggerer_asks(str(job))
    world.site.release()
    assert world.airflow.wait_run("watching", run) == "success"
    task = world.airflow.task("watching", run, "watch")
    assert (task["pid"] is None) == TASKS_IN_TRIGGERER, "no worker ever ran it, since Airflow 3.3"
    assert world.airflow.xcom("watching", run, "watch")["job_id"] == job


def test_o3_a_sensor_that_is_marked_failed_does_not_cancel_the_job(world: World) -> None:
    with Client(world.service.url, world.service.key) as client:
        job = str(client.start_batch_scrape(world.site.held(1)).id)
    run = world.airflow.trigger("watching", {"job_id": job})
    world.triggerer_asks(job)
    world.airflow.mark_task("watching", run, "watch", "failed")
    assert world.airflow.wait_run("watching", run) == "failed"
    assert world.asked("DELETE", job) == 0
    world.site.release()
    world.poll(lambda: world.status(job) == "completed", "the job to end by itself")
