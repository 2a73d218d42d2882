"""An Airflow executor whose tasks run as in Kubernetes: each in a process of its own, with an empty disk of its own.

It does what KubernetesExecutor does with the image's command: `execute_workload` in a new process for each execution of
a task, and a failed task if that process ends with an error. The process has a mount namespace of its own, in which an
empty tmpfs covers AIRFLOW_HOME: database, logs and the disks of other pods are not there, and what the pod writes below
it (home, TMPDIR) is gone when it ends.

Airflow loads this module in the scheduler; `POD_LIST` names the file that gets a line with each pod's process id.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.executors.base_executor import BaseExecutor

#: `size` bounds a pod's scratch, as `sizeLimit` of an emptyDir does.
_START = 'mount -t tmpfs -o size=64m tmpfs "$AIRFLOW_HOME" && mkdir "$TMPDIR" && cd "$HOME" && exec "$@"'
#: A mount needs root: without it, the process is root in a user namespace, which some machines do not allow.
_AS_ROOT = () if os.geteuid() == 0 else ("--map-root-user",)


class PodExecutor(BaseExecutor):
    """Starts a process for each workload."""

    is_local = False

    def start(self) -> None:
        """Start without pods."""
        self._pods: dict[Any, subprocess.Popen[bytes]] = {}

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for workload in workload_items:
            del self.queued_tasks[workload.ti.key]
            self.running.add(workload.ti.key)
            self._pods[workload.ti.key] = self._pod(workload.model_dump_json())

    def _pod(self, workload: str) -> subprocess.Popen[bytes]:
        home = os.environ["AIRFLOW_HOME"]
        inside = [sys.executable, "-m", "airflow.sdk.execution_time.execute_workload", "--json-string", workload]
        pod = subprocess.Popen(
            ["unshare", *_AS_ROOT, "--mount", "--propagation", "private", "sh", "-c", _START, "pod", *inside],
            env={**os.environ, "HOME": home, "TMPDIR": f"{home}/tmp"},
            start_new_session=True,
        )
        with Path(os.environ["POD_LIST"]).open("a") as file:
            file.write(f"{pod.pid}\n")
        return pod

    def sync(self) -> None:
        """Report the pods that have ended."""
        for key, pod in list(self._pods.items()):
            if (code := pod.poll()) is not None:
                del self._pods[key]
                self.success(key) if code == 0 else self.fail(key)

    def end(self) -> None:
        """Wait for the pods."""
        for pod in self._pods.values():
            pod.wait()

    def terminate(self) -> None:
        """Kill the pods."""
        for pod in self._pods.values():
            pod.kill()
