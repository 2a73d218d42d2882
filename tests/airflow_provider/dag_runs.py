"""Runs of a single task as a DAG with `dag.test()`, and access to their results."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

Run = Callable[..., Any]


def run_one(run_dag: Run, make: Callable[[], object], dag_id: str | None = None, **kwargs: Any) -> Any:
    """Runs the task that `make` makes and returns the finished DAG run."""
    with DAG(dag_id or f"one_task_{uuid.uuid4().hex[:8]}", schedule=None) as dag:
        make()
    return run_dag(dag, **kwargs)


def returned(run: Any, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
    """The value of an XCom, as plain JSON; None where there is none."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(XComModel.value).where(
            XComModel.dag_id == run.dag_id,
            XComModel.run_id == run.run_id,
            XComModel.task_id == task_id,
            XComModel.key == key,
            XComModel.map_index == map_index,
        )
        value = session.scalar(query)
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def states(run: Any) -> dict[str, str]:
    """The state of each task."""
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def task_logs(capfd: pytest.CaptureFixture[str]) -> str:
    """Return the log of the tasks, which Airflow writes to standard output."""
    return "".join(capfd.readouterr())
