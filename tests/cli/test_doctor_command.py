"""Tests of `weblake doctor`: a healthy machine, each problem that it names, and that no key is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from importlib import metadata
from pathlib import Path

import pytest
from command_in_process import run_command

from weblake.cli import doctor
from weblake.testing import WeblakeFaults, WeblakeService
from weblake.testing.loopback import LoopbackResponse, LoopbackServer

KEY = "wl-0123456789abcdef-secret"


def examine(url: str, *args: str, key: str = KEY) -> tuple[int, dict[str, tuple[str, str]], str]:
    """Run the command; return its exit code, status and text of each check, and all that it printed."""
    code, out, err = run_command(["doctor", *args, "--json"], {"WEBLAKE_BASE_URL": url, "WEBLAKE_API_KEY": key})
    printed = json.loads(out)
    assert printed["ok"] is (code == 0)
    checks = {each["check"]: (each["status"], f"{each['text']} {each['remedy']}") for each in printed["checks"]}
    return code, checks, out + err


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    """A service whose clock is an hour behind."""
    monkeypatch.setattr(
        BaseHTTPRequestHandler, "date_time_string", lambda self: formatdate(time.time() - 3600, usegmt=True)
    )
    with LoopbackServer(lambda request: LoopbackResponse(200, b'{"success": true, "data": []}')) as server:
        yield server


def test_all_is_well(weblake_service: WeblakeService, tmp_path: Path) -> None:
    code, checks, printed = examine(weblake_service.url, str(tmp_path / "lake"), key=weblake_service.key)
    assert code == 0, printed
    assert {name for name, (status, _) in checks.items() if status == "ok"} >= {
        *("system", "weblake", "pyarrow", "extras", "service", "clock", "storage", "loads"),
        *("airflow-provider-weblake", "dagster-weblake"),
    }
    assert f"apache-airflow {metadata.version('apache-airflow')}" in checks["airflow-provider-weblake"][1]
    assert not any(weblake_service.counts().values())
    assert not [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]


def test_each_line_says_what_to_do(weblake_service: WeblakeService, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    environment = {"WEBLAKE_BASE_URL": weblake_service.url, "WEBLAKE_API_KEY": KEY, "COLUMNS": "60", "NO_COLOR": "1"}
    code, out, _ = run_command(["doctor", str(tmp_path / "lake")], environment)
    problems = [line for line in out.splitlines() if not line.startswith("ok ")]
    assert code == 1
    assert [line.split()[:2] for line in problems] == [["problem", "service:"], ["problem", "storage:"]]
    assert all(problem.endswith(".") and problem.count(".") >= 2 for problem in problems)
    assert "WEBLAKE_API_KEY" in problems[0]
    assert KEY not in out
    assert "\x1b" not in out


def test_an_open_load_is_noted(weblake_service: WeblakeService, weblake_faults: WeblakeFaults, tmp_path: Path) -> None:
    weblake_faults.add(status=402, method="POST", path="/v2/batch/scrape$")
    environment = {"WEBLAKE_BASE_URL": weblake_service.url, "WEBLAKE_API_KEY": weblake_service.key}
    assert run_command(["batch", "http://a.example/", "--to", str(tmp_path)], environment)[0] == 1
    code, checks, _ = examine(weblake_service.url, str(tmp_path), key=weblake_service.key)
    assert (code, checks["loads"][0]) == (0, "note")
    assert f"`weblake orphans {tmp_path}`" in checks["loads"][1]


def test_a_clock_that_differs_is_a_problem(late: LoopbackServer) -> None:
    code, checks, printed = examine(late.url)
    assert code == 1
    assert (checks["service"][0], checks["clock"][0]) == ("ok", "problem")
    assert "ahead of the service's" in checks["clock"][1]
    assert KEY not in printed


def test_another_server_is_a_problem() -> None:
    with LoopbackServer(lambda request: LoopbackResponse(404, b"<html>", {"content-type": "text/html"})) as server:
        _, checks, _ = examine(server.url)
    assert checks["service"][0] == "problem"
    assert "Check that the base URL" in checks["service"][1]


def test_a_pyarrow_that_cannot_be_imported_is_one_problem_of_many_checks(late: LoopbackServer) -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from weblake.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor"],
        env={**os.environ, "WEBLAKE_BASE_URL": late.url, "WEBLAKE_API_KEY": KEY},
        capture_output=True,
        text=True,
        timeout=60,
    )
    problem, *others = [line for line in done.stdout.splitlines() if line.startswith("problem")]
    assert done.returncode == 1
    assert problem.startswith("problem  pyarrow: ")
    assert "pip install 'numpy>=2'" in problem
    assert [line.split()[1] for line in others] == ["clock:"]


@pytest.mark.parametrize(
    ("package", "version", "check", "status"),
    [
        ("dagster", "1.12.0", "dagster-weblake", "problem"),
        ("apache-airflow", "4.0.0", "airflow-provider-weblake", "problem"),
        ("pandas", "1.5.3", "extras", "note"),
        ("apache-airflow", "3.1.0rc1", "airflow-provider-weblake", "ok"),
        ("dagster-weblake", None, "dagster", "note"),
    ],
)
def test_unsupported_packages(
    late: LoopbackServer, monkeypatch: pytest.MonkeyPatch, package: str, version: str | None, check: str, status: str
) -> None:
    installed = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == package else installed(name))
    _, checks, _ = examine(late.url)
    found, text = checks[check]
    assert found == status
    assert version is None or version in text
