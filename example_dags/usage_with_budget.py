"""What the team has used, landed every day, and an alert when the month is over its budget.

Reading usage and activity costs nothing. A month's file is replaced whole, so any day may be run again.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeActivityOperator, WeblakeUsageOperator

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")

with DAG(
    "usage_with_budget",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=timezone.utc),
    catchup=False,
    params={"budget": Param(100_000, type="number", description="Credits that a month may use")},
    default_args={"retries": 4},
    tags=["weblake"],
):
    usage = WeblakeUsageOperator(
        task_id="usage",
        report="credits",
        to=ROOT,
        budget="{{ params.budget }}",
        outlets=[weblake_asset(ROOT, "usage_periods")],
    )
    # A report of its own, by the names of the keys: who has used it.
    WeblakeUsageOperator(task_id="usage_by_key", report="credits", by_api_key=True, to=ROOT)
    # The service lists a call for 24 hours: what is not landed by then is gone.
    WeblakeActivityOperator(task_id="activity", to=ROOT, outlets=[weblake_asset(ROOT, "activity")])

    @task.short_circuit
    def over_budget(report: Any) -> bool:
        """Skips the alert while the month is within its budget."""
        return bool(report["over_budget"])

    @task
    def alert(report: Any, params: Any = None) -> str:
        """Says it; put the notifier that your team reads in here."""
        text = f"{report['total_current']:g} credits are used this month, over the budget of {params['budget']:g}."
        print(text)  # noqa: T201  # it stands in the task's log
        return text

    over_budget(usage.output) >> alert(usage.output)
