"""The demo's Airflow step: it ends with the demo, and says what went wrong."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weblake.demo import airflow_step, run_demo
from weblake.demo.airflow_step import AirflowFailed
from weblake.demo.guest_process import Lake, missing_packages_text
from weblake_service.server import LocalService

pytestmark = pytest.mark.system

DEADLINE_S = 120.0


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def test_ctrl_c_ends_airflow_too_and_leaves_nothing(demo: subprocess.Popen[str], scratch: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not list(scratch.glob("*/weblake-airflow-*/airflow.db")):
        assert time.monotonic() < deadline, "Airflow did not start"
        assert demo.poll() is None
        time.sleep(0.05)
    (airflow,) = (pid for pid in children(demo.pid) if b"run_example" in Path(f"/proc/{pid}/cmdline").read_bytes())
    demo.send_signal(signal.SIGINT)
    assert demo.stderr is not None
    rest = demo.stderr.read()
    assert demo.wait(30) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert not Path(f"/proc/{airflow}").exists()
    assert os.listdir(scratch) == []


def test_a_run_that_fails_shows_its_last_lines_and_no_key(tmp_path: Path) -> None:
    key = f"test-canary-{secrets.token_hex(8)}"
    with LocalService() as service:  # which does not know this key
        lake = Lake(tmp_path / "lake", "http://127.0.0.1:9/", service.url, key)
        with pytest.raises(AirflowFailed, match="site_crawl_by_day ended as failed") as raised:
            airflow_step.run(lake, 5)
        assert service.counts().get("crawl_started", 0) == 0
    log = "\n".join(raised.value.log)
    assert "AuthenticationFailed" in log
    assert len(raised.value.log) <= 20
    assert key not in log + str(raised.value)


def test_the_demo_shows_these_lines_and_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(lake: Lake, max_credits: int) -> None:
        raise AirflowFailed("The DAG ended as failed.", ["first [line]", "last line"])

    monkeypatch.setattr(airflow_step, "run", fails)
    with pytest.raises(AirflowFailed, match="stand above"):
        run_demo(tmp_path / "lake")
    told = capfd.readouterr().err
    assert "first [line]\n  last line" in told
    assert "usage" not in told


def test_what_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(airflow_step, "_command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(airflow_step, "TIMEOUT_S", 2.0)
    with pytest.raises(AirflowFailed, match="longer than 2 s"):
        airflow_step.run(Lake(tmp_path, "", "", "test-key"), 1)
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert airflow_step.missing() == []
    for name in airflow_step.NEEDED:
        monkeypatch.setitem(sys.modules, name, None)
    lacking = airflow_step.missing()
    assert lacking == ["airflow", "airflow_provider_weblake"]
    assert "airflow and airflow_provider_weblake not installed" in missing_packages_text(lacking, airflow_step.PACKAGE)
