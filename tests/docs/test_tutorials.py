"""The tutorials, run literally; tests/airflow_provider/test_airflow_docs.py has the one about Airflow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lab_resources import free_port
from page_blocks import follow

pytestmark = pytest.mark.system

TUTORIALS = Path(__file__).parents[2] / "docs" / "site" / "tutorials"


@pytest.mark.parametrize(("name", "columns"), [("folder", 200), ("table", 200), ("testing", 80), ("dagster", 100)])
def test_a_tutorial_prints_what_it_says(tmp_path: Path, name: str, columns: int) -> None:
    page = (TUTORIALS / f"{name}.md").read_text().replace("/home/me/first-asset", str(tmp_path))
    for port in ("8765", "8766", "8900"):
        page = page.replace(port, str(free_port()))
    port = free_port()  # of a server that ends when it has answered, in place of a person who ends it
    serve = f"dg dev --port {port} > dev.log 2>&1 &\nDEV=$!"
    until = f"until curl -sf -o dev.json http://127.0.0.1:{port}/server_info; do sleep 0.2; done"
    page = page.replace("\ndg dev\n", f"\n{serve}\n{until}\nkill $DEV\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "WEBLAKE"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": str(columns),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PYTEST_ADDOPTS": "-p weblake.testing",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    follow(page, tmp_path, environment, strict=name != "testing")  # which shows a test that fails
