"""Store the pages of urls.txt every night, in the partition of that night."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

HERE = Path(__file__).resolve().parent.parent

with DAG(
    "web_pages",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    params={
        "urls": Param(str(HERE / "urls.txt"), type="string", description="The list: text, CSV or Parquet"),
        "root": Param(os.environ.get("WEBLAKE_ROOT", str(HERE / "lake")), type="string"),
    },
) as dag:
    WeblakeBatchScrapeOperator(
        task_id="land",
        urls="{{ params.urls }}",
        options={"formats": ["markdown", "links"]},
        to="{{ params.root }}",
        partition={"load_date": "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"},
        max_credits=100,  # a night that would cost more is not started
        deadline=timedelta(hours=2),
        retries=4,
    )
