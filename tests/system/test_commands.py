"""The command line as users and programs see it: output, exit codes and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weblake


@pytest.mark.smoke
def test_a_crawl_lands_its_documents_and_page_errors(weblake_process: Any, site: str, tmp_path: Path) -> None:
    run = weblake_process("crawl", f"{site}/", "--limit", "40", "--to", str(tmp_path / "lake"), "--json")
    assert run.code == 0, run.err
    receipt = run.json
    assert (receipt["stored"], receipt["robots_blocked"], receipt["complete"]) == (30, 1, True)
    assert receipt["submitted"] == 31
    table = weblake.read(tmp_path / "lake").to_table()
    assert table["position"].to_pylist() == list(range(30))
    assert {"Page 7"} <= set(table["title"].to_pylist())
    errors = weblake.read(tmp_path / "lake", "page_errors").to_table().to_pylist()
    assert [(row["url"], row["outcome"]) for row in errors] == [(f"{site}/secret", "robots_blocked")]


@pytest.mark.smoke
def test_a_target_that_answers_404_is_a_document(weblake_command: Any, site: str, tmp_path: Path) -> None:
    run = weblake_command("batch", f"{site}/nowhere", "--to", str(tmp_path / "lake"), "--json")
    assert (run.code, run.json["stored"], run.json["failed"]) == (0, 1, 0)
    assert weblake.read(tmp_path / "lake").to_table()["status_code"].to_pylist() == [404]


@pytest.mark.parametrize("command", ["batch", "crawl", "scrape"])
def test_a_memory_root_is_refused_before_the_start(weblake_command: Any, service: Any, site: str, command: str) -> None:
    run = weblake_command(command, f"{site}/1", "--to", "memory://lake", "--json")
    assert run.code != 0
    assert run.json["error"]["type"] == "StorageRefused"
    assert "gone" in run.json["error"]["message"]
    assert "s3://" in run.json["error"]["hint"]
    assert not [each for each in service.requests() if each["method"] == "POST"]


def test_a_detached_batch_lands_later(weblake_command: Any, site: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    started = weblake_command("batch", f"{site}/1", f"{site}/2", "--to", lake, "--detach")
    job_id = started.out.strip()
    landed = weblake_command("land", "batch", job_id, "--to", str(tmp_path / "other"), "--json")
    assert (landed.code, landed.json["stored"]) == (0, 2)
    status = weblake_command("status", "batch", job_id, "--json").json
    assert (status["status"], status["completed"]) == ("completed", 2)
    attached = weblake_command("batch", f"{site}/1", f"{site}/2", "--to", lake, "--json")
    assert attached.json["job_id"] == job_id
    cancelled = weblake_command("cancel", "batch", job_id, "--json")
    assert cancelled.code == 1  # it is completed
    assert weblake_command("errors", "batch", job_id, "--json").json == {"errors": [], "robotsBlocked": []}


def test_max_credits_is_checked_before_the_start(weblake_command: Any, service: Any, site: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    refused = weblake_command("batch", f"{site}/1", f"{site}/2", "--to", lake, "--max-credits", "1", "--json")
    assert (refused.code, refused.json["error"]["type"]) == (1, "CreditsExhausted")
    assert service.counts().get("batch_scrape_started", 0) == 0
    crawl = weblake_command("crawl", f"{site}/", "--to", lake, "--max-credits", "4", "--json")
    assert crawl.json["stored"] <= 4


def test_scrape_prints_only_markdown(weblake_command: Any, site: str) -> None:
    run = weblake_command("scrape", f"{site}/5")
    assert run.code == 0
    assert run.out.startswith("# Page 5")
    assert "日本語" in run.out
    assert run.err == ""
    assert weblake_command("scrape", f"{site}/5", "--json").json["data"]["metadata"]["title"] == "Page 5"


def test_several_urls_are_several_loads(weblake_command: Any, site: str, tmp_path: Path) -> None:
    urls = (f"{site}/1", "http://127.0.0.1:9/", f"{site}/2")
    run = weblake_command("scrape", *urls, "--to", str(tmp_path / "lake"), "--json")
    assert run.code == 1
    loads = run.json["loads"]
    assert [load.get("stored") for load in loads] == [1, 0, 1]
    assert loads[1]["error"]["type"] == "ServiceUnavailable"
    again = weblake_command("scrape", *urls[::2], "--to", str(tmp_path / "lake"), "--json")
    assert (again.code, [load["load_id"] for load in again.json["loads"]]) == (
        0,
        [loads[0]["load_id"], loads[2]["load_id"]],
    )


@pytest.mark.system
def test_usage_and_activity_land_and_are_replaced(weblake_command: Any, site: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for stored in (1, 2):
        assert weblake_command("scrape", f"{site}/{stored}", "-o", "max_age=0").code == 0
        for what in (("credits",), ("tokens",), ("credits", "--by-api-key"), ("tokens", "--by-api-key")):
            assert weblake_command("usage", *what, "--to", lake, "--json").code == 0
        assert weblake_command("activity", "--to", lake, "--json").code == 0
        rows = weblake.read(lake, "usage_periods").to_table().to_pylist()
        by_report = {row["report"]: row for row in rows}
        assert len(rows) == len(by_report) == 4
        assert by_report["credits"]["total_credits"] == stored
        assert by_report["tokens"]["total_tokens"] == 15 * stored
        assert by_report["credits"]["api_key"] is None
        assert by_report["credits_by_key"]["api_key"]
        assert weblake.read(lake, "activity").to_table().num_rows == stored


@pytest.mark.parametrize("command", [("loads",), ("orphans", "--offline"), ("orphans",)], ids=" ".join)
def test_a_path_without_a_dataset_is_an_error(
    weblake_command: Any, service: Any, tmp_path: Path, command: tuple[str, ...]
) -> None:
    run = weblake_command(*command, str(tmp_path / "lake"), "--json")
    assert (run.code, run.json["error"]["type"]) == (1, "StorageRefused"), run.err
    assert "holds no dataset" in run.err
    assert not (tmp_path / "lake").exists()
    assert service.requests() == []
