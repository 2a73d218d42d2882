"""Tests that parsing a DAG or waiting in a triggerer imports neither Arrow nor pandas, because both happen often.

Each program runs in a separate interpreter and reports which heavy modules Airflow alone had loaded before: fsspec, in
3.3.2. The first asset with a URI makes Airflow load boto3 for the amazon provider's own handler.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

PACKAGE = Path(import_module("airflow_provider_weblake").__file__ or "").parent
#: What must not be loaded by us; Airflow itself has loaded some of it before.
NEVER = {
    *("pyarrow", "pandas", "polars", "numpy", "duckdb", "deltalake", "pyiceberg", "starlette", "uvicorn", "typer"),
    *("rich", "playwright", "websockets", "lxml", "pypdfium2", "openpyxl", "httpx", "weblake_service"),
}
HEAVY = (*NEVER, "openlineage", "boto3", "fsspec")

_PROGRAM = """
import json, sys, time
started = time.perf_counter()
import airflow.sdk
alone = time.perf_counter() - started
before = {{name for name in {heavy!r} if name in sys.modules}}
started = time.perf_counter()
{ours}
print(json.dumps({{
    "alone": alone,
    "ours": time.perf_counter() - started,
    "before": sorted(before),
    "after": sorted(name for name in {heavy!r} if name in sys.modules),
}}))
"""

DAG_FILE = """
import airflow_provider_weblake.operators.weblake as operators, airflow_provider_weblake.sensors.weblake as sensors
from airflow.sdk import DAG
from airflow_provider_weblake.assets.weblake import weblake_asset
with DAG("parsed", schedule=None):
    asset = weblake_asset("s3://lake/web")
    operators.WeblakeBatchScrapeOperator(
        task_id="batch", urls=["https://a.example.com"], to="s3://lake/web", outlets=[asset]
    )
    operators.WeblakeCrawlOperator(task_id="crawl", url="https://a.example.com", to="s3://lake/web")
    sensors.WeblakeCrawlSensor(task_id="sensor", job_id="0a1b2c3d-0000-4000-8000-000000000000")
with DAG("consumer", schedule=[asset]):
    operators.WeblakeUsageOperator(task_id="usage", to="s3://lake/web")
"""


def run(ours: str) -> dict[str, Any]:
    program = _PROGRAM.format(heavy=HEAVY, ours=ours)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_a_dag_file_loads_nothing_heavy() -> None:
    found = run(DAG_FILE)
    print(f"airflow.sdk {found['alone']:.2f} s, then ours {found['ours']:.2f} s; {found['after']}")
    assert {"pyarrow", "pandas"} & set(found["before"]) == set(), "Airflow loads these now: then this proves nothing"
    assert NEVER & set(found["after"]) - set(found["before"]) == set()


def test_no_module_loads_arrow_when_it_is_imported() -> None:
    names = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py"))
    modules = {".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in names}
    assert len(modules) > 15
    imports = "\n".join(f"import {name}" for name in sorted(modules))
    # A control: Arrow is found where something loads it afterwards.
    steps = f"{imports}\nassert 'pyarrow' not in sys.modules\n"
    found = run(f"{steps}from weblake import orchestration\norchestration.table_schema('documents')")
    assert {"pandas", "polars"} & set(found["after"]) == set()
    assert "pyarrow" in found["after"]
