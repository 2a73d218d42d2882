"""The tests, calls and tables of docs/testing.md are executed and compared with the service."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from weblake.testing import WeblakeSite
from weblake.testing.site_special_paths import ENCODINGS, REDIRECTS
from weblake_service.config import ServiceConfig
from weblake_service.faults import read_file
from weblake_service.faults.rule_files import ALIASES
from weblake_service.faults.rules import Effect
from weblake_service.server import LocalService

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
GUESTS = {"test_prices_dag.py", "test_assets.py", "dags/prices.py"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def run(folder: Path, *arguments: str) -> str:
    """Run pytest as a reader would, in an otherwise empty folder."""
    code = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", "-p", "weblake.testing", *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def write(folder: Path, names: set[str]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(FILES[name])
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = dags\n")
    return folder


def test_every_python_block_is_executed() -> None:
    assert len(FILES) == len(blocks("python"))
    assert {name for name in FILES if name.startswith("test_")} >= {
        "test_lake.py",
        "test_crash.py",
        "test_hook.py",
        "test_limits.py",
        "test_trouble.py",
    }


@pytest.mark.timeout(1900)
@pytest.mark.system  # takes a minute
def test_the_documented_tests_pass(tmp_path: Path) -> None:
    names = set(FILES) - GUESTS
    passed = re.search(r"(\d+) passed", run(write(tmp_path, names)))
    assert passed is not None
    assert int(passed[1]) >= len(names)


@pytest.mark.timeout(1900)
@pytest.mark.system
def test_the_documented_dag_lands(tmp_path: Path) -> None:
    folder = write(tmp_path, {"test_prices_dag.py", "dags/prices.py"})
    (commands,) = [block for block in blocks("sh") if "airflow db migrate" in block]
    programs = str(Path(sys.executable).parent)
    environment = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
    done = subprocess.run(
        ["sh", "-ec", commands],
        cwd=folder,
        env={
            **environment,
            "PATH": f"{programs}:{environment['PATH']}",
            "PYTHONPATH": str(ROOT / "tests" / "airflow_provider" / "airflow_patches"),
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        },
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "1 passed" in done.stdout


def test_the_documented_calls_succeed() -> None:
    (calls,) = [block for block in blocks("sh") if "curl" in block]
    named = set()
    with LocalService(keys="test-key", config=ServiceConfig(testing=True)) as service:
        for line in calls.splitlines():
            words = iter(shlex.split(line)[1:])
            method, body, headers, path = "GET", None, {}, ""
            for word in words:
                if word == "-X":
                    method = next(words)
                elif word == "-d":
                    body = next(words)
                elif word == "-H":
                    name, _, value = next(words).partition(": ")
                    headers[name] = value
                else:
                    path = word.removeprefix("http://127.0.0.1:8900")
            reply = httpx.request(method, service.url + path, content=body, headers=headers, verify=False)
            assert reply.status_code == 200, (line, reply.text)
            named.add((method, path.removeprefix("/_weblake/")))
    table = TEXT.partition("| call | what it does |")[2]
    for _, path in named:
        assert re.search(rf"`[^`]*\b{path}\b[^`]*`", table), path


def test_the_documented_rules_file_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "faults.toml").write_text(text)
    assert [rule.subject_kind for rule in read_file(tmp_path / "faults.toml")] == ["request", "page"]


def test_the_tables_list_every_effect() -> None:
    tables = TEXT.partition("## Faults")[2].partition("## The control")[0]
    cells = re.findall(r"^\| (`[a-z_]+`.*?) \|", tables, re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)}
    assert listed == {field.name for field in msgspec.structs.fields(Effect)} | set(ALIASES)


def test_the_table_lists_every_special_path_of_the_site(weblake_site: WeblakeSite) -> None:
    table = TEXT.partition("| path | response |")[2].partition("\n\n")[0]
    listed: set[str] = set()
    for cell in re.findall(r"^\| (`/.*?) \|", table, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            folder = name.rpartition("/")[0] if name.startswith("/") else folder
            listed.add(name if name.startswith("/") else f"{folder}/{name}")
    odd = {path for path in weblake_site._special.responses if not path.endswith("/")}
    inner = {path for path in odd if path.startswith(("/redirects/chain/", "/redirects/loop/", "/media/", "/private/"))}
    assert {path.partition("?")[0] for path in listed} - {"/news/"} == odd - inner
    assert {*REDIRECTS, *ENCODINGS, *weblake_site.files} <= odd
