"""The code location of the tests with Docker and Kubernetes: jobs whose runs, or whose steps, run in containers.

Its file is in the image; all that a container gets beside it are variables. `EXECUTOR` names the executor of steps in
containers, and `EXECUTOR_CONFIG` has its settings; without them the steps run in processes of the run's container.
"""

import json
import os

import dagster as dg

from dagster_weblake import BatchScrapeRequest, WeblakeResource, build_weblake_assets

SITE = os.environ["E2E_SITE"]


def _executor() -> dg.ExecutorDefinition:
    if "EXECUTOR" not in os.environ:
        return dg.multiprocess_executor
    if os.environ["EXECUTOR"] == "docker":
        from dagster_docker import docker_executor as executor
    else:
        from dagster_k8s import k8s_job_executor as executor
    return executor.configured(json.loads(os.environ["EXECUTOR_CONFIG"]))


held = build_weblake_assets(
    "held",
    BatchScrapeRequest(
        urls=[f"{SITE}/held/{n}" for n in range(3)], poll_interval=0.3, options={"max_age": 0, "timeout": 240_000}
    ),
    retry_policy=dg.RetryPolicy(max_retries=1),
)

defs = dg.Definitions(
    assets=held,
    jobs=[dg.define_asset_job("land", selection=["held"])],
    executor=_executor(),
    resources={"weblake": WeblakeResource(root=os.environ["WEBLAKE_ROOT"])},
)


def land() -> dg.JobDefinition:
    """The job, for `reconstructable`."""
    return defs.resolve_job_def("land")
