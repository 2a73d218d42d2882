"""The demo's Dagster step: it ends with the demo, leaves no job behind, and says what went wrong."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weblake.client import Client
from weblake.demo import dagster_step, run_demo, story
from weblake.demo.dagster_step import DagsterFailed
from weblake.demo.guest_process import Lake, missing_packages_text
from weblake_service.server import LocalService

pytestmark = pytest.mark.system

if TYPE_CHECKING:
    from gated_site import GatedSite

DEADLINE_S = 120.0
#: The demo's Airflow step comes first, takes ten seconds, and is tested beside.
NOT_INSTALLED = ["airflow_provider_weblake"]


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Puts a program of ours in the place of Dagster."""
    (tmp_path / "stand_in").mkdir()
    (tmp_path / "stand_in" / "stand_in_for_dagster.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand_in"))
    monkeypatch.setattr(dagster_step, "_MODULE", "stand_in_for_dagster")


@pytest.mark.system
def test_ctrl_c_ends_dagster_too_and_leaves_nothing(demo: subprocess.Popen[str], scratch: Path) -> None:
    deadline = time.monotonic() + 2 * DEADLINE_S
    while not list(scratch.glob("*/weblake-dagster-*/history")):
        assert time.monotonic() < deadline, "Dagster did not start"
        assert demo.poll() is None
        time.sleep(0.05)
    (dagster,) = (pid for pid in children(demo.pid) if b"run_example" in Path(f"/proc/{pid}/cmdline").read_bytes())
    demo.send_signal(signal.SIGINT)
    assert demo.stderr is not None
    rest = demo.stderr.read()
    assert demo.wait(30) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert not Path(f"/proc/{dagster}").exists()
    assert os.listdir(scratch) == []


def test_a_guest_that_is_interrupted_leaves_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: GatedSite
) -> None:
    """Crawls and batches that run when Ctrl-C comes, whoever of the guest's assets has started them."""
    found: list[str] = []

    def interrupted(lake: Lake, other_site: str) -> None:
        with Client(lake.service, lake.key) as client:
            batch = client.start_batch_scrape(site.held(2))
            crawl = client.start_crawl(site.held(1, first=2)[0], limit=1)
            found.extend([batch.id or "", crawl.id or ""])
        raise KeyboardInterrupt

    monkeypatch.setattr(dagster_step, "run", interrupted)
    monkeypatch.setattr("weblake.demo.airflow_step.missing", lambda: ["airflow"])
    seen: dict[str, object] = {}
    cancel = story._cancel_open_jobs

    def watched(client: Client) -> None:
        cancel(client)
        seen["batch"] = client.get_batch_scrape(found[0]).status
        seen["crawl"] = client.get_crawl(found[1]).status

    monkeypatch.setattr(story, "_cancel_open_jobs", watched)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path / "lake")
    assert seen == {"batch": "cancelled", "crawl": "cancelled"}


def test_a_run_that_fails_shows_its_last_lines_and_no_key(tmp_path: Path) -> None:
    key = f"test-canary-{secrets.token_hex(8)}"
    with LocalService() as service:  # which does not know this key
        lake = Lake(tmp_path / "lake", "http://127.0.0.1:9/", service.url, key)
        with pytest.raises(DagsterFailed, match="In Dagster failed: site_pages") as raised:
            dagster_step.run(lake, "http://127.0.0.1:9/")
        assert service.counts().get("crawl_started", 0) == 0
    log = "\n".join(raised.value.log)
    assert re.search(r"^site_pages: .*the API key was not accepted.*Check the resource's api_key", log, re.MULTILINE), (
        log
    )
    assert len(raised.value.log) <= 20
    assert key not in log + str(raised.value)


def test_the_demo_shows_these_lines_and_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(lake: Lake, other_site: str) -> None:
        raise DagsterFailed("In Dagster failed: site_pages.", ["first [line]", "last line"])

    monkeypatch.setattr(dagster_step, "run", fails)
    monkeypatch.setattr("weblake.demo.airflow_step.missing", lambda: ["airflow"])
    with pytest.raises(DagsterFailed, match="stand above"):
        run_demo(tmp_path / "lake")
    told = capfd.readouterr().err
    assert "first [line]\n  last line" in told
    assert "usage" not in told


@pytest.mark.parametrize(
    ("told", "code", "message"),
    [
        ({"failed": [], "loads": {}, "partitions": {}, "checks": {"passed": 3, "failed": ["docs:x"]}}, 0, "docs:x"),
        ({"failed": ["a", "b"], "loads": {}, "partitions": {}, "checks": {"passed": 0, "failed": []}}, 1, "a, b"),
        ({"failed": []}, 0, "exit code 0 and no result"),
        ("", 3, "exit code 3 and no result"),
    ],
)
def test_what_dagster_tells_is_believed_only_if_it_is_whole_and_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: object, code: int, message: str
) -> None:
    program(tmp_path, monkeypatch, f"print({json.dumps(told)!r})\nraise SystemExit({code})\n")
    with pytest.raises(DagsterFailed, match=message):
        dagster_step.run(Lake(tmp_path, "", "", "test-key"), "")


def test_what_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    program(
        tmp_path,
        monkeypatch,
        f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)",
    )
    monkeypatch.setattr(dagster_step, "TIMEOUT_S", 2.0)
    with pytest.raises(DagsterFailed, match="longer than 2 s"):
        dagster_step.run(Lake(tmp_path, "", "", "test-key"), "")
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dagster_step.missing() == []
    monkeypatch.setitem(sys.modules, "pandas", None)
    lacking = dagster_step.missing()
    assert lacking == ["pandas"]
    assert missing_packages_text(lacking, dagster_step.PACKAGE) == (
        "left out: pandas not installed; pip install dagster-weblake 'weblake[pandas]'"
    )
