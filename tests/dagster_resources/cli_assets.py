"""A code location for the command line: assets whose pages are held back, configured by environment variables."""

from __future__ import annotations

import os

import dagster as dg

from dagster_weblake import BatchScrapeRequest, WeblakeResource, build_weblake_assets

REQUEST = BatchScrapeRequest(
    urls=os.environ.get("TEST_URLS", "").split(","),
    poll_interval=0.2,
    options={"timeout": 240_000},  # ms: on a busy machine a page is held for longer than the default of a minute
)

held = build_weblake_assets("held", REQUEST, retry_policy=None)
retried = build_weblake_assets("retried", REQUEST, retry_policy=dg.RetryPolicy(max_retries=2))

defs = dg.Definitions(
    assets=[*held, *retried],
    jobs=[
        dg.define_asset_job("landing", selection="held"),
        dg.define_asset_job("retrying", selection="retried"),
    ],
    resources={"weblake": WeblakeResource(root=os.environ.get("TEST_ROOT"))},
    executor=dg.in_process_executor,  # one process to send signals to; with several: test_dagster_e2e.py
)
