"""`weblake orphans` after real processes were killed: before the start, during the start, and during the landing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves

pytestmark = pytest.mark.system


def killed_when(process: Any, seen: Callable[[], object]) -> None:
    """Kill a process with SIGKILL once a condition holds, and assert that it had not ended before."""
    until = time.monotonic() + 240
    while not seen():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    process.communicate()


def files(lake: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


@proves("3.7", at="src/weblake/loads/orphans.py", line="if has & INTENT and not has & DONE]", becomes="if False]")
def test_the_job_of_a_worker_killed_during_its_start_is_listed(
    weblake_command: Any, service: Any, site: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    command = ("batch", f"{site}/1", f"{site}/2", "--to", str(lake), "--json")
    # The service starts the job, and its response is not sent.
    match = {"method": "POST", "path": "/v2/batch/scrape$"}
    service.faults({"match": match, "times": 99, "effect": {"drop_after": True}})
    killed_when(weblake_command.start(*command), lambda: service.counts().get("batch_scrape_started"))
    service.faults()
    before = files(lake)
    told = weblake_command("orphans", str(lake), "--json")
    (orphan,) = told.json["orphans"]
    assert (told.code, orphan["record"], orphan["replay"], told.json["asked"]) == (0, "start unanswered", True, True)
    assert len(orphan["candidates"]) == 1
    assert files(lake) == before, "listing orphans changes nothing"
    assert weblake_command("orphans", str(lake), "--check").code == 1
    landed = weblake_command(*command)
    assert (landed.code, landed.json["job_id"]) == (0, orphan["candidates"][0])
    assert service.counts()["batch_scrape_started"] == 1
    after = weblake_command("orphans", str(lake), "--check", "--json")
    assert (after.code, after.json["orphans"]) == (0, [])
