"""A DAG that runs when a batch that was started elsewhere has completed."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetWatcher, dag, task

from airflow_provider_weblake.triggers.weblake import WeblakeJobsCompletedTrigger, WeblakeUsagePeriodTrigger

COMPLETED = AssetWatcher(name="batches", trigger=WeblakeJobsCompletedTrigger(poll_interval=1.0))
BATCHES_DONE = Asset("batches_done", watchers=[COMPLETED])
#: Watched with equal arguments: one trigger for Airflow.
ALSO_DONE = Asset("also_done", watchers=[COMPLETED])
USAGE = Asset(
    "usage_closed", watchers=[AssetWatcher(name="usage", trigger=WeblakeUsagePeriodTrigger(poll_interval=1.0))]
)


@dag(schedule=[BATCHES_DONE], catchup=False)
def on_batches() -> None:
    """Says which jobs have been announced: those of this run, and those that came while it was being made."""

    @task(inlets=[BATCHES_DONE])
    def seen(inlet_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra["payload"] for event in inlet_events[BATCHES_DONE]]

    seen()


@dag(schedule=(ALSO_DONE & USAGE), catchup=False)
def on_both() -> None:
    """Keeps the other assets in use."""

    @task
    def nothing() -> None:
        pass

    nothing()


on_batches()
on_both()
