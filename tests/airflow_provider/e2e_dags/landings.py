"""DAGs of the end-to-end tests; the URLs and the dataset are in each run's conf."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor

URLS = "{{ dag_run.conf['urls'] | tojson }}"
TO = "{{ dag_run.conf['to'] }}"
#: A page that is held must not end by itself before a test lets it go, however busy the machine is.
HELD = {"timeout": 240_000}


def batch(**kwargs: object) -> WeblakeBatchScrapeOperator:
    defaults = {"task_id": "land", "urls": URLS, "to": TO, "poll_interval": 1, "retries": 2}
    defaults["options"] = HELD
    return WeblakeBatchScrapeOperator(**(defaults | {"retry_delay": timedelta(seconds=1)} | kwargs))


with DAG("deferred", schedule=None):
    batch(deferrable=True)

with DAG("blocking", schedule=None):
    batch(deferrable=False)

with DAG("late", schedule=None):
    batch(deferrable=True, deadline=timedelta(seconds=8))

with DAG("late_partial", schedule=None):
    batch(deferrable=True, deadline=timedelta(seconds=8), allow_partial=True)

with DAG("short_run", schedule=None, dagrun_timeout=timedelta(hours=1)):
    batch(deferrable=True)

with DAG("watching", schedule=None):
    WeblakeBatchScrapeSensor(
        task_id="watch",
        job_id="{{ dag_run.conf['job_id'] }}",
        deferrable=True,
        poke_interval=1,
        timeout=600,
    )
