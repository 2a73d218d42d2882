"""The pages about tests, and the docstrings that they lead to, are executed and compared with the service."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import msgspec
import pytest
from page_blocks import files

from weblake.testing import WeblakeSite, control, faults, site
from weblake.testing.site_special_paths import ENCODINGS, REDIRECTS
from weblake_service.config import ServiceConfig
from weblake_service.faults import read_file
from weblake_service.faults.rule_files import ALIASES
from weblake_service.faults.rules import Effect
from weblake_service.server import LocalService

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "site" / "tasks" / "testing.md").read_text()
FILES = files(TEXT)
#: Needs an Airflow with a home: tests/cli/test_init_command.py runs it in the project of `weblake init airflow`.
OF_AIRFLOW = "test_web_pages.py"


@pytest.mark.timeout(600)
@pytest.mark.system  # takes a minute
def test_the_documented_tests_pass(tmp_path: Path) -> None:
    assert len(FILES) == TEXT.count("```python")
    own = {name: code for name, code in FILES.items() if name != OF_AIRFLOW}
    for name, code in own.items():
        (tmp_path / name).write_text(code)
    program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", "-p", "weblake.testing"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=590,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= sum(code.count("\ndef test_") for code in own.values())


def test_the_documented_calls_of_the_control_api_succeed() -> None:
    text = inspect.getdoc(control) or ""
    calls = re.findall(r"^(GET|PUT|POST|DELETE) (\S+) (.*(?:\n  .*)*)", text, re.MULTILINE)
    assert len(calls) == 11
    with LocalService(keys="test-key", config=ServiceConfig(testing=True)) as service:
        bodies = {("POST", "faults"): json.loads(text.partition("-d '")[2].partition("'")[0].replace("\\\n", ""))}
        for method, name, description in calls:
            shown = re.search(r"\{.*\}", description)
            body = bodies.get((method, name), json.loads(shown[0]) if shown else None)
            headers = {"authorization": "Bearer test-key"} if name != "health" else {}
            reply = httpx.request(method, f"{service.url}/_weblake/{name}", json=body, headers=headers)
            assert reply.status_code == 200, (method, name, reply.text)


def test_the_documented_rules_file_is_valid(tmp_path: Path) -> None:
    text = (inspect.getdoc(faults) or "").partition("file:\n\n")[2]
    (tmp_path / "faults.toml").write_text(textwrap.dedent(text))
    assert [rule.subject_kind for rule in read_file(tmp_path / "faults.toml")] == ["request", "page"]


def test_the_table_lists_every_effect() -> None:
    cells = re.findall(r"^\| ((?:on [a-z ]+: )?`[a-z_]+`.*?) \|", TEXT.partition("| effect |")[2], re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)}
    assert listed == {field.name for field in msgspec.structs.fields(Effect)} | set(ALIASES)


def test_the_fixtures_have_what_the_table_lists(request: pytest.FixtureRequest) -> None:
    rows = re.findall(r"^\| `(weblake_\w+)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 7
    for name, cell in rows:
        if name in ("weblake_service_process", "weblake_environment"):  # a process; a dict
            continue
        fixture = request.getfixturevalue(name)
        named = re.findall(r"`(\w+)(?:\([^`]*\))?`", cell)
        assert not [each for each in named if not hasattr(fixture, each) and each not in ("hits", "remove")], name


def test_the_docstring_lists_every_special_path_of_the_site(weblake_site: WeblakeSite) -> None:
    listed: set[str] = set()
    for line in re.findall(r"^(/\S.*?)   ", inspect.getdoc(site) or "", re.MULTILINE):
        folder = ""
        for name in line.split(", "):
            folder = name.rpartition("/")[0] if name.startswith("/") else folder
            listed.add(name if name.startswith("/") else f"{folder}/{name}")
    odd = {path for path in weblake_site._special.responses if not path.endswith("/")}
    inner = {path for path in odd if path.startswith(("/redirects/chain/", "/redirects/loop/", "/media/", "/private/"))}
    assert {path.partition("?")[0] for path in listed} - {"/news/"} == odd - inner
    assert {*REDIRECTS, *ENCODINGS, *weblake_site.files} <= odd
