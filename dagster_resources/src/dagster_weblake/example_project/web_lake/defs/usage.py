"""The team's usage by month, checked against a budget. Reading it costs nothing.

The service reports all months at once: a backfill of eight of them is one run and one call.
"""

import dagster as dg

from dagster_weblake import ActivityRequest, UsageRequest, build_usage_checks, build_weblake_assets

#: The current month is a partition, too; it is replaced whole each time, until it has closed.
MONTHS = dg.MonthlyPartitionsDefinition(start_date="2026-04-01", end_offset=1)

usage = build_weblake_assets(
    dg.AssetSpec("usage", group_name="account", automation_condition=dg.AutomationCondition.on_cron("0 6 * * *")),
    UsageRequest(budget=100_000),
    partitions_def=MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)

usage_checks = build_usage_checks(usage)


@dg.schedule(cron_schedule="0 6 2 * *", target=dg.AssetSelection.assets("usage"))
def usage_closed(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Land the previous month once more: its period has closed, so that these are its final numbers."""
    return dg.RunRequest(partition_key=MONTHS.get_partition_keys(context.scheduled_execution_time)[-2])


activity = build_weblake_assets(dg.AssetSpec("activity", group_name="account"), ActivityRequest())
