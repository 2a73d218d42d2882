"""Tests of `weblake init`: what it makes, that each project passes its own test, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_in_process import run_command
from page_blocks import files

TESTS = Path(__file__).parents[1]
PATCHES = TESTS / "airflow_provider" / "airflow_patches"
#: The test of a DAG that the page about tests shows for the project of `weblake init airflow`.
PAGE = TESTS.parent / "docs" / "site" / "tasks" / "testing.md"
#: Files that show what a project of each kind is, beside those that all kinds have.
FILES = {
    "plain": {"pages.py", "test_pages.py"},
    "airflow": {"dags/web_pages.py", "test_web_pages.py", "conftest.py", "requirements.txt"},
    "dagster": {"web_pages/defs/pages/defs.yaml", "web_pages/definitions.py", "test_web_pages.py", "dg.toml"},
}
#: Commands of the READMEs that can be run without a network and a server.
CHECKS = {"plain": "weblake doctor lake", "airflow": "airflow dags list", "dagster": "dg check defs"}


@pytest.mark.parametrize("kind", FILES)
def test_a_project_has_its_files(tmp_path: Path, kind: str) -> None:
    code, out, _ = run_command(["init", kind, str(tmp_path / "new" / "project"), "--json"], {})
    assert code == 0
    made = {str(path.relative_to(tmp_path / "new" / "project")) for path in tmp_path.rglob("*") if path.is_file()}
    assert made == set(json.loads(out)["files"])
    assert made >= {"README.md", "urls.txt", "pytest.ini", ".gitignore", *FILES[kind]}
    assert not [name for name in made if "__pycache__" in name]


@pytest.mark.parametrize("taken", ["project/notes.txt", "project"])
def test_a_folder_with_files_and_a_file_are_refused(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("mine")
    code, out, err = run_command(["init", "plain", str(tmp_path / "project")], {})
    assert (code, out) == (1, "")
    assert "project is not an empty folder. Name a new or an empty one." in err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [Path(taken).name]


@pytest.mark.system  # starts pytest, Airflow and Dagster
@pytest.mark.parametrize("kind", FILES)
def test_a_new_project_passes_its_own_test_and_its_commands_run(tmp_path: Path, kind: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not re.match("_?AIRFLOW|DAGSTER|WEBLAKE", name)}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "-p no:randomly -p no:cacheprovider",
        "PYTHONPATH": str(PATCHES) if kind == "airflow" else "",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    for command in (f"weblake init {kind}", "pytest -q", CHECKS[kind]):
        if kind == "airflow" and command == CHECKS[kind]:
            environment |= dict(re.findall(r"(AIRFLOW_[A-Z_]+)=(\S+)", (tmp_path / "new/README.md").read_text()))
            environment = {name: value.replace("$PWD", str(tmp_path / "new")) for name, value in environment.items()}
        (tmp_path / "new").mkdir(exist_ok=True)
        if kind == "airflow" and command == "pytest -q":
            (tmp_path / "new" / "test_documented.py").write_text(files(PAGE.read_text())["test_web_pages.py"])
        done = subprocess.run(
            command.split(), cwd=tmp_path / "new", env=environment, capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
        assert {"pytest -q": " passed", "airflow dags list": "web_pages"}.get(command, "") in done.stdout
