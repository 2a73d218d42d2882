"""Tests of a step that is stopped from outside: what happens to its job, and which run lands it afterwards.

The command line runs the step; a run that a user terminates gets the events of Dagster's own terminate. With the real
webserver and daemon: test_dagster_e2e.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import survived
from in_process import Bench

from dagster_weblake import (
    BatchScrapeRequest,
    build_weblake_assets,
    stopping,
)
from weblake.testing import WeblakeService

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
DEADLINE_S = 240.0
INSTANCE = {"telemetry": {"enabled": False}, "run_retries": {"enabled": True, "max_retries": 1}}


@dataclass
class Shell:
    """`dagster` commands on an instance of their own."""

    service: WeblakeService
    site: GatedSite
    folder: Path
    instance: dg.DagsterInstance

    def materialize(self, job: str = "landing") -> subprocess.Popen[str]:
        env = os.environ | {
            "DAGSTER_HOME": str(self.folder),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "WEBLAKE_BASE_URL": self.service.url,
            "WEBLAKE_API_KEY": self.service.key,
            "TEST_ROOT": str(self.folder / "lake"),
            "TEST_URLS": ",".join([*self.site.pages(2), f"{self.site.url}/held/1"]),
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        command = (sys.executable, "-m", "dagster", "job", "execute", "-f", "cli_assets.py", "-a", "defs", "-j", job)
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE)

    def job_status(self) -> str:
        with self.service.client() as client:
            (entry,) = client.list_activity(endpoint="batch_scrape").data
            return str(client.get_batch_scrape(str(entry.id)).status)

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    @property
    def landed(self) -> list[Path]:
        return list((self.folder / "lake").glob("documents/**/*.parquet"))

    def wait_job(self, process: subprocess.Popen[str]) -> None:
        """Waits until the ledger has the job that a process has started."""
        until(lambda: bool(list(self.folder.glob("lake/_weblake/ledger/*.job.json"))), process)

    def logged(self, run: dg.DagsterRun, text: str) -> bool:
        """Whether a message of the run has this text; Dagster may end before it has printed the last messages."""
        return any(text in log.message for log in self.instance.all_logs(run.run_id))

    def run(self) -> dg.DagsterRun:
        (run,) = self.instance.get_runs()
        return run


def until(what: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


@pytest.fixture
def shell(weblake_service: WeblakeService, site: GatedSite, tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "dagster.yaml").write_text(json.dumps(INSTANCE))
    site.held(1)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield Shell(weblake_service, site, tmp_path, instance)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="terminated = self._is_terminated()",
    becomes="terminated = True",
)
def test_o9_the_job_of_an_evicted_worker_is_left_to_the_retry(shell: Shell) -> None:
    """What the retry lands then, as after a worker that is killed outright: test_dagster_e2e.py."""
    process = shell.materialize()
    shell.wait_job(process)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=DEADLINE_S)[0]
    assert shell.job_status() == "scraping", output
    assert shell.logged(shell.run(), "its run was not terminated"), output
    assert (shell.started, shell.landed) == (1, [])


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="_TERMINATIONS = {dg.DagsterEventType.RUN_CANCELING, dg.DagsterEventType.RUN_CANCELED}",
    becomes="_TERMINATIONS = {dg.DagsterEventType.RUN_CANCELED}",
)
@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="raise RunTerminated(str(interrupt)) from interrupt",
    becomes="raise",
)
def test_o9_a_terminated_run_cancels_its_job(shell: Shell) -> None:
    """Dagster applies the retry policy of a step to its interrupt, and the retry would pay for another job."""
    process = shell.materialize("retrying")
    shell.wait_job(process)
    shell.instance.report_run_canceling(shell.run())
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=DEADLINE_S)[0]
    assert shell.logged(shell.run(), "its run was terminated"), output
    assert (shell.job_status(), shell.started, shell.landed) == ("cancelled", 1, [])
    assert shell.instance.all_logs(shell.run().run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY) == []


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="if job is None and load_request is not None and load_request.start is not None:",
    becomes="if False:",
)
def test_a_run_terminated_during_a_start_finds_and_cancels_the_job(shell: Shell) -> None:
    shell.service.faults(
        {"match": {"method": "POST", "path": "batch/scrape$"}, "effect": {"stall": True}},
    )
    process = shell.materialize()
    # The record of the start is written before the request is sent.
    until(lambda: any(request["method"] == "POST" for request in shell.service.requests()), process)
    assert list(shell.folder.glob("lake/_weblake/ledger/*.start-1.json"))
    shell.instance.report_run_canceling(shell.run())
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=DEADLINE_S)[0]
    assert shell.logged(shell.run(), "its run was terminated"), output
    assert shell.job_status() == "cancelled"
    assert shell.started == 1


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="if time.monotonic() - self._checked_at >= CHECK_S:",
    becomes="if False:",
    case="waits",
)
@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/landing.py",
    line="stopping.open[load_id] = None",
    becomes="pass",
    case="collects",
)
@pytest.mark.parametrize("when", ["begins", "waits", "collects"])
def test_a_step_that_is_not_told_of_the_end_of_its_run_looks_itself(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Celery does not tell it. It may have waited in a queue for longer than the run lasted."""
    monkeypatch.setattr(stopping, "CHECK_S", 0.0)
    request = BatchScrapeRequest(urls=site.held(1), poll_interval=0.2)
    held = build_weblake_assets("held", request, retry_policy=None, wait="sensor" if when == "collects" else "step")
    if when == "collects":  # the job of another run
        assert bench.run(held, "held_job").success
    looked = stopping.InterruptHandler._is_terminated

    def terminated(handler: stopping.InterruptHandler) -> bool:
        if when == "begins" or handler.open:
            handler.context.instance.report_run_canceling(handler.context.run)
        return looked(handler)

    monkeypatch.setattr(stopping.InterruptHandler, "_is_terminated", terminated)
    assert not survived(lambda: bench.run(held, "held"))
    site.release()
    assert (bench.started, bench.files()) == (int(when != "begins"), [])
    with bench.service.client() as client:
        entries = client.list_activity(endpoint="batch_scrape").data
        assert [client.get_batch_scrape(str(each.id)).status for each in entries] == ["cancelled"] * bench.started
