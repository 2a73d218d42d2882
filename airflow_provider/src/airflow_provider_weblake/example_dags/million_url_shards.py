"""Scrape a list of a million URLs in mapped tasks, one shard of the list for each task; no URL goes through XCom.

`cut` reads the list once and returns the position of each shard in the file, a few hundred bytes a shard. Each mapped
task is a load of its own: one job, one file, one receipt; a task that fails is retried or cleared alone. Do not change
the list until all tasks are done: if the file has changed since it was cut, the task fails and buys nothing.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
from airflow_provider_weblake.url_shards import UrlShard, url_shards

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"

with DAG(
    "million_url_shards",
    doc_md=__doc__,
    schedule="@weekly",
    start_date=datetime(2026, 11, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    params={
        "urls": Param("s3://aws_default@lists/million.parquet", type="string", description="The list of URLs"),
        "per_shard": Param(5000, type="integer", minimum=1, description="URLs of one job"),
    },
    tags=["weblake"],
):

    @task
    def cut(params: Any = None) -> list[UrlShard]:
        """Return the shards of the list; Airflow maps at most 1024 tasks unless `[core] max_map_length` differs."""
        return url_shards(params["urls"], per_shard=params["per_shard"])

    scraped = WeblakeBatchScrapeOperator.partial(
        task_id="scrape",
        options={"formats": ["markdown"]},
        to=ROOT,
        partition={"load_date": DAY},
        deferrable=True,
        deadline=timedelta(hours=12),
        retries=4,
        # Limits the jobs that run at the service at a time, and so the share of the team's concurrency that they use.
        # Airflow 3.0 and 3.1 do not count deferred tasks: use a pool there that includes deferred tasks.
        max_active_tis_per_dagrun=8,
        outlets=[weblake_asset(ROOT)],
    ).expand(urls=cut())

    @task
    def total(receipts: Any) -> dict[str, float]:
        """Return the sums of the counts of all shards."""
        names = ("submitted", "stored", "failed", "robots_blocked", "rejected", "duplicates", "credits_used")
        found = [*receipts]
        return {name: sum(receipt[name] or 0 for receipt in found) for name in names}

    total(scraped.output)
