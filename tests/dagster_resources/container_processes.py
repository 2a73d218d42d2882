"""Processes in the place of containers, where dagster-docker and dagster-k8s call Docker's and Kubernetes' APIs.

A container is a process with the variables that it was given and no others, an empty home and an empty temporary
directory; at its end its files are gone. The folder that the variable CONTAINERS names has what other processes need to
know: `NAME.pid`, `NAME.code` (the exit code), and `jobs`, a line of JSON for each container or Kubernetes job.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = Path(os.environ["CONTAINERS"])
#: Seconds between SIGTERM and SIGKILL, if the caller names none.
DOCKER_GRACE_S, KUBERNETES_GRACE_S = 10, 30
#: The processes of a lab are found by this variable.
LAB_TOKEN = "WEBLAKE_LAB_TOKEN"


class Container:
    """A process that is started as a container, by this process or by another."""

    def __init__(self, name: str, command: list[str] | None = None, env: Mapping[str, str] | None = None) -> None:
        self.name = self.id = name
        self.command, self.env = command, env
        self._files, self._pid, self._code = FOLDER / name, FOLDER / f"{name}.pid", FOLDER / f"{name}.code"

    @property
    def exists(self) -> bool:
        return self._pid.exists()

    def start(self) -> None:
        assert self.command is not None
        (self._files / "tmp").mkdir(parents=True)
        env = {name: value for name, value in os.environ.items() if name == LAB_TOKEN}
        env |= {**(self.env or {}), "HOME": str(self._files), "TMPDIR": str(self._files / "tmp")}
        env["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        with (FOLDER / f"{self.name}.log").open("wb") as log:
            process = subprocess.Popen(self.command, env=env, start_new_session=True, stdout=log, stderr=log)
        _write(self._pid, process.pid)
        threading.Thread(target=self._end, args=(process,), daemon=True).start()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self._kill()  # with the first process all others of a container end
        shutil.rmtree(self._files, ignore_errors=True)
        _write(self._code, code)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(self._pid.read_text()), signal.SIGKILL)

    @property
    def code(self) -> int | None:
        """The exit code; None while the process runs."""
        return int(self._code.read_text()) if self._code.exists() else None

    # As docker-py has it

    @property
    def status(self) -> str:
        if not self.exists:
            return "created"
        return "running" if self.code is None else "exited"

    @property
    def attrs(self) -> dict[str, Any]:
        return {"State": {"Status": self.status, "ExitCode": self.code}}

    def wait(self, timeout: float) -> dict[str, int]:
        assert self.code is not None
        return {"StatusCode": self.code % 256}

    def stop(self, timeout: float | None = None) -> None:
        """SIGTERM to the first process, SIGKILL to all when the time is over; returns at the end."""
        deadline = time.monotonic() + (DOCKER_GRACE_S if timeout is None else timeout)
        if self.code is None:
            os.kill(int(self._pid.read_text()), signal.SIGTERM)
        while self.code is None:
            if time.monotonic() > deadline:
                self._kill()
            time.sleep(0.05)


def _write(path: Path, number: int) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(str(number))
    draft.rename(path)


def containers() -> list[Container]:
    """Every container that was started."""
    return [Container(path.stem) for path in FOLDER.glob("*.pid")]


def wait_for_all(seconds: float = 60) -> list[str]:
    """Waits until the containers have ended, and returns the names of those that have not, or have left files."""
    deadline = time.monotonic() + seconds
    while any(each.code is None for each in containers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [each.name for each in containers() if each.code is None or (FOLDER / each.name).exists()]


def jobs() -> list[Any]:
    """What the containers were made from, the oldest first."""
    return [json.loads(line) for line in (FOLDER / "jobs").read_text().splitlines()]


def _note(job: Any) -> None:
    with (FOLDER / "jobs").open("a") as file:
        file.write(json.dumps(job) + "\n")


def docker() -> None:
    """Replaces Docker's client."""
    import docker as library

    known: dict[str, Container] = {}

    def create(
        image: str, *, command: list[str], environment: dict[str, str], name: str | None = None, **more: Any
    ) -> Container:
        _note({"image": image, **more})
        container = Container(name or uuid.uuid4().hex, command, environment)
        known[container.id] = container
        return container

    def get(name: str) -> Container:
        container = known.get(name) or Container(name)
        if name not in known and not container.exists:
            raise library.errors.NotFound(name)
        return container

    library.client.from_env = lambda: SimpleNamespace(containers=SimpleNamespace(create=create, get=get))


def kubernetes() -> None:
    """Replaces Kubernetes' client; each job is checked against the API's schemas."""
    import kubernetes as library
    import kubernetes_validate

    def found(name: str) -> Container:
        container = Container(name)
        if not container.exists:
            raise library.client.rest.ApiException(status=404)
        return container

    class BatchV1Api:
        def __init__(self, api_client: object) -> None:
            pass

        def create_namespaced_job(self, body: Any, namespace: str, **_: object) -> None:
            job = library.client.ApiClient().sanitize_for_serialization(body)
            kubernetes_validate.validate(job, "1.31", strict=True)
            _note(job)
            (inside,) = job["spec"]["template"]["spec"]["containers"]
            env = {each["name"]: each["value"] for each in inside["env"] if "value" in each}
            Container(job["metadata"]["name"], inside["args"], env).start()

        def read_namespaced_job_status(self, name: str, namespace: str) -> Any:
            code = found(name).code
            active, succeeded = int(code is None), int(code == 0)
            failed = 1 - active - succeeded
            return SimpleNamespace(status=SimpleNamespace(active=active, failed=failed, succeeded=succeeded))

        def delete_namespaced_job(self, name: str, namespace: str) -> None:
            found(name)

    class CoreV1Api:
        """A job has one pod, of the same name."""

        def __init__(self, api_client: object) -> None:
            pass

        def list_namespaced_pod(self, namespace: str, label_selector: str) -> Any:
            name = label_selector.removeprefix("job-name=")
            pods = [SimpleNamespace(metadata=SimpleNamespace(name=name))] if Container(name).exists else []
            return SimpleNamespace(items=pods)

        def delete_namespaced_pod(self, name: str, namespace: str) -> None:
            """Returns at once, as Kubernetes does: the pod has its time to end."""
            threading.Thread(target=found(name).stop, args=(KUBERNETES_GRACE_S,), daemon=True).start()

    library.config.load_incluster_config = lambda **_: None
    library.client.BatchV1Api, library.client.CoreV1Api = BatchV1Api, CoreV1Api
