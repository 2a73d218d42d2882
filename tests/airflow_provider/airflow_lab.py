"""A real Airflow for tests: scheduler with LocalExecutor, triggerer, DAG processor and API server as processes.

    with AirflowLab(home, dags, env={"AIRFLOW_CONN_WEBLAKE_DEFAULT": …}) as lab:
        run = lab.trigger("my_dag")
        assert lab.wait_run("my_dag", run) == "success"

The metadata database is SQLite, copied from a template that is migrated once per machine and set of distributions. This
module does not import Airflow, which runs in other processes.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import shutil
import signal
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import database_search
import httpx
from airflow_home import AIRFLOW, clean_environment, template_database
from airflow_rest import AirflowRest
from lab_resources import free_port
from supervised_processes import Processes, descendants, stacks, tail

#: What a test needs that a production installation does not: short intervals, and nothing that leaves the machine.
SETTINGS = {
    "CORE__LOAD_EXAMPLES": "False",
    "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "CORE__PARALLELISM": "4",
    "CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
    "API__HOST": "127.0.0.1",
    "API__WORKERS": "1",
    # Otherwise Airflow 3.0 and 3.1 return XComs as they are stored.
    "API__ENABLE_XCOM_DESERIALIZE_SUPPORT": "True",
    # A file is parsed when it is new or changed, and otherwise left alone: parsing costs a second of a core.
    "DAG_PROCESSOR__REFRESH_INTERVAL": "2",
    "DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "DAG_PROCESSOR__PARSING_PROCESSES": "1",
    # Airflow 3.0 takes the DAGs of a file that it has not parsed for this long for deleted, after a callback.
    "DAG_PROCESSOR__STALE_DAG_THRESHOLD": "86400",
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.25",
    "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "SCHEDULER__JOB_HEARTBEAT_SEC": "1",
    "SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
    # A killed supervisor is noticed by its missing heartbeats only; those of a living one wait for other writers.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "LOGGING__COLORED_CONSOLE_LOG": "False",
    "USAGE_DATA_COLLECTION__ENABLED": "False",
    "OPENLINEAGE__DISABLED": "True",
}


class AirflowLab(AirflowRest):
    """Airflow in a home of its own; a context manager, or `start()` and `stop()`.

    :param home: an empty or missing directory: metadata, logs, one log per process.
    :param dags: where the DAG files are; changed and new files are noticed in about two seconds.
    :param env: more environment for all processes (connections, PYTHONPATH); wins over the settings.
    """

    #: How long a healthy start may take, in seconds, on a machine that is busy with other tests.
    start_timeout = 300.0

    def __init__(self, home: Path, dags: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.home, self.dags = home, dags
        self.logs = home / "logs"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.fernet_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        # One writer at a time: on a busy machine the next one waits longer than the five seconds of the default.
        self.database = f"sqlite:///{home}/airflow.db?timeout=240"
        self._extra = dict(env or {})
        self._processes: Processes | None = None
        self._jwt = secrets.token_hex(32)

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and returns when it is healthy; a start that fails leaves nothing behind."""
        self._processes = Processes()
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            (self.home / "processes").mkdir(exist_ok=True)
            # Without this file the first processes would each write one, at the same time, with keys of their own.
            (self.home / "airflow.cfg").touch()
            self._prepare()
            for name in self.components():
                self._start(name)
            self.until("Airflow to be healthy", self._healthy, self.start_timeout, self._tails)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all processes of the lab and what they started; the home stays."""
        self._http.close()
        if self._processes is not None:
            processes, self._processes = self._processes, None
            processes.close()

    def components(self) -> dict[str, tuple[str, ...]]:
        """The processes of this lab: name -> arguments of `airflow`."""
        return {
            "api-server": ("api-server",),
            "scheduler": ("scheduler", "--skip-serve-logs"),
            "triggerer": ("triggerer", "--skip-serve-logs"),
            "dag-processor": ("dag-processor",),
        }

    def settings(self) -> dict[str, str]:
        """The environment variables AIRFLOW__…."""
        return {
            **SETTINGS,
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__FERNET_KEY": self.fernet_key,
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "API__PORT": str(self.port),
            "API__BASE_URL": self.url,
            "API__SECRET_KEY": self._jwt,
            "API_AUTH__JWT_SECRET": self._jwt,
            "DATABASE__SQL_ALCHEMY_CONN": self.database,
        }

    def environment(self) -> dict[str, str]:
        """The whole environment of the lab's processes: ours without any other Airflow's."""
        return {
            **clean_environment(),
            "AIRFLOW_HOME": str(self.home),
            **{f"AIRFLOW__{name}": value for name, value in self.settings().items()},
            **self._extra,
        }

    def dead(self) -> Mapping[str, str]:
        """Processes that ended by themselves: name -> how, with the end of their log.

        Airflow's scheduler ends with StaleDataError if a task instance is cleared before it has seen its end. Then it
        is started again here, as every deployment does.
        """
        dead = self._running.dead()
        if "StaleDataError" in dead.get("scheduler", ""):
            del dead["scheduler"]
            self._running.end("scheduler")
            self._start("scheduler")
        return dead

    def pid_of(self, name: str) -> int:
        """The process of a component: api-server, scheduler, triggerer, dag-processor."""
        return self._running.pid_of(name)

    def pids(self) -> set[int]:
        """Every living process of the lab."""
        return self._running.pids()

    # The triggerer

    def restart_triggerer(self, timeout: float = 240) -> None:
        """SIGTERM to the triggerer's process group, as a deployment does, then a new one, healthy on return."""
        before = self._triggerer_job()
        self._running.end("triggerer", signal.SIGTERM, grace=30)
        self.start_triggerer(timeout, before)

    def kill_triggerer(self) -> None:
        """SIGKILL to the triggerer and all that it started; `start_triggerer` starts a new one."""
        self._running.end("triggerer", signal.SIGKILL)

    def start_triggerer(self, timeout: float = 240, before: int | None = None) -> None:
        """Starts a triggerer after a kill, healthy on return."""
        before = self._triggerer_job() if before is None else before
        self._start("triggerer")
        self.until("a new triggerer", lambda: self._triggerer_job() > before, timeout, self._tails)

    def _triggerer_job(self) -> int:
        jobs = self.api("GET", "/jobs?job_type=TriggererJob&order_by=-id&limit=1")["jobs"]
        return int(jobs[0]["id"]) if jobs else 0

    # Processes of tasks

    def worker_pids(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[int]:
        """The process that runs this task instance and its children; empty if it runs nowhere in this lab.

        Airflow's supervisor (a LocalExecutor worker, or a Celery pool process) forks one process per task and reports
        its id when it starts the task instance: the API shows it as `pid`. The field stays when the task has ended,
        and says nothing of the machine: so it counts only while the state is running and for processes of this lab.
        """
        task = self.task(dag_id, run_id, task_id, map_index)
        pid = task["pid"]
        if task["state"] != "running" or pid not in self.pids():
            return []
        return [pid, *sorted(descendants(pid))]

    def wait_worker(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1, timeout: float = 240) -> int:
        """Waits until the task instance runs, and returns its process."""
        found: list[int] = self.until(
            f"a process of {task_id}[{map_index}]",
            lambda: self.worker_pids(dag_id, run_id, task_id, map_index),
            timeout,
            lambda: self.describe(dag_id, run_id),
        )
        return found[0]

    def supervisor_pid(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> int:
        """The parent of the task's process: its death is noticed by missing heartbeats only."""
        (pid, *_) = self.worker_pids(dag_id, run_id, task_id, map_index)
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def describe(self, dag_id: str, run_id: str) -> str:
        """As it stands in the API and the logs, and where the processes of running tasks stand."""
        lines = [super().describe(dag_id, run_id)]
        for task in self.tasks(dag_id, run_id):
            for pid in self.worker_pids(dag_id, run_id, task["task_id"], task["map_index"]):
                lines.append(f"-- process {pid} of {task['task_id']}[{task['map_index']}]\n{stacks(pid)}")
        return "\n".join(lines)

    # The metadata

    def start_earlier(self, dag_id: str, run_id: str, seconds: int) -> None:
        """Moves the start of a run into the past: its `dagrun_timeout` counts from there."""
        start = "UPDATE dag_run SET start_date = strftime('%Y-%m-%d %H:%M:%f', start_date, ?)"
        with contextlib.closing(sqlite3.connect(self._database_file, timeout=240)) as db, db:
            moved = db.execute(f"{start} WHERE dag_id = ? AND run_id = ?", (f"-{seconds} seconds", dag_id, run_id))
            assert moved.rowcount == 1

    # Search

    def grep(self, needle: str) -> list[str]:
        """Where a text stands: files below home (logs too), and rows of the metadata, encrypted columns too."""
        return database_search.in_files([self.home], needle) + database_search.in_database(
            self.database, needle, self.fernet_key
        )

    # Inside

    @property
    def _database_file(self) -> str:
        return self.database.removeprefix("sqlite:///").partition("?")[0]

    @property
    def _running(self) -> Processes:
        assert self._processes is not None, "the lab is not started"
        return self._processes

    def _prepare(self) -> None:
        """Makes the metadata database."""
        shutil.copyfile(template_database(), self.home / "airflow.db")

    def _start(self, name: str, arguments: Sequence[str] = ()) -> None:
        command = [AIRFLOW, *(arguments or self.components()[name])]
        self._running.start(name, command, self.environment(), self.home / "processes" / f"{name}.log", cwd=self.home)

    def _healthy(self) -> bool:
        try:
            health: dict[str, Any] = self._http.get(f"{self.url}/api/v2/monitor/health").raise_for_status().json()
        except httpx.HTTPError:
            return False
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all(health[part]["status"] == "healthy" for part in parts)

    def _tails(self) -> str:
        return "\n".join(f"== {log.name}\n{tail(log)}" for log in sorted((self.home / "processes").iterdir()))
