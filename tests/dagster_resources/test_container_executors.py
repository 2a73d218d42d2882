"""Tests of Dagster's executors and run launchers for Docker and Kubernetes with the settings of
docs/dagster_deployments.md.

There is no Docker and no cluster here: dagster-docker and dagster-k8s run in an environment of their own, and the calls
that they make to Docker and Kubernetes start processes with an empty disk and the given variables (see
container_processes.py). The container of a step, or of a run, that waits for a paid job is killed or terminated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployment_docs
import own_environment
import pytest
from dagster_lab import DagsterLab
from deployed_dagster import PAGES, Environment, deployed
from gated_site import GatedSite

import weblake
from weblake.testing import WeblakeService

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = (
    f"{ROOT}[s3]",
    f"{ROOT}/dagster_resources",
    "dagster-docker",
    "dagster-k8s",
    "dagster-webserver",
    "kubernetes-validate>=1.31",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return own_environment.environment(tmp_path_factory.mktemp("containers") / "env", PACKAGES)


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
    given |= {"EXECUTOR_CONFIG": json.dumps(config), "CONTAINERS": str(tmp_path)}
    site.held(1)
    env = {
        **os.environ,
        **given,
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
    }
    program = [python, str(HERE / "run_in_containers.py")]
    log = tmp_path / "log"
    with log.open("wb") as out:
        run = subprocess.Popen(program, cwd=HERE, env=env, stdout=subprocess.PIPE, stderr=out)
    try:
        before = weblake_service.counts().get("batch_scrape_started", 0)

        def waits() -> bool:
            asked = [str(each["path"]) for each in weblake_service.requests() if each["method"] == "GET"]
            return any(path.startswith("/v2/batch/scrape/") for path in asked)

        until(waits, run, log)
        (first,) = tmp_path.glob("*.pid")
        os.kill(int(first.read_text()), signal.SIGKILL)
        until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, run, log)
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


@pytest.fixture(scope="module", params=["docker", "k8s"])
def environment(
    request: pytest.FixtureRequest, python: str, module_s3_root: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment[DagsterLab]]:
    """Dagster whose runs are containers, each with the processes of its steps."""
    folder, home = tmp_path_factory.mktemp("containers"), tmp_path_factory.mktemp("dagster")
    config = deployment_docs.executor({"docker": "Docker", "k8s": "Kubernetes"}[request.param])

    def lab(env: dict[str, str]) -> DagsterLab:
        env |= {"CONTAINERS": str(folder), "PYTHONPATH": str(HERE)}
        settings = launcher_settings(request.param, {**config, "env_vars": sorted({*config["env_vars"], *env})})
        return DagsterLab(home, HERE / "container_definitions.py", env, {"run_launcher": settings}, python)

    with deployed(f"{module_s3_root}/{request.param}", lab) as found:
        yield found
        checks = {"docker": check_docker, "k8s": check_k8s}
        for line in (folder / "jobs").read_text().splitlines():
            checks[request.param](json.loads(line), config)
        exit_codes(found)
        assert [*folder.glob("*/tmp")] == []


def launcher_settings(launcher: str, config: dict[str, Any]) -> dict[str, Any]:
    """The section `run_launcher` of dagster.yaml with an executor's settings."""
    if launcher == "docker":
        return {"module": "container_launchers", "class": "DockerRunLauncher", "config": config}
    more = {"service_account_name": "dagster", "instance_config_map": "dagster-instance", "dagster_home": "/opt/home"}
    config = {**config, **more, "run_k8s_config": config["step_k8s_config"]}
    del config["step_k8s_config"]
    return {"module": "container_launchers", "class": "K8sRunLauncher", "config": config}


def exit_codes(environment: Environment[DagsterLab]) -> list[int]:
    """Waits until all containers have ended and returns their exit codes in the order of the numbers."""
    folder = Path(environment.dagster.environment()["CONTAINERS"])

    def ended() -> bool:
        return {path.stem for path in folder.glob("*.pid")} == {path.stem for path in folder.glob("*.code")}

    environment.dagster.until("the containers to end", ended, 60)
    return sorted(int(path.read_text()) for path in folder.glob("*.code"))


def test_the_job_of_a_terminated_run_is_cancelled(environment: Environment[DagsterLab]) -> None:
    dagster, billed, codes = environment.dagster, environment.billed, exit_codes(environment)
    run = environment.launch()
    dagster.terminate(run)
    assert dagster.wait_status(run, {"CANCELED"}) == "CANCELED"
    dagster.wait_event(run, lambda event: "its run was terminated" in event["message"], 60)
    assert exit_codes(environment) == sorted([*codes, 0])  # it was not killed
    environment.site.release()
    assert environment.billed - billed < PAGES


def test_after_a_killed_container_of_a_run_the_retry_lands_the_same_job(environment: Environment[DagsterLab]) -> None:
    dagster, billed = environment.dagster, environment.billed
    run = environment.launch()
    dagster.kill_run(run)
    assert dagster.wait_status(run, {"FAILURE"}) == "FAILURE"
    assert_retry_lands(environment, run, billed)


def test_the_job_of_a_run_over_its_time_limit_is_left_to_the_retry(environment: Environment[DagsterLab]) -> None:
    """Docker's launcher waits for the end of the container before the run is reported as failed."""
    dagster, billed, codes = environment.dagster, environment.billed, exit_codes(environment)
    run = environment.launch(tags={"dagster/max_runtime": "3600"})
    dagster.backdate_run(run, 3600)
    dagster.wait_event(run, lambda event: "Dagster retries its run" in event["message"], 60)
    assert_retry_lands(environment, run, billed)
    assert exit_codes(environment) == sorted([*codes, 0, 0])  # neither was killed


def assert_retry_lands(environment: Environment[DagsterLab], run: str, billed: int) -> None:
    started, retry = environment.started, environment.dagster.wait_retry(run)
    environment.site.release()
    environment.dagster.wait_status(retry.run_id, {"SUCCESS"})
    found = environment.landed(retry.run_id)
    assert (found["dagster/row_count"], environment.rows(found["weblake/load_id"])) == (PAGES, PAGES)
    assert (environment.started - started, environment.billed - billed) == (0, PAGES)


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
