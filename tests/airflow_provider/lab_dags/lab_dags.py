"""Small DAGs for the tests of the lab itself."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, Context, dag, task


class Defers(BaseOperator):
    """Waits in the triggerer for as long as the run's conf says, in seconds."""

    def execute(self, context: Context) -> None:
        """Leaves the worker."""
        seconds = (context["dag_run"].conf or {}).get("seconds", 1)
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=seconds)), method_name="resume")

    def resume(self, context: Context, event: Any) -> str:
        """Comes back."""
        print("resumed on a worker")
        return "resumed"


@dag(schedule=None)
def lab_trivial() -> None:
    """One task that returns what it was asked for."""

    @task
    def say(**context: Any) -> dict[str, Any]:
        print("said on a worker")
        return {"text": (context["dag_run"].conf or {}).get("text", "nothing"), "pid": os.getpid()}

    say()


@dag(schedule=None)
def lab_deferred() -> None:
    """One task that waits in the triggerer."""
    Defers(task_id="wait")


@dag(schedule=None)
def lab_busy() -> None:
    """One task that holds its worker in its first try, and starts a child of its own."""

    @task(retries=1, retry_delay=timedelta(seconds=0))
    def hold(**context: Any) -> int:
        if context["ti"].try_number == 1:
            pid = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
            Path(context["dag_run"].conf["pid_file"]).write_text(str(pid))
            time.sleep(600)
        return int(context["ti"].try_number)

    hold()


lab_trivial()
lab_deferred()
lab_busy()
