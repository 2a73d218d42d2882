"""Jobs that land in the memory of a process, by the executor of their steps."""

from __future__ import annotations

import os

import dagster as dg

from dagster_weblake import ActivityRequest, BatchScrapeRequest, WeblakeResource, build_weblake_assets


def _job(executor: dg.ExecutorDefinition, *selection: str) -> dg.JobDefinition:
    request = BatchScrapeRequest(urls=os.environ["TEST_URLS"].split(","))
    assets = [
        *build_weblake_assets("held", request),
        *build_weblake_assets("later", request, wait="sensor"),
        *build_weblake_assets("calls", ActivityRequest()),
    ]
    defs = dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("landing", selection=list(selection))],
        resources={"weblake": WeblakeResource(root="memory://lake-of-a-run")},
        executor=executor,
    )
    return defs.resolve_job_def("landing")


def in_process() -> dg.JobDefinition:
    """Every kind of step, in the process of the run."""
    return _job(dg.in_process_executor, "held", "later_job", "calls")


def multiprocess() -> dg.JobDefinition:
    """One step, in a process of its own."""
    return _job(dg.multiprocess_executor, "held")
