"""A real Dagster for tests: `dagster dev` with webserver, daemon and code location, in a temporary home.

    with DagsterLab(home, file, env={"WEBLAKE_API_KEY": …}) as lab:
        run = lab.launch({"documents"})
        lab.wait_status(run, {"SUCCESS"})

This module does not import Dagster, which runs in other processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import database_search
import httpx
from dagster_api import DagsterApi
from lab_resources import free_port
from live_files import walk
from supervised_processes import Processes, descendants, is_alive, tail

#: What a test needs that a production installation does not: short intervals, and nothing that leaves the machine.
INSTANCE: dict[str, Any] = {
    "telemetry": {"enabled": False},
    "nux": {"enabled": False},
    "concurrency": {"runs": {"max_concurrent_runs": 3}, "pools": {"default_limit": 2}},
    "run_coordinator": {
        "module": "dagster.core.run_coordinator",
        "class": "QueuedRunCoordinator",
        "config": {"dequeue_interval_seconds": 1},
    },
    "run_monitoring": {"enabled": True, "poll_interval_seconds": 2},
    "run_retries": {"enabled": True, "max_retries": 1},
}
#: Its `sitecustomize.py` changes what Dagster's daemon has no setting for.
DAGSTER_PATCHES = Path(__file__).with_name("dagster_patches")


class DagsterLab(DagsterApi):
    """Dagster in a home of its own; a context manager.

    :param home: an empty or missing directory, which becomes DAGSTER_HOME.
    :param code: a Python file with definitions, or the name of a module.
    :param env: more environment for all processes (secrets, PYTHONPATH).
    :param instance: more of `dagster.yaml`, over INSTANCE: a section replaces its section, None leaves it out.
    """

    #: How long a start may take, in seconds, on a machine that is busy with other tests.
    start_timeout = 180.0

    def __init__(
        self,
        home: Path,
        code: Path | str,
        env: Mapping[str, str] | None = None,
        instance: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.home, self.code = home, code
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._extra = dict(env or {})
        self._instance = {**INSTANCE, **(instance or {})}
        self._processes: Processes | None = None

    # Life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts Dagster and returns when its page answers and the code is loaded; a failed start leaves nothing."""
        self.home.mkdir(parents=True, exist_ok=True)
        settings = {name: value for name, value in self._instance.items() if value is not None}
        (self.home / "dagster.yaml").write_text(json.dumps(settings, indent=1))
        self._processes = Processes()
        try:
            # The path of a socket has 108 bytes at most, and the homes of tests are deep.
            self.scratch = Path(tempfile.mkdtemp(prefix="dagster-lab-"))
            self._processes.remove_at_end(self.scratch)
            self._processes.start("dagster dev", self._command(), self.environment(), self._log, cwd=self.home)
            self.until("Dagster's page", self._answers, self.start_timeout)
            self.location()
            if self._instance.get("run_retries"):
                self.until("the daemon that retries runs", self._retries_runs, self.start_timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all processes of the lab and what they started, and sees that none is left; the home stays."""
        self._http.close()
        if self._processes is None:
            return
        processes, self._processes = self._processes, None
        known = processes.pids()
        processes.close(grace=20)
        left = [pid for pid in known if is_alive(pid)]
        assert not left, f"processes outlived the lab: {left}"
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", self.port)) != 0, f"somebody still listens on port {self.port}"

    def environment(self) -> dict[str, str]:
        """The whole environment of the lab's processes: ours without any other Dagster's."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER_")}
        # Without compiled bytecode every process compiles Dagster anew: ready in 16 s and not 7, a run 5 s and not 3.
        ours.pop("PYTHONDONTWRITEBYTECODE", None)
        paths = [str(DAGSTER_PATCHES), self._extra.get("PYTHONPATH", ours.get("PYTHONPATH", ""))]
        return {
            **ours,
            "TMPDIR": str(self.scratch),
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "1",
            **self._extra,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }

    def dead(self) -> Mapping[str, str]:
        """How `dagster dev` ended by itself, with the end of its log; it ends when one of its parts does."""
        return self._running.dead()

    def tails(self) -> str:
        """The end of the log of all parts."""
        return tail(self._log, 60)

    def pids(self) -> set[int]:
        """Every living process of the lab, those of runs and steps too."""
        return self._running.pids()

    # Processes of runs

    def step_pids(self, run_id: str) -> dict[str, int]:
        """Step -> its living process; empty with the in-process executor, where the worker runs the steps."""
        started = (event for event in self.events(run_id) if event["eventType"] == "STEP_WORKER_STARTED")
        return {str(step): pid for step, pid in self._living(started).items()}

    def wait_worker(self, run_id: str, timeout: float = 120) -> int:
        """Waits for the run worker and returns its process."""

        def worker() -> int | None:
            said = (event for event in self.events(run_id) if event["message"].startswith("Started process for run"))
            return self._living(said).get(None)

        found = self.until(f"a worker of run {run_id}", worker, timeout, lambda: self.describe(run_id))
        assert found is not None
        return found

    def kill_run(self, run_id: str) -> None:
        """SIGKILL to the run worker and all it started, as a lost machine does."""
        worker = self.wait_worker(run_id)
        victims = {worker, *descendants(worker), *self.step_pids(run_id).values()}
        for pid in (worker, *victims - {worker}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.until(f"the end of {victims}", lambda: not any(map(is_alive, victims)), timeout=120)

    def _living(self, events: Iterable[Mapping[str, Any]]) -> dict[str | None, int]:
        said = {event["stepKey"]: int(event["metadata"]["pid"]) for event in events}
        # The events stay when the process has ended, and its number may be somebody else's then.
        ours = self.pids() if said else set()
        return {step: pid for step, pid in said.items() if pid in ours}

    def files(self) -> list[Path]:
        """Every file of the instance: databases, outputs of steps, logs of the processes, scratch."""
        return [path for root in (self.home, self.scratch) for path in sorted(walk(root)) if path.is_file()]

    def grep(self, needle: str) -> list[str]:
        """Where a text stands: files and their names, and rows of the databases, compressed ones too."""
        found = database_search.in_files([self.home, self.scratch], needle)
        for path in filter(_is_database, self.files()):
            # A long text lies in pieces in the file of a database, and compressed in some rows.
            rows = database_search.in_database(f"sqlite:///{path}", needle, "")
            found += [f"{path.relative_to(self.home)} {row}" for row in rows]
        return found

    # Inside

    @property
    def _running(self) -> Processes:
        assert self._processes is not None, "the lab is not started"
        return self._processes

    @property
    def _log(self) -> Path:
        return self.home / "dagster-dev.log"

    def _command(self) -> Sequence[str]:
        code = ("-f", str(self.code), "-d", str(self.code.parent)) if isinstance(self.code, Path) else ("-m", self.code)
        return (str(Path(sys.executable).with_name("dagster")), "dev", *code, "-h", "127.0.0.1", "-p", str(self.port))

    def _retries_runs(self) -> bool:
        """Whether the daemon has its place in the event log: runs that have failed before that are not retried."""
        with contextlib.closing(sqlite3.connect(self.home / "history" / "runs.db")) as database:
            names = database.execute("select key from kvs where key like 'EVENT_LOG_CONSUMER_CURSOR%'").fetchall()
        return len(names) == 2

    def _answers(self) -> bool:
        try:
            return self._http.get(f"{self.url}/server_info").is_success
        except httpx.HTTPError:
            return False


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except FileNotFoundError:  # SQLite removes its journals
        return False
