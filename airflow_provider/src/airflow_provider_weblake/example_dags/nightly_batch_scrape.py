"""Scrape the pages of a list every night into one Parquet file, in the partition of that night.

The list is a Parquet file with a column `url` that another job maintains (text and CSV files work as well). The cost of
a night is bounded before it begins, a retry continues with the job that is paid for, and a night that is cleared or run
again replaces its earlier load. Set WEBLAKE_ROOT and the connection `weblake_default` to your own.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

#: The root of the dataset. The part before the @ names an Airflow connection; a local path works as well.
ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
#: `{{ ds }}` fails in a run without a logical date, such as a run triggered through the API; this template does not.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"

with DAG(
    "nightly_batch_scrape",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=timezone.utc),
    catchup=False,
    params={
        "urls": Param("s3://aws_default@lists/urls.parquet", type="string", description="The list: Parquet, CSV, text"),
        "max_credits": Param(50_000, type="number", description="A night that would cost more is not started"),
    },
    tags=["weblake"],
):
    WeblakeBatchScrapeOperator(
        task_id="scrape",
        urls="{{ params.urls }}",
        options={"formats": ["markdown", "links"]},
        to=ROOT,
        # Loads without a partition use the same key: all loads of a root share one set of keys.
        partition={"load_date": DAY},
        max_credits="{{ params.max_credits }}",
        # The task waits in the triggerer, so a long list does not hold a worker for hours.
        deferrable=True,
        # Counted from the record of the intent, all retries included; then the job is cancelled, and its pages are
        # kept.
        deadline=timedelta(hours=6),
        # Only failures that another try can help are retried, at the pace that the service names: see
        # WeblakeRetryPolicy.
        retries=4,
        outlets=[weblake_asset(ROOT)],
    )
