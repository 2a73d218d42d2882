"""Tests of the command orphans without a service: its lines, its JSON and its exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from command_in_process import run_command
from made_loads import intent, land, load_id

from weblake.cli.orphans import advice
from weblake.dataset.records import Job
from weblake.dataset.root import Dataset, open_dataset
from weblake.loads.orphans import GONE, OPEN, STARTED, Orphan, UnknownJob, Unlanded, Unreadable

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
        assert (shown["asked"], shown["refused"], shown["unreadable"], "unknown_jobs" in shown) == (True, [], [], False)
        assert run_command([*args, "--check"], {})[0] == bool(found)
    code, out, _ = run_command(["orphans", str(tmp_path), "--offline", "--older-than", "4"], {})
    assert (code, out) == (0, f"No load of {tmp_path} is open.\n")


OPEN_START = Orphan(load_id(3), "batch_scrape", "2026-11-21", "s", 1, "https://a.test/", None, None, None, (), OPEN)
ON_RECORD = replace(OPEN_START, record=STARTED, job_id=JOB, state="scraping")
SAME = "run the same `weblake batch …` again (in Python the same call)"
CANCEL = f"To cancel it: `weblake cancel batch {JOB}`."
LAND = f"`weblake land batch {JOB} --to 'my lake'`"


@pytest.mark.parametrize(
    ("orphan", "texts"),
    [
        (replace(OPEN_START, replay=True), ["nothing is paid twice", SAME]),
        (OPEN_START, ["It is unknown whether it was started", SAME]),
        (replace(OPEN_START, candidates=()), ["Unless it is being started now, nothing was started", SAME]),
        (replace(OPEN_START, candidates=("one",)), ["Job one is probably its job", SAME]),
        (
            replace(OPEN_START, candidates=("one", "two"), partition={"team": "a b"}),
            ["2 jobs may be it", "`weblake land batch one --to 'my lake' --partition 'team=a b'`"],
        ),
        (replace(OPEN_START, kind="scrape", candidates=("one", "two")), ["2 jobs may be it", "with --new"]),
        (ON_RECORD, [f"To land it without payment: {SAME}", LAND, CANCEL]),
        (replace(ON_RECORD, state=None), ["ask the service first", SAME, LAND, CANCEL]),
        (
            replace(ON_RECORD, state=None, slot="s", run="r", task=("airflow", "dag", "task", "-1")),
            ["to clear it would cancel the job", "clear the Airflow task dag.task in its run r", LAND, CANCEL],
        ),
        (replace(ON_RECORD, superseded=True, slot="s", run="r"), ["nothing has to be done", f"{LAND}, with --allow-"]),
        (replace(ON_RECORD, elsewhere=True), [f"To land it without payment: {LAND}", CANCEL]),
        (replace(ON_RECORD, state="completed", slot="s", run="r"), ["retry what requested it, in its run r", LAND]),
        (replace(ON_RECORD, state="cancelled"), [f"{SAME}, with --allow-partial", f"{LAND}, with --allow-partial"]),
        (replace(ON_RECORD, state=GONE), ["set WEBLAKE_BASE_URL to it", "--new"]),
        (replace(ON_RECORD, state="completed", new_key="0123"), ["with --key 0123 in place of --new", LAND]),
    ],
)
def test_each_open_load_has_its_remedy(orphan: Orphan, texts: list[str]) -> None:
    """A job that still runs can be cancelled; one that has ended, or is not known, cannot."""
    advised = " ".join(advice(orphan, "my lake"))
    assert [text for text in texts if text not in advised] == []
    assert (CANCEL in advised) == (CANCEL in texts)


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


def test_the_json_has_each_part_of_the_listing(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script must not have to read the lines for people."""
    found = Unlanded(
        (ON_RECORD,),
        refused=(load_id(4),),
        cancelled=(replace(ON_RECORD, state="cancelled"),),
        unknown_jobs=(UnknownJob(JOB, "crawl", None, None),),
        unreadable=(Unreadable(load_id(5), "no JSON"),),
    )
    monkeypatch.setattr("weblake.loads.orphans.find_open_loads", lambda *_, **__: found)
    shown = json.loads(run_command(["orphans", str(tmp_path), "--json"], NO_SERVICE | {"WEBLAKE_API_KEY": "k"})[1])
    assert [each["state"] for each in (*shown["orphans"], *shown["cancelled"])] == ["scraping", "cancelled"]
    assert shown["cancelled"][0]["next"] == advice(found.cancelled[0], str(tmp_path))
    assert (shown["refused"], shown["asked"], "unasked" in shown) == ([load_id(4)], True, False)
    assert shown["unknown_jobs"] == [{"job_id": JOB, "kind": "crawl", "created_at": None, "target": None}]
    assert shown["unreadable"] == [{"load_id": load_id(5), "why": "no JSON"}]
