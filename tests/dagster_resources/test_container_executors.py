"""Tests of Dagster's Docker and Kubernetes executors with the settings of docs/dagster_deployments.md.

There is no Docker and no cluster here: dagster-docker and dagster-k8s run in an environment of their own, and the calls
that they make to Docker and Kubernetes start processes with an empty disk and the given variables (see
run_in_containers.py). The container that waits for a paid job is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import deployment_docs
import pytest
from gated_site import GatedSite
from own_environment import environment

import weblake
from weblake.testing import WeblakeService

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PACKAGES = (
    f"{ROOT}[s3]",
    f"{ROOT}/dagster_resources",
    "dagster-docker",
    "dagster-k8s",
    "kubernetes-validate>=1.31",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment(tmp_path_factory.mktemp("containers") / "env", PACKAGES)


@pytest.mark.parametrize("executor", ["docker", "k8s"])
def test_after_a_killed_container_the_next_one_lands_the_same_job(
    python: str, weblake_service: WeblakeService, site: GatedSite, s3_root: str, tmp_path: Path, executor: str
) -> None:
    config = deployment_docs.executor({"docker": "Docker", "k8s": "Kubernetes"}[executor])
    given = {
        "WEBLAKE_BASE_URL": weblake_service.url,
        "WEBLAKE_API_KEY": weblake_service.key,
        "WEBLAKE_ROOT": s3_root,
        "E2E_SITE": site.url,
        "EXECUTOR": executor,
        **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
    }
    # The page names the variables of a deployment; the lab has more.
    config["env_vars"] = sorted({*config["env_vars"], *given, "EXECUTOR_CONFIG"})
    given["EXECUTOR_CONFIG"] = json.dumps(config)
    site.held(1)
    env = {
        **os.environ,
        **given,
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
    }
    program = [python, str(Path(__file__).with_name("run_in_containers.py")), str(tmp_path)]
    log = tmp_path / "log"
    with log.open("wb") as out:
        run = subprocess.Popen(program, cwd=Path(__file__).parent, env=env, stdout=subprocess.PIPE, stderr=out)
    try:
        before = weblake_service.counts().get("batch_scrape_started", 0)

        def waits() -> bool:
            asked = [str(each["path"]) for each in weblake_service.requests() if each["method"] == "GET"]
            return any(path.startswith("/v2/batch/scrape/") for path in asked)

        until(waits, run, log)
        (first,) = (tmp_path / "containers").read_text().split()
        os.kill(int(first), signal.SIGKILL)
        until(lambda: len((tmp_path / "containers").read_text().split()) == 2, run, log)
        site.release()
        out_bytes, _ = run.communicate(timeout=240)
    finally:
        if run.poll() is None:
            run.kill()
            run.wait(10)
    assert run.returncode == 0, log.read_text()[-4000:]
    found = json.loads(out_bytes.splitlines()[-1])
    assert (found["success"], found["rows"], found["left"]) == (True, [3], [])
    assert weblake.read(s3_root, columns=["load_id"]).to_table()["load_id"].to_pylist() == found["loads"] * 3
    counts = weblake_service.counts()
    assert (before, counts["batch_scrape_started"], counts["pages_billed"]) == (0, 1, 3)
    checks = {"docker": check_docker, "k8s": check_k8s}
    for job in found["jobs"]:
        checks[executor](job, config)


def until(done: Any, run: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 240
    while not done():
        assert run.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)


def check_docker(job: dict[str, Any], config: dict[str, Any]) -> None:
    """The container has what the page says."""
    assert job["image"] == config["image"]
    wanted = {name: value for name, value in config["container_kwargs"].items() if name != "stop_timeout"}
    assert {name: job[name] for name in wanted} == wanted


def check_k8s(job: dict[str, Any], config: dict[str, Any]) -> None:
    """The pod has what the page says."""
    pod = job["spec"]["template"]["spec"]
    wanted = config["step_k8s_config"]["pod_spec_config"]
    assert pod["terminationGracePeriodSeconds"] == wanted["termination_grace_period_seconds"]
    assert {"name": "scratch", "emptyDir": {"sizeLimit": "4Gi"}} in pod["volumes"]
    (container,) = pod["containers"]
    assert container["resources"] == config["step_k8s_config"]["container_config"]["resources"]
    assert {"name": "scratch", "mountPath": "/scratch"} in container["volumeMounts"]
    assert {"name": "TMPDIR", "value": "/scratch"} in container["env"]
