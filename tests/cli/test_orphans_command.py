"""Tests of the command orphans without a service: its lines, its JSON and its exit code."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from command_in_process import run_command
from compaction_lab import intent, land, load_id

from weblake.dataset.records import Job
from weblake.dataset.root import open_dataset
from weblake.loads.publishing import Dataset

NO_SERVICE = {"WEBLAKE_BASE_URL": "http://127.0.0.1:1/", "WEBLAKE_API_KEY": ""}
JOB = "4d8b6c1e-0000-4000-8000-000000000001"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A dataset with one load that has landed, one that has a job, and one that was not started."""
    dataset = open_dataset(tmp_path)
    land(dataset, intent(0))
    old = (datetime.now(timezone.utc) - timedelta(hours=3)).isoformat()
    dataset.ledger.record_intent(intent(1, created_at=old, submitted=2, first_target="https://a.test/1"))
    dataset.ledger.record_job(Job(load_id=load_id(1), job_id=JOB, kind="batch_scrape", at=old))
    now = datetime.now(timezone.utc).isoformat()
    dataset.ledger.record_intent(intent(2, created_at=now, slot="s", run="r-1", task=("airflow", "dag", "task", "-1")))
    return dataset


def test_open_loads_are_listed_with_what_to_do(dataset: Dataset, tmp_path: Path) -> None:
    code, out, err = run_command(["orphans", str(tmp_path), "--offline"], {})
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [load_id(1), load_id(2)]
    assert "  for: 2 URLs, first https://a.test/1" in lines
    assert f"  on record: started, job {JOB}" in lines
    assert any(line.startswith("  Nothing was started.") and "dag.task" in line and "r-1" in line for line in lines)
    assert any(line == f"  To cancel it: `weblake cancel batch {JOB}`." for line in lines)
    assert "airflow dag task -1, run r-1" in out


def test_older_than_filters_loads_and_check_sets_the_exit_code(dataset: Dataset, tmp_path: Path) -> None:
    for hours, found in (("0", [1, 2]), ("2", [1]), ("4", [])):
        args = ["orphans", str(tmp_path), "--offline", "--older-than", hours, "--json"]
        code, out, _ = run_command(args, {})
        shown = json.loads(out)
        assert (code, [each["load_id"] for each in shown["orphans"]]) == (0, [load_id(n) for n in found])
        assert (shown["asked"], shown["refused"], shown["unreadable"], "strangers" in shown) == (True, [], [], False)
        assert run_command([*args, "--check"], {})[0] == bool(found)
    code, out, _ = run_command(["orphans", str(tmp_path), "--offline", "--older-than", "4"], {})
    assert (code, out) == (0, f"No load of {tmp_path} is open.\n")


def test_without_a_service_the_ledger_is_listed(dataset: Dataset, tmp_path: Path) -> None:
    code, out, err = run_command(["orphans", str(tmp_path), "--json"], NO_SERVICE)
    shown = json.loads(out)
    assert (code, len(shown["orphans"]), shown["asked"], shown["unasked"]["type"]) == (0, 2, False, "AskPerson")
    assert err.startswith("weblake: the service could not be asked, so this is the ledger's part only: ")
    assert ("Set WEBLAKE_API_KEY to" in err, err.count("\n")) == (True, 1)


def test_a_record_that_cannot_be_read_counts_as_open(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "_weblake" / "ledger" / f"{load_id(1)}.job.json").write_text("{")
    code, out, err = run_command(["orphans", str(tmp_path), "--offline", "--older-than", "4", "--check"], {})
    assert (code, out) == (1, "")
    assert err.startswith(f"weblake: load {load_id(1)} cannot be read: ")
