"""Tests of docs/airflow.md: its commands run and its DAGs parse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from airflow_home import clean_environment
from lab_resources import free_port

pytestmark = pytest.mark.system

if TYPE_CHECKING:
    from gated_site import GatedSite

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "airflow.md").read_text()
PROGRAMS = f"{Path(sys.executable).parent}"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_python_blocks_are_dags_that_parse(tmp_path: Path, airflow_db: None) -> None:
    from airflow.dag_processing.dagbag import DagBag

    for number, block in enumerate(blocks("python")):
        (tmp_path / f"airflow_dag_{number}.py").write_text(block)
    bag = DagBag(str(tmp_path), bundle_name="dags-folder")
    assert not bag.import_errors
    assert not bag.captured_warnings
    assert sorted(bag.dags) == sorted(re.findall(r'^with DAG\("(\w+)"', TEXT, re.MULTILINE))


def test_the_commands_run_as_they_stand(tmp_path: Path, site: GatedSite) -> None:
    connection, serve, try_it, copy = blocks("sh")
    assert connection.startswith("export AIRFLOW_CONN_WEBLAKE_DEFAULT=")
    port = str(free_port())
    env = clean_environment()
    env |= {"PATH": f"{PROGRAMS}:{env['PATH']}", "AIRFLOW_HOME": str(tmp_path / "home")}
    env["TMPDIR"] = str(tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    install, serve = serve.split("\n", 1)
    assert install == "pip install 'weblake[local]'", "it is installed here"
    # The site lies on loopback, as those of the text do not.
    command = f"{serve.strip()} --allow-private".replace("8900", port).replace("WEBLAKE_API", "exec env WEBLAKE_API", 1)
    service = subprocess.Popen(["sh", "-c", command], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        assert json.loads(service.stdout.readline())["url"].endswith(port)
        commands = try_it.replace("8900", port).replace("https://example.org/", f"{site.url}/")
        done = subprocess.run(
            ["sh", "-ec", commands], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
        )
    finally:
        service.terminate()
        service.wait(30)
    assert done.returncode == 0, done.stderr[-2000:]
    assert os.listdir(tmp_path / "scratch") == [], "the home of run_example is removed"
    told = json.loads(done.stdout.splitlines()[0])
    assert told["returned"]["crawl"]["stored"] == 3
    assert told["returned"]["crawl"]["load_id"] in done.stdout.partition("\n")[2], "`weblake loads` lists it"
    count = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [f"{tmp_path}/lake/documents/**/*.parquet"])
    assert count.fetchall() == [(3,)]

    (tmp_path / "home" / "dags").mkdir(parents=True)
    subprocess.run(["sh", "-ec", copy], cwd=tmp_path, env=env, check=True, timeout=60)
    assert (tmp_path / "home" / "dags" / "site_crawl_by_day.py").is_file()


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


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_links_lead_to_existing_targets(link: str) -> None:
    assert (ROOT / "docs" / link.partition("#")[0]).exists()


def test_the_examples_in_the_text_are_those_that_there_are() -> None:
    listed = set(re.findall(r"^\| `(\w+\.py)` \|", TEXT, re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "example_dags").glob("[!_]*.py")}
