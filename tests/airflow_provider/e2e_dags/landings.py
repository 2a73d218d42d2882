"""DAGs of the end-to-end tests; the URLs and the dataset are in each run's conf."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, task

from airflow_provider_weblake.operators.weblake import (
    WeblakeBatchScrapeOperator,
    WeblakeLandOperator,
)
from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor

URLS = "{{ dag_run.conf['urls'] | tojson }}"
TO = "{{ dag_run.conf['to'] }}"
#: A page that is held must not end by itself before a test lets it go, however busy the machine is.
HELD = {"timeout": 240_000}
LANDED = Asset("weblake://file/e2e/documents")
SYNCED = Asset("weblake://file/e2e-synced/documents")


def batch(**kwargs: object) -> WeblakeBatchScrapeOperator:
    defaults = {"task_id": "land", "urls": URLS, "to": TO, "poll_interval": 1, "retries": 2}
    defaults["options"] = HELD
    return WeblakeBatchScrapeOperator(**(defaults | {"retry_delay": timedelta(seconds=1)} | kwargs))


with DAG("deferred", schedule=None):
    batch(deferrable=True)

with DAG("blocking", schedule=None):
    batch(deferrable=False)

with DAG("synced", schedule=None):
    batch(deferrable=True, sync_tables=True, catalog_conn_id="down", outlets=[SYNCED])

with DAG("late", schedule=None):
    batch(deferrable=True, deadline=timedelta(seconds=8))

with DAG("late_partial", schedule=None):
    batch(deferrable=True, deadline=timedelta(seconds=8), allow_partial=True)

with DAG("short_run", schedule=None, dagrun_timeout=timedelta(hours=1)):
    batch(deferrable=True)

with DAG("apart", schedule=None):
    start = batch(task_id="start", wait_for_completion=False)
    watch = WeblakeBatchScrapeSensor(
        task_id="watch",
        job_id="{{ ti.xcom_pull(task_ids='start', key='job_id') }}",
        deferrable=True,
        poke_interval=1,
        timeout=600,
    )
    land = WeblakeLandOperator(
        task_id="land",
        kind="batch",
        job_id="{{ ti.xcom_pull(task_ids='start', key='job_id') }}",
        to=TO,
        outlets=[LANDED],
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
    start >> watch >> land

with DAG("watching", schedule=None):
    WeblakeBatchScrapeSensor(
        task_id="watch",
        job_id="{{ dag_run.conf['job_id'] }}",
        deferrable=True,
        poke_interval=1,
        timeout=600,
    )

with DAG("consumer", schedule=[LANDED]):

    @task
    def read(triggering_asset_events=None) -> dict[str, object]:
        (event,) = triggering_asset_events[LANDED]
        return dict(event.extra)

    read()
