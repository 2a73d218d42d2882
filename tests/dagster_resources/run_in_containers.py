"""Executes the job of container_definitions.py as a run worker does, with processes in the place of containers.

    python run_in_containers.py FOLDER

Docker's and Kubernetes' APIs are replaced where dagster-docker and dagster-k8s call them. A container is a process with
the variables that it was given and no others, an empty home and an empty temporary directory; at its end its files are
gone. The last line on standard output is what happened, as JSON; FOLDER/containers has the process ids, a line each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import container_definitions
import dagster as dg

FOLDER = Path(sys.argv[1])


class Container:
    """A process that is started as a container."""

    def __init__(self, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name = self.id = name
        self.command, self.env = command, env
        self.code: int | None = None
        self._files = FOLDER / name

    def start(self) -> None:
        (self._files / "tmp").mkdir(parents=True)
        place = {"HOME": str(self._files), "TMPDIR": str(self._files / "tmp")}
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        self._process = subprocess.Popen(
            self.command, env={**self.env, **place, "PATH": path}, start_new_session=True, stdout=subprocess.DEVNULL
        )
        with (FOLDER / "containers").open("a") as file:
            file.write(f"{self._process.pid}\n")
        self._watcher = threading.Thread(target=self._end)
        self._watcher.start()

    def join(self) -> None:
        """Waits for the end of the process."""
        self._watcher.join(60)

    def _end(self) -> None:
        self.code = self._process.wait()
        shutil.rmtree(self._files)

    # As docker-py has it

    @property
    def status(self) -> str:
        return "running" if self.code is None else "exited"

    def wait(self, timeout: float) -> dict[str, int]:
        assert self.code is not None
        return {"StatusCode": self.code % 256}


CONTAINERS: dict[str, Container] = {}
JOBS: list[Any] = []


def docker() -> None:
    """Replaces Docker's client."""
    import docker as library

    def create(image: str, *, name: str, command: list[str], environment: dict[str, str], **more: Any) -> Container:
        JOBS.append({"image": image, **more})
        CONTAINERS[name] = Container(name, command, environment)
        return CONTAINERS[name]

    containers = SimpleNamespace(create=create, get=CONTAINERS.__getitem__)
    library.client.from_env = lambda: SimpleNamespace(containers=containers)


def kubernetes() -> None:
    """Replaces Kubernetes' client; each job is checked against the API's schemas."""
    import kubernetes as library
    import kubernetes_validate

    class BatchV1Api:
        def __init__(self, api_client: object) -> None:
            pass

        def create_namespaced_job(self, body: Any, namespace: str, **_: object) -> None:
            job = library.client.ApiClient().sanitize_for_serialization(body)
            kubernetes_validate.validate(job, "1.31", strict=True)
            JOBS.append(job)
            (inside,) = job["spec"]["template"]["spec"]["containers"]
            env = {each["name"]: each["value"] for each in inside["env"] if "value" in each}
            name = job["metadata"]["name"]
            CONTAINERS[name] = Container(name, inside["args"], env)
            CONTAINERS[name].start()

        def read_namespaced_job_status(self, name: str, namespace: str) -> Any:
            return SimpleNamespace(status=SimpleNamespace(failed=CONTAINERS[name].code not in (None, 0)))

    library.config.load_incluster_config = lambda **_: None
    library.client.BatchV1Api = BatchV1Api


K8S_LAUNCHER = {
    "module": "dagster_k8s",
    "class": "K8sRunLauncher",
    "config": {
        "service_account_name": "dagster",
        "instance_config_map": "dagster-instance",
        "dagster_home": "/opt/dagster/home",
        "job_image": "example.com/lake:1",
    },
}


def main() -> None:
    settings: dict[str, Any] = {"telemetry": {"enabled": False}}
    if os.environ["EXECUTOR"] == "docker":
        docker()
    else:
        kubernetes()
        settings["run_launcher"] = K8S_LAUNCHER
    (FOLDER / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(FOLDER / "home"), overrides=settings) as instance:
        job = dg.reconstructable(container_definitions.land)
        with dg.execute_job(job, instance=instance) as result:
            loads = [
                {name: value.value for name, value in event.materialization.metadata.items() if "/" in name}
                for event in result.get_asset_materialization_events()
            ]
            found = {"success": result.success, "loads": [each.get("weblake/load_id") for each in loads]}
            found["rows"] = [each.get("dagster/row_count") for each in loads]
    for container in CONTAINERS.values():
        container.join()
    print(json.dumps({**found, "jobs": JOBS, "left": [name for name in CONTAINERS if (FOLDER / name).exists()]}))


if __name__ == "__main__":
    main()
