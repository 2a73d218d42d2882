"""Runs one of the example DAGs to its end against a real service, without an Airflow installation that is set up.

    AIRFLOW_CONN_WEBLAKE_DEFAULT='{"conn_type": "weblake", "host": "http://127.0.0.1:8900", "password": "…"}' \
    WEBLAKE_ROOT=$PWD/lake python -m airflow_provider_weblake.run_example site_crawl_by_day \
        --params '{"site": "https://example.org/", "max_credits": 20}'

Airflow gets a temporary home with a metadata database, which is removed at the end; connections come from the
environment and are not stored. Airflow's output goes to standard error; standard output gets one JSON object,
`{"dag_id", "state", "tasks": {id: state}, "returned": {id: value}}`. The exit code is 0 if the run has succeeded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

EXAMPLES = Path(__file__).with_name("example_dags")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example that the command line names; return the exit code."""
    names = sorted(path.stem for path in EXAMPLES.glob("[!_]*.py"))
    parser = argparse.ArgumentParser(prog="python -m airflow_provider_weblake.run_example", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("example", choices=names, help="the file, and the first DAG in it")
    parser.add_argument("--params", metavar="JSON", type=json.loads, default={}, help="values for the DAG's params")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the home is removed on SIGTERM, too
    with _only_result_on_stdout() as result, _home(given.example):
        outcome = run(given.example, given.params)
        result.write(json.dumps(outcome, default=str) + "\n")
    return 0 if outcome["state"] == "success" else 1


def run(example: str, params: Mapping[str, object]) -> dict[str, object]:
    """Run the DAG that is named like its file, in the home that the environment names; return its result."""
    from airflow.utils.db import initdb

    from airflow_provider_weblake.features import dag_bag_in_database

    initdb()
    bag = dag_bag_in_database(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    if bag.import_errors:
        raise RuntimeError(f"{example} cannot be read: {'; '.join(bag.import_errors.values())}")
    dag = bag.dags[example]
    for task in dag.tasks:
        task.retries = 0  # a user waits for the result
        if hasattr(task, "deferrable"):
            task.deferrable = False  # there is no triggerer here
    ran = dag.test(run_conf=dict(params))
    instances = ran.get_task_instances()
    return {
        "dag_id": example,
        "state": str(ran.state),
        "tasks": {ti.task_id: str(ti.state) for ti in instances},
        "returned": {ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in instances},
    }


@contextmanager
def _home(example: str) -> Iterator[None]:
    """Make a temporary Airflow home with the one file in its DAG folder; remove it at the end of the block."""
    home = Path(tempfile.mkdtemp(prefix="weblake-airflow-"))
    try:
        (home / "dags").mkdir()
        shutil.copy(EXAMPLES / f"{example}.py", home / "dags")
        os.environ |= {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "_AIRFLOW_PROCESS_CONTEXT": "client",
        }
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _only_result_on_stdout() -> Iterator[TextIO]:
    """Redirect all writes to standard output to standard error; yield the original standard output."""
    kept = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    try:
        with os.fdopen(kept, "w", closefd=False, encoding="utf-8") as result:
            yield result
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    raise SystemExit(main())
