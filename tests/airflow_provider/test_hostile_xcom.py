"""Tests that untrusted texts reach the metadata database without NUL, which PostgreSQL refuses in JSON."""

from __future__ import annotations

import json

import pytest
from catalogue import proves
from dag_runs import Run, returned, run_one

from weblake.testing import WeblakeService

SCRAPE = "0198a7c0-1111-7000-8000-000000000001"


@proves(
    "H26",
    at="airflow_provider/src/airflow_provider_weblake/operators/discovery.py",
    line='return value.replace("\\0", "\\ufffd")',
    becomes="return value",
)
def test_h26_output_of_a_page_reaches_xcom_without_nul(run_dag: Run, weblake_connection: WeblakeService) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    printed = {"success": True, "stdout": "a\0b", "result": {"k\0": ["\0", {"deep": "\0\\u0000"}]}, "exitCode": 0}
    weblake_connection.faults(
        {
            "match": {"method": "POST", "path": "/interact$"},
            "effect": {"status": 200, "body": json.dumps(printed).replace('"a', r'"\ud800a')},
        },
        {"match": {"method": "DELETE", "path": "/interact$"}, "effect": {"status": 200, "body": {"success": True}}},
    )
    run = run_one(run_dag, lambda: WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1"))
    told = returned(run, "do")
    assert told["stdout"] == "\ufffda\ufffdb"
    assert told["result"] == {"k\ufffd": ["\ufffd", {"deep": "\ufffd\\u0000"}]}


@proves(
    "H26",
    at="airflow_provider/src/airflow_provider_weblake/triggers/events.py",
    line='.geturl().replace("\\0", "")[:_TARGET_CHARS]',
    becomes=".geturl()[:_TARGET_CHARS]",
)
@pytest.mark.parametrize("target", ["https://site.test/\0a", "\0https://site.test/a", "https://site.test/a\0?x"])
def test_h26_the_target_of_an_event_holds_no_nul(target: str) -> None:
    from airflow_provider_weblake.triggers import events

    shown = events._target_text(target)
    assert shown is not None
    assert "\0" not in shown
    assert "site.test" in shown
