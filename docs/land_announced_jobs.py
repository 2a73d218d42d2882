"""Lands every completed job that an event of its asset announces: one of a webhook, or one of a watcher."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import Variable, dag, task

from airflow_provider_weblake.assets.jobs import weblake_jobs_asset
from airflow_provider_weblake.operators.weblake import WeblakeLandOperator

BATCHES = weblake_jobs_asset("batch_scrape")
#: The Airflow variable with the time up to which all announced jobs are landed.
LANDED = "weblake_landed_up_to"
#: A job's pages can be read for a day; what was announced a minute earlier than the last one may have come after it.
LOOK_BACK, MARGIN = timedelta(days=1), timedelta(minutes=1)


@dag(schedule=[BATCHES], catchup=False, max_active_runs=1)
def land_announced_jobs() -> None:
    """Runs when there are new events, and takes all that have not been landed: one run may stand for several."""

    @task(inlets=[BATCHES])
    def announced(ti: Any = None, inlet_events: Any = None) -> list[dict[str, str]]:
        """The jobs since the last run that landed all of its own, each once."""
        since, done = datetime.now(timezone.utc) - LOOK_BACK, Variable.get(LANDED, default=None)
        if done:
            since = max(since, datetime.fromisoformat(done) - MARGIN)
        found = inlet_events[BATCHES]
        if hasattr(found, "after"):  # since Airflow 3.2; before, it is a list of all events
            found = found.after(since.isoformat())
        events = [event for event in found if event.timestamp >= since]
        if not events:
            return []  # all are older than a job can be read: the DAG was paused for long
        ti.xcom_push("up_to", max(event.timestamp for event in events).isoformat())
        # What a watcher fires lies under `payload`. A failed job is left to those who started it. An event that a
        # person has created may be of no job.
        jobs = [event.extra.get("payload", event.extra) for event in events]
        ended = {(job["kind"], job["job_id"]) for job in jobs if job.get("status") == "completed"}
        return [{"kind": kind, "job_id": job_id} for kind, job_id in ended]

    @task(trigger_rule="none_failed")
    def remember(up_to: str) -> None:
        """Runs when every job is landed."""
        if up_to != "None":
            Variable.set(LANDED, up_to)

    land = WeblakeLandOperator.partial(task_id="land", to=os.environ["WEBLAKE_ROOT"]).expand_kwargs(announced())
    land >> remember("{{ ti.xcom_pull('announced', key='up_to') }}")


land_announced_jobs()
