"""The rules of behaviour that programs rely on, each with the real command line and a real service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from polling import until

import weblake

pytestmark = pytest.mark.system


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.mark.parametrize(
    "command",
    [
        ("batch", "--json"),
        ("batch", "http://a.test/", "--to", "x", "--no-such-flag", "--json"),
        ("batch", "http://a.test/", "--to", "x", "--max-credits", "many", "--json"),
        ("crawl", "http://a.test/", "--to", "x", "--max-credits", "inf", "--json"),
        ("batch", "http://a.test/", "--to", "x", "-o", "urls=1", "--json"),
        ("batch", "http://a.test/", "--to", "x", "-o", "terms=1", "--json"),
        ("scrape", "http://a.test/", "-o", "url=1", "--json"),
        ("search", "a", "-o", "query=1", "--json"),
    ],
)
def test_bad_usage_with_json_prints_one_object(weblake_command: Any, command: tuple[str, ...]) -> None:
    run = weblake_command(*command)
    assert run.code == 2, run.err
    assert run.json["error"]["type"] == "InvalidOption"
    assert "Traceback" not in run.err


def test_detach_with_json_prints_a_receipt_also_for_a_landed_load(weblake_command: Any, site: str, lake: str) -> None:
    command = ("batch", f"{site}/1", "--to", lake)
    started = weblake_command(*command, "--detach", "--json").json
    landed = weblake_command(*command, "--json").json
    assert set(started) == set(landed)
    assert (started["status"], started["complete"], started["job_id"]) == ("started", False, landed["job_id"])
    again = weblake_command(*command, "--detach", "--json")
    assert again.json == landed
    assert "landed already" in again.err


#: Ctrl-C when the job is recorded and the command has not received its id.
INTERRUPTED_AT_THE_RECORD = """
import os, signal
from weblake import cli
from weblake.dataset.ledger import Ledger
record_job = Ledger.record_job
def recorded(self, job):
    record_job(self, job)
    os.kill(os.getpid(), signal.SIGINT)
    raise AssertionError("not interrupted")
Ledger.record_job = recorded
cli.main()
"""


@pytest.mark.parametrize("command", [("batch",), ("crawl", "--yes")])
def test_an_interrupt_at_the_job_record_names_the_job(
    weblake_command: Any, site: str, lake: str, command: tuple[str, ...]
) -> None:
    weblake_command.program = ("-c", INTERRUPTED_AT_THE_RECORD)
    run = weblake_command(*command, f"{site}/1", "--to", lake, "--json")
    assert run.code == 130, run.err
    (record,) = Path(lake).glob("_weblake/ledger/*.job.json")
    job_id = json.loads(record.read_text())["job_id"]
    assert run.json["job_id"] == job_id
    assert f"weblake cancel {command[0]} {job_id}" in run.json["error"]["hint"]


def test_max_credits_does_not_change_a_landed_load(weblake_command: Any, service: Any, site: str, lake: str) -> None:
    command = ("batch", f"{site}/1", f"{site}/2", "--to", lake, "--json")
    landed = weblake_command(*command)
    again = weblake_command(*command, "--max-credits", "1")
    assert (again.code, again.json) == (0, landed.json)
    assert service.counts()["batch_scrape_started"] == 1


def test_an_ended_job_is_not_cancelled_for_its_cost(weblake_command: Any, site: str, tmp_path: Path) -> None:
    first = weblake_command("batch", f"{site}/1", f"{site}/2", "--to", str(tmp_path / "one"), "--json").json
    run = weblake_command(
        "land", "batch", first["job_id"], "--to", str(tmp_path / "two"), "--max-credits", "1", "--json"
    )
    assert (run.code, run.json["stored"]) == (0, 2), run.err


def test_max_credits_holds_for_all_urls_of_a_command(weblake_command: Any, service: Any, site: str, lake: str) -> None:
    urls = (f"{site}/1", f"{site}/2")
    for more in ((), ("--to", lake)):
        run = weblake_command("scrape", *urls, "--max-credits", "1", "--json", *more)
        assert (run.code, run.json["error"]["type"]) == (1, "CreditsExhausted")
    assert service.counts().get("pages_billed", 0) == 0
    assert weblake_command("scrape", urls[0], "--to", lake, "--max-credits", "1").code == 0
    assert weblake_command("scrape", *urls, "--to", lake, "--max-credits", "1").code == 0  # one of them exists


def test_allow_partial_gives_the_same_receipt_at_once_and_later(weblake_command: Any, site: str, lake: str) -> None:
    command = ("batch", f"{site}/1", "http://127.0.0.1:9/", "--to", lake, "--fail-ratio", "0.2", "--json")
    refused = weblake_command(*command)
    assert (refused.code, refused.json["error"]["type"]) == (1, "LoadIncomplete")
    promoted = weblake_command(*command, "--allow-partial")
    at_once = weblake_command(*command, "--allow-partial", "--key", "at once")
    for run in (promoted, at_once):
        # Every URL is a document or a row with its reason: complete, although more pages failed than were tolerated.
        assert (run.code, run.json["complete"], run.json["stored"], run.json["failed"]) == (0, True, 1, 1)
    assert weblake.read(lake).to_table().num_rows == 2


@pytest.fixture
def embedded(weblake_command: Any, tmp_path: Path) -> Any:
    """Return the command line without a base URL and with a state directory of its own."""
    weblake_command.env |= {
        "WEBLAKE_BASE_URL": "",
        "WEBLAKE_API_KEY": "",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    return weblake_command


def test_another_process_takes_over_the_embedded_service(
    embedded: Any, service: Any, site: str, tmp_path: Path
) -> None:
    lake, address = str(tmp_path / "lake"), tmp_path / "state" / "weblake" / "service.json"
    holder = embedded.start("crawl", f"{site}/", "--limit", "30", "-o", "delay=1", "--to", lake)
    until(address.exists)
    other = embedded.start("crawl", f"{site}/", "--limit", "4", "-o", "delay=1", "--to", lake, "--json")
    until(lambda: len(list(Path(lake).glob("_weblake/ledger/*.job.json"))) == 2)
    holder.kill()
    holder.communicate(timeout=120)
    out, err = other.communicate(timeout=240)
    assert other.returncode == 0, err
    assert json.loads(out)["stored"] == 4
