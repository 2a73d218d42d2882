"""Land the team's usage every day, and send an alert when the month is over its budget.

Reading usage and activity costs nothing. The file of a month is replaced whole, so any day may be run again.
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
    # A separate report, split by API key.
    WeblakeUsageOperator(task_id="usage_by_key", report="credits", by_api_key=True, to=ROOT)
    # The service lists a call for 24 hours; calls that are not landed by then cannot be read any more.
    WeblakeActivityOperator(task_id="activity", to=ROOT, outlets=[weblake_asset(ROOT, "activity")])

    @task.short_circuit
    def over_budget(report: Any) -> bool:
        """Return whether the month is over its budget; if it is not, the alert is skipped."""
        return bool(report["over_budget"])

    @task
    def alert(report: Any, params: Any = None) -> str:
        """Return the text of the alert; replace this with the notifier that your team uses."""
        text = f"{report['total_current']:g} credits are used this month, over the budget of {params['budget']:g}."
        print(text)  # noqa: T201  # it goes to the task's log
        return text

    over_budget(usage.output) >> alert(usage.output)
