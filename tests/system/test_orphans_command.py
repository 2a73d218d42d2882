"""`weblake orphans` after real processes were killed: before the start, during the start, and during the landing."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves

from weblake import Client

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


def ledger(lake: Path, step: str) -> list[Path]:
    return list(lake.glob(f"_weblake/ledger/*{step}.json"))


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


def test_the_job_of_a_worker_killed_while_waiting_is_listed(
    weblake_command: Any, service: Any, site: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    service.faults({"match": {"path": "/v2/crawl/.*"}, "times": None, "effect": {"latency_ms": 20000}})
    command = ("crawl", f"{site}/", "--limit", "3", "--to", str(lake), "--json")
    killed_when(weblake_command.start(*command), lambda: ledger(lake, ".job"))
    service.faults()
    told = weblake_command("orphans", str(lake))
    (job,) = [path.read_text().split('"job_id":"')[1][:36] for path in ledger(lake, ".job")]
    assert told.code == 0
    assert f"job {job}" in told.out
    assert f"`weblake land crawl {job} --to {lake}`" in told.out
    offline = weblake_command("orphans", str(lake), "--offline", "--json")
    assert (offline.json["orphans"][0]["job_id"], offline.json["orphans"][0]["state"]) == (job, None)
    assert weblake_command(*command).json["job_id"] == job
    assert weblake_command("orphans", str(lake), "--json").json["orphans"] == []


def test_without_a_service_the_ledger_is_shown_and_the_reason_is_one_line(
    weblake_command: Any, service: Any, site: str, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    assert weblake_command("batch", f"{site}/1", "--to", lake, "--detach").code == 0
    weblake_command.env["WEBLAKE_API_KEY"] = "test-key-of-nobody"
    told = weblake_command("orphans", lake, "--json")
    assert (told.code, told.json["asked"], len(told.json["orphans"])) == (0, False, 1)
    assert told.json["unasked"]["type"] == "AuthenticationFailed"
    assert len(told.err.strip().splitlines()) == 1


def test_orphans_on_s3_are_listed_and_other_jobs_are_not(
    weblake_command: Any, service: Any, site: str, s3_root: str
) -> None:
    command = ("batch", f"{site}/1", f"{site}/2", "--to", s3_root, "--json")
    # The service starts the job, and its response is not sent.
    match = {"method": "POST", "path": "/v2/batch/scrape$"}
    service.faults({"match": match, "times": 99, "effect": {"drop_after": True}})
    killed_when(weblake_command.start(*command), lambda: service.counts().get("batch_scrape_started"))
    service.faults()
    with Client(service.url, service.key) as client:
        stranger = client.start_crawl(f"{site}/", limit=1, idempotency_key=str(uuid.uuid4())).id
    told = weblake_command("orphans", s3_root, "--unknown-jobs", "--json").json
    (orphan,) = told["orphans"]
    assert orphan["record"] == "start unanswered"
    assert {each["job_id"] for each in told["unknown_jobs"]} == {stranger}
    people = weblake_command("orphans", s3_root, "--unknown-jobs")
    assert "The service knows its key: nothing is paid twice" in people.out
    assert re.search(rf"^.*crawl +{stranger} .*$", people.out, re.M), people.out
    assert weblake_command(*command).json["job_id"] == orphan["candidates"][0]
    assert weblake_command("land", "crawl", str(stranger), "--to", s3_root, "--json").code == 0
    people = weblake_command("orphans", s3_root, "--unknown-jobs", "--check")
    assert (people.code, people.out.splitlines()) == (
        0,
        [
            f"No load of {s3_root} is open.",
            f"Every job of the last 24 hours belongs to a load of {s3_root}.",
        ],
    )
