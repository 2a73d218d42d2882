"""A code location for the command line: assets whose pages are held back, configured by environment variables."""

from __future__ import annotations

import os
import sys

import dagster as dg

from dagster_weblake import BatchScrapeRequest, WeblakeResource, build_weblake_assets

REQUEST = BatchScrapeRequest(
    urls=os.environ.get("TEST_URLS", "").split(","),
    poll_interval=0.2,
    options={"timeout": 240_000},  # ms: on a busy machine a page is held for longer than the default of a minute
)

held = build_weblake_assets("held", REQUEST, retry_policy=None)
retried = build_weblake_assets("retried", REQUEST, retry_policy=dg.RetryPolicy(max_retries=2))
later = build_weblake_assets("later", REQUEST, wait="sensor", retry_policy=None)


defs = dg.Definitions(
    assets=[*held, *retried, *later],
    jobs=[
        dg.define_asset_job("landing", selection="held"),
        dg.define_asset_job("retrying", selection="retried"),
        dg.define_asset_job("starting", selection="later_job"),
        dg.define_asset_job("collecting", selection="later"),
    ],
    resources={"weblake": WeblakeResource(root=os.environ.get("TEST_ROOT"))},
    executor=dg.in_process_executor,  # one process to send signals to; with several: test_dagster_e2e.py
)


def landing() -> dg.JobDefinition:
    """What the command line runs."""
    return defs.resolve_job_def("landing")


def re_execute(parent: str) -> bool:
    """Re-executes a run from failure, as a person does it."""
    with dg.DagsterInstance.get() as instance:
        job = dg.reconstructable(landing)
        options = dg.ReexecutionOptions.from_failure(parent, instance)
        with dg.execute_job(job, instance=instance, reexecution_options=options) as result:
            return bool(result.success)


if __name__ == "__main__":
    sys.exit(0 if re_execute(sys.argv[1]) else 1)
