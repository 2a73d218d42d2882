"""A real Dagster whose steps run in two `dagster-celery worker` processes; the broker is a Redis of the lab's own.

The workers share with the rest the instance and Redis. Each has a home and a temporary directory of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster_lab import DagsterLab
from redis_server import RedisServer
from supervised_processes import Processes, tail

WORKERS = ("worker-1", "worker-2")
#: Seconds after which a task that its worker has not acknowledged goes to another worker.
VISIBILITY_TIMEOUT = 3


class DagsterCeleryLab(DagsterLab):
    """Dagster on Celery.

    :param code: uses the executor with the settings in `CELERY_CONFIG`, as JSON.
    :param config: these settings; the visibility timeout is replaced.
    """

    def __init__(self, home: Path, code: Path, env: Mapping[str, str], config: Mapping[str, Any]) -> None:
        self._servers = Path(tempfile.mkdtemp(prefix="weblake-lab-"))
        self._redis = RedisServer(self._servers)
        self._celery: Processes | None = None
        self._config: dict[str, Any] = json.loads(json.dumps(config))
        self._config["config_source"]["broker_transport_options"]["visibility_timeout"] = VISIBILITY_TIMEOUT
        celery = {"CELERY_BROKER_URL": self._redis.url, "CELERY_RESULT_BACKEND": self._redis.url}
        super().__init__(home, code, {**env, **celery, "CELERY_CONFIG": json.dumps(self._config)})

    def start(self) -> None:
        """Starts Redis, the workers and Dagster; returns when all are ready."""
        self._celery = Processes()
        try:
            self._celery.remove_at_end(self._servers)
            self._redis.start(self._celery, self._servers / "redis.log")
            self.until("Redis to answer", self._redis.answers, 30)
            super().start()
            for name in WORKERS:
                self.start_worker(name)
            self.until("the workers", lambda: all(map(self._ready, WORKERS)), 60)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends everything."""
        celery, self._celery = self._celery, None
        if celery is not None:
            for name in celery.names():
                celery.end(name, signal.SIGKILL)
        try:
            super().stop()
        finally:
            if celery is not None:
                celery.close()
            shutil.rmtree(self._servers, ignore_errors=True)

    # Workers

    def start_worker(self, name: str) -> None:
        """Starts a worker that executes one step at a time, with an empty disk of its own."""
        disk = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._servers))
        (disk / "tmp").mkdir()
        settings = disk / "celery.yaml"
        settings.write_text(json.dumps({"execution": {"config": self._config}}))
        program = str(Path(sys.executable).with_name("dagster-celery"))
        command = (program, "worker", "start", "-A", "dagster_celery.app", "-n", name, "-y", str(settings), "--")
        more = ("--concurrency", "1", "--without-gossip", "--without-mingle")
        env = {**self.environment(), "HOME": str(disk), "TMPDIR": str(disk / "tmp")}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        self._workers.start(name, [*command, *more], env, self._log_of(name), cwd=disk)

    def worker_of(self, run_id: str) -> str:
        """Waits until a living worker executes a step of the run, and returns its name."""

        def found() -> str | None:
            names = [_worker(event["message"], event["metadata"]) for event in self.events(run_id)]
            alive = [name for name in names if name in self._workers.names()]
            return alive[-1] if alive else None

        name = self.until(f"a worker of run {run_id}", found, 60, lambda: self.describe(run_id))
        assert name is not None
        return name

    def executions(self, run_id: str) -> list[str]:
        """The workers that have begun to execute a step of the run, in order."""
        return [name for event in self.events(run_id) if (name := _worker(event["message"], event["metadata"]))]

    def kill_worker(self, name: str) -> None:
        """SIGKILL to a worker and all that runs in it, as when its machine is lost."""
        self._workers.end(name, signal.SIGKILL)

    def redeliver(self, name: str) -> None:
        """Starts a worker, ended before, when the visibility timeout of the running step is over.

        A worker looks for such tasks when it starts, and then every hundred seconds.
        """
        self.until("the visibility timeout", self._is_over, 60)
        self.start_worker(name)

    def _is_over(self) -> bool:
        with self._redis.client() as broker:
            return broker.zcount("unacked_index", 0, time.time() - VISIBILITY_TIMEOUT) > 0

    def step_process(self, run_id: str) -> int:
        """The process in which a worker executes the run's newest step."""
        found = [
            re.search(r"Capturing logs for process \(pid: (\d+)\)", each["message"]) for each in self.events(run_id)
        ]
        return int([each for each in found if each][-1][1])

    def tails(self) -> str:
        """The end of the log of all parts."""
        logs = [f"== {name}\n{tail(self._log_of(name))}" for name in WORKERS]
        return "\n".join([super().tails(), *logs])

    # Inside

    @property
    def _workers(self) -> Processes:
        assert self._celery is not None, "the lab is not started"
        return self._celery

    def _log_of(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _ready(self, name: str) -> bool:
        return " ready." in tail(self._log_of(name), 50)


def _worker(message: str, metadata: Mapping[str, Any]) -> str | None:
    """The worker that an event names as the one that begins to execute a step; None for other events."""
    if not re.search(r"Executing steps .* in celery worker$", message):
        return None
    return str(metadata["Celery worker"]).partition("@")[0]
