"""Airflow's terms for the core's remedies."""

from __future__ import annotations

from functools import partial

from weblake.errors import in_terms_of
from weblake.orchestration import Interface

AIRFLOW = Interface(
    name="Airflow",
    run_again="Clear the task",
    start_afresh="trigger a new DAG run",
    another_job="clearing the task",
    cut_again="Clear the task that cut it together with this one",
    timeout="deadline",
    storage_keys="the connection that `to` names, or in the worker's environment",
    base_url="the connection's host",
    api_key="the connection's password",
    insecure='"insecure": true in the connection\'s extra',
    ca_bundle="the file that the connection's extra field ca_bundle names",
    land="WeblakeLandOperator",
    in_activity="with WeblakeActivityOperator",
)

#: A context manager, or a decorator, in which errors of the core are worded for Airflow.
in_airflow_terms = partial(in_terms_of, AIRFLOW)
