"""Tests of the Airflow and Dagster steps of the demo: they end with the demo, leave no job, and report errors."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from live_files import find_files

from weblake.client import Client
from weblake.demo import orchestrators, run_demo, steps
from weblake.demo.orchestrators import AIRFLOW, DAGSTER, Lake, Orchestrator, OrchestratorFailed
from weblake_service.server import LocalService

if TYPE_CHECKING:
    from gated_site import GatedSite

pytestmark = pytest.mark.system

DEADLINE_S = 240.0
GOOD = {"failed": [], "loads": {}, "partitions": {}, "checks": {"passed": 3, "failed": []}}


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, orchestrator: Orchestrator, code: str) -> None:
    """Puts a program of ours in the place of an orchestrator's."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/stand_in.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setattr(orchestrators, orchestrator.name.upper(), replace(orchestrator, program="stand_in"))


@pytest.mark.parametrize(
    ("hidden", "sign_of_life"),
    [([], "*/weblake-airflow-*/airflow.db"), (["airflow_provider_weblake"], "*/weblake-dagster-*/history")],
    ids=["airflow", "dagster"],
)
def test_ctrl_c_ends_the_orchestrator_too_and_leaves_nothing(
    demo: subprocess.Popen[str], scratch: Path, sign_of_life: str
) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not find_files(scratch, sign_of_life):
        assert time.monotonic() < deadline, "it did not start"
        assert demo.poll() is None
        time.sleep(0.05)
    (started,) = (pid for pid in children(demo.pid) if b"run_example" in Path(f"/proc/{pid}/cmdline").read_bytes())
    demo.send_signal(signal.SIGINT)
    assert demo.stderr is not None
    rest = demo.stderr.read()
    assert demo.wait(120) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert not Path(f"/proc/{started}").exists()
    assert os.listdir(scratch) == []


def test_an_orchestrator_that_is_interrupted_leaves_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: GatedSite
) -> None:
    """Crawls and batches that run when Ctrl-C comes, whichever of the assets has started them."""
    found: list[str] = []

    def interrupted(lake: Lake, other_site: str) -> None:
        with Client(lake.service, lake.key) as client:
            batch = client.start_batch_scrape(site.held(2))
            crawl = client.start_crawl(site.held(1, first=2)[0], limit=1)
            found.extend([batch.id or "", crawl.id or ""])
        raise KeyboardInterrupt

    seen: dict[str, object] = {}
    cancel = steps._cancel_open_jobs

    def watched(client: Client) -> None:
        cancel(client)
        seen["batch"] = client.get_batch_scrape(found[0]).status
        seen["crawl"] = client.get_crawl(found[1]).status

    monkeypatch.setattr(orchestrators, "run_dagster", interrupted)
    monkeypatch.setattr(steps, "AIRFLOW", replace(AIRFLOW, needed=("not_installed",)))
    monkeypatch.setattr(steps, "_cancel_open_jobs", watched)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path / "lake")
    assert seen == {"batch": "cancelled", "crawl": "cancelled"}


@pytest.mark.parametrize(
    ("name", "message", "line"),
    [
        ("run_airflow", "site_crawl_by_day ended as failed", "AuthenticationFailed"),
        ("run_dagster", "In Dagster failed: site_pages", r"^site_pages: .*not accepted.*Check the resource's api_key"),
    ],
)
def test_a_run_that_fails_shows_its_last_lines_and_no_key(tmp_path: Path, name: str, message: str, line: str) -> None:
    key = f"test-canary-{secrets.token_hex(8)}"
    other = {"run_airflow": 5, "run_dagster": "http://127.0.0.1:9/"}[name]
    with LocalService() as service:  # which does not know this key
        lake = Lake(tmp_path / "lake", "http://127.0.0.1:9/", service.url, key)
        with pytest.raises(OrchestratorFailed, match=message) as raised:
            getattr(orchestrators, name)(lake, other)
        assert service.counts().get("crawl_started", 0) == 0
    log = "\n".join(raised.value.log)
    assert re.search(line, log, re.MULTILINE), log
    assert len(raised.value.log) <= 20
    assert key not in log + str(raised.value)


@pytest.mark.parametrize(
    ("printed", "code", "message"),
    [
        (GOOD | {"checks": {"passed": 3, "failed": ["docs:x"]}}, 0, "docs:x"),
        (GOOD | {"failed": ["a", "b"]}, 1, "a, b"),
        ({"failed": []}, 0, "exit code 0 and no result"),
        ("", 3, "exit code 3 and no result"),
    ],
)
def test_the_output_of_the_program_is_used_only_if_complete_and_successful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: object, code: int, message: str
) -> None:
    program(monkeypatch, tmp_path, DAGSTER, f"print({json.dumps(printed)!r})\nraise SystemExit({code})\n")
    with pytest.raises(OrchestratorFailed, match=message):
        orchestrators.run_dagster(Lake(tmp_path, "", "", "test-key"), "")


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    program(monkeypatch, tmp_path, AIRFLOW, code)
    monkeypatch.setattr(orchestrators, "TIMEOUT_S", 8.0)
    with pytest.raises(OrchestratorFailed, match="longer than 8 s"):
        orchestrators.run_airflow(Lake(tmp_path, "", "", "test-key"), 1)
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
