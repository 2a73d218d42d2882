"""Every night the pages of a list become one Parquet file, in the partition of that night.

The list is a Parquet file with a column `url` that another job keeps (text and CSV files do as well). What a night
costs is bounded before it begins, a retry goes on with the job that is paid for, and a night that is cleared or run
again takes the place of the one before. Point WEBLAKE_ROOT and the connection `weblake_default` to your own.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

#: Where it lands. The part before the @ names an Airflow connection; a local path does as well.
ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
#: `{{ ds }}` fails in a run without a logical date, as one that is triggered through the API may be; this never does.
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
        # The key that loads without a partition have, too: all that lands in one root shares one set of keys.
        partition={"load_date": DAY},
        max_credits="{{ params.max_credits }}",
        # Waits in the triggerer: no worker is held for the hours that a long list takes.
        deferrable=True,
        # From the record of the intent, all retries included; then the job is cancelled, and what it had is kept.
        deadline=timedelta(hours=6),
        # Only what another try can help is tried again, at the pace the service names: WeblakeRetryPolicy.
        retries=4,
        outlets=[weblake_asset(ROOT)],
    )
