"""Map a site every night, and pay only for what is due: new pages, pages that failed, and pages older than a week.

`map` writes the URLs of the site to a file. `scrape` compares them with the pages that have landed in the dataset, and
sends the others; the receipt counts `requested = fresh + submitted`. With nothing due the task succeeds and starts
nothing. Clearing `scrape` buys the pages of its night again, because its load is replaced.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator, WeblakeMapOperator

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"

with DAG(
    "due_pages_nightly",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=timezone.utc),
    catchup=False,
    # Two loads at the same time may both buy a page, because neither has landed when the other chooses.
    max_active_runs=1,
    params={
        "site": Param("https://example.org/", type="string", format="uri", description="The site"),
        "urls": Param("s3://aws_default@lists/site.txt", type="string", description="Where the list of URLs is kept"),
        "refresh_after": Param("7d", type="string", description="The age at which a page is due again, or never"),
        "max_credits": Param(5_000, type="number", description="A night that would cost more is not started"),
    },
    tags=["weblake"],
):
    site_map = WeblakeMapOperator(task_id="map", url="{{ params.site }}", to="{{ params.urls }}", retries=4)
    scrape = WeblakeBatchScrapeOperator(
        task_id="scrape",
        urls="{{ params.urls }}",
        refresh_after="{{ params.refresh_after }}",
        options={"formats": ["markdown"]},
        to=ROOT,
        # One value for each run: the loads of one value replace each other, and their pages do not count as fresh.
        partition={"load_date": DAY},
        max_credits="{{ params.max_credits }}",
        deferrable=True,
        deadline=timedelta(hours=6),
        retries=4,
        outlets=[weblake_asset(ROOT)],
    )
    site_map >> scrape
