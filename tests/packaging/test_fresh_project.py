"""Tests of a new project from Dagster's own scaffold, to which a user adds the wheels with uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

COMPONENTS = ("WeblakeBatchScrapeComponent", "WeblakeCrawlComponent", "WeblakeUsageComponent")


def run(folder: Path, *command: str) -> str:
    """Runs uv as in a shell without a project of its own, and returns what was printed."""
    uv = shutil.which("uv")
    assert uv is not None, "uv runs these tests"
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "VIRTUAL_ENV"))}
    env = ours | {"UV_PYTHON": sys.executable, "DAGSTER_DISABLE_TELEMETRY": "1", "COLUMNS": "200"}
    done = subprocess.run([uv, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_the_package_is_added_to_a_new_dagster_project(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The scaffold also supports Python 3.10, and uv refuses a dependency that does not until the project says so."""
    # Every release of the scaffold asks for the Dagster of the same number.
    scaffold = f"create-dagster=={version('dagster-dg-cli')}"
    run(tmp_path, "tool", "run", scaffold, "project", "fresh", "--no-uv-sync")
    project = tmp_path / "fresh"
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('requires-python = ">=3.10,', 'requires-python = ">=3.11,'))
    run(project, "add", "--find-links", str(wheels["weblake"].parent), "dagster-weblake")
    dg = ("run", "--no-sync", "dg")
    run(project, *dg, "scaffold", "defs", "dagster_weblake.WeblakeCrawlComponent", "docs", "--url", "http://a.test/")
    listed = run(project, *dg, "list", "components", "--json")
    assert [name for name in COMPONENTS if f"dagster_weblake.{name}" not in listed] == []
    run(project, *dg, "check", "defs")
