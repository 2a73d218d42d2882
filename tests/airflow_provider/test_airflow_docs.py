"""Tests of the site's pages about Airflow: the tutorial runs as it stands, the DAGs of the pages parse."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from airflow_home import clean_environment, template_database
from lab_resources import free_port
from page_blocks import codes, follow

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
TUTORIAL = SITE / "tutorials" / "airflow.md"
TEXT = "".join(path.read_text() for path in [TUTORIAL, *sorted((SITE / "airflow").glob("*.md"))])


def test_the_python_blocks_are_dags_that_parse(tmp_path: Path, airflow_db: None) -> None:
    from airflow.dag_processing.dagbag import DagBag

    for number, block in enumerate(block for block in codes(TEXT, "python") if "Client()" not in block):
        (tmp_path / f"airflow_dag_{number}.py").write_text(block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBLAKE_ROOT", "s3://aws_default@lake/web")
        bag = DagBag(str(tmp_path), bundle_name="dags-folder")
    assert not bag.import_errors
    assert not bag.captured_warnings
    named = re.findall(r'^ *(?:with )?DAG\("(\w+)"|^@dag\(.*\ndef (\w+)', TEXT, re.MULTILINE)
    assert sorted(bag.dags) == sorted(name or decorated for name, decorated in named)


@pytest.mark.timeout(600)
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    """In an empty folder but for a migrated database, and with other ports, because those of the page may be in use."""
    (tmp_path / "airflow").mkdir()
    shutil.copyfile(template_database(), tmp_path / "airflow" / "airflow.db")
    page = TUTORIAL.read_text()
    ports = {port: str(free_port()) for port in ("8900", "8765", "8080")}
    for port, free in ports.items():
        page = page.replace(f":{port}", f":{free}").replace(f" {port} -", f" {free} -")
    env = clean_environment() | {"COLUMNS": "200", "AIRFLOW__API__PORT": ports["8080"]}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    env["AIRFLOW__API__BASE_URL"] = f"http://localhost:{ports['8080']}"
    env["AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT"] = str(free_port())
    env["AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT"] = str(free_port())
    assert len(codes(page, "text")) == 5
    follow(page, tmp_path, env, timeout_s=500)


def test_the_names_in_the_text_exist() -> None:
    from airflow_provider_weblake import retry_policy
    from airflow_provider_weblake.operators import weblake as operators
    from airflow_provider_weblake.sensors import weblake as sensors
    from airflow_provider_weblake.triggers import weblake as triggers

    named = set(re.findall(r"\bWeblake\w+", TEXT))
    assert "TableSyncRetryPolicy" in TEXT
    assert hasattr(retry_policy, "TableSyncRetryPolicy")
    assert named <= {name for module in (operators, sensors, triggers, retry_policy) for name in vars(module)}
    assert set(operators.__all__) <= named


def test_the_examples_in_the_text_are_those_that_there_are() -> None:
    listed = set(re.findall(r"^\| `(\w+\.py)` \|", TEXT, re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "example_dags").glob("[!_]*.py")}
