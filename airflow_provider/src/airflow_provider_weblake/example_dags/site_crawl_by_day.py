"""Crawl a site every day; each load that lands starts the DAG that checks it, without a schedule of its own.

The second DAG here runs when the first has landed a load, and reads the load's receipt from the event. Any number of
DAGs, in any file, may be scheduled on the same asset: its URI follows from the root.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeCrawlOperator

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
#: The table `documents` of this root, for DAGs that are scheduled on it.
PAGES = weblake_asset(ROOT)

with DAG(
    "site_crawl_by_day",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=timezone.utc),
    catchup=False,
    # Two concurrent crawls would put twice the traffic on the site.
    max_active_runs=1,
    params={
        "site": Param("https://example.org/", type="string", format="uri", description="Where the crawl begins"),
        "max_credits": Param(500, type="number", description="Lowers the limit of pages to what they may cost"),
    },
    tags=["weblake"],
):
    WeblakeCrawlOperator(
        task_id="crawl",
        url="{{ params.site }}",
        options={"scrape_options": {"formats": ["markdown", "links"]}},
        to=ROOT,
        partition={"load_date": DAY},
        max_credits="{{ params.max_credits }}",
        deferrable=True,
        retries=4,
        # The event of this asset carries the load's receipt.
        outlets=[PAGES],
    )

with DAG(
    "site_crawl_report",
    doc_md=__doc__,
    schedule=[PAGES],
    params={"most_failed": Param(0.2, type="number", description="The share of pages that may fail")},
    tags=["weblake"],
):

    @task
    def judge(params: Any = None, triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        """Fail if too many pages failed; otherwise return the loads' receipts. Several events may start one run."""
        receipts = [event.extra for event in triggering_asset_events[PAGES]]
        for receipt in receipts:
            bad = receipt["failed"] + receipt["robots_blocked"]
            if bad > params["most_failed"] * receipt["submitted"]:
                raise ValueError(f"{bad} of {receipt['submitted']} pages of load {receipt['load_id']} have failed.")
        return [{name: receipt[name] for name in ("load_id", "stored", "failed", "files")} for receipt in receipts]

    judge()
