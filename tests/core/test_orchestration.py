"""Tests of `weblake.orchestration`: integrations use nothing else of the core, and it loads no Arrow."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_loads import intent, land, load_id

from weblake import orchestration
from weblake.dataset.records import StartAttempt
from weblake.dataset.root import open_dataset

REPOSITORY = Path(__file__).parents[2]
INTEGRATIONS = ("airflow_provider/src", "dagster_resources/src")
#: What lies behind a Dataset.
BEHIND = {"storage", "ledger", "layout", "slots"}


def reached(source: str) -> list[str]:
    """Return the expressions that reach behind a dataset; an import of a module is none."""
    tree = ast.parse(source)
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in BEHIND]


@pytest.mark.parametrize("folder", INTEGRATIONS)
def test_no_integration_reaches_behind_a_dataset(folder: str) -> None:
    files = sorted((REPOSITORY / folder).rglob("*.py"))
    assert len(files) > 20
    assert {str(file): found for file in files if (found := reached(file.read_text(encoding="utf-8")))} == {}


def test_control_an_access_behind_a_dataset_is_detected() -> None:
    assert reached("dataset.ledger.job(load_id)") == ["dataset.ledger"]


def test_a_trigger_and_a_parse_of_a_graph_load_neither_arrow_nor_a_client() -> None:
    used = "Dataset, EndedJobs, JobRef, LoadRequest, Naming, ProgressLog, Report, RetryPolicy, Task, Terms, wait"
    program = f"""import sys
from weblake.orchestration import {used}
print(sorted({{"pyarrow", "httpx", "pandas"}} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_each_name_of_orchestration_is_there_and_each_function_is_documented() -> None:
    public = [getattr(orchestration, name) for name in dir(orchestration)]
    mine = [value for value in public if getattr(value, "__module__", "").startswith("weblake")]
    assert len(mine) > 40
    assert [value for value in mine if not value.__doc__] == []
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = orchestration.other  # type: ignore[attr-defined]


def test_the_state_of_a_load_is_read_from_the_ledger(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    receipt = land(dataset, intent(0))
    land(dataset, intent(1))
    task = orchestration.Task(("graph", "task"), "r", "r")
    open_one = dataset.ledger.record_intent(intent(2, slot=task.slot(0, None).name, run="r"))
    dataset.ledger.record_start(StartAttempt(load_id=load_id(2), n=1, key="k", at=open_one.created_at, writer="w"))
    dataset.ledger.record_retired(load_id(0), load_id(1))
    first, last, began, none = (orchestration.LoadState(dataset, load_id(n)) for n in (0, 1, 2, 3))
    assert first.intent is not None
    assert first.intent.load_id == load_id(0)
    assert first.job is not None
    assert first.job.job_id == receipt.job_id
    assert first.landed is not None
    assert first.landed.receipt == receipt
    assert (first.is_replaced, last.is_replaced) == (True, False)
    assert (first.current, last.current) == (last, last)
    assert began.last_start is not None
    assert (began.last_start.key, began.job, began.landed) == ("k", None, None)
    assert (none.intent, none.last_start, none.job, none.landed, none.is_replaced) == (None, None, None, None, False)
    assert [each.load_id for each in orchestration.open_loads_of_task(dataset, task)] == [load_id(2)]
    assert orchestration.open_loads_of_task(dataset, replace(task, names=("another",))) == []
    landed = [(row.receipt.load_id, row.replaced_by) for row in orchestration.history(dataset)]
    assert landed == [(load_id(0), load_id(1)), (load_id(1), None)]
    assert [row.receipt.load_id for row in orchestration.history(dataset, load_id(0))] == [load_id(1)]


def test_the_number_of_a_load_is_chosen_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weblake.loads.generations.choose", lambda *given: 2)
    task = orchestration.Task(("airflow", "dag", "task"), "run-1", "1")
    request = orchestration.batch_request(["https://a.test/"], orchestration.Naming())
    terms = orchestration.Terms()
    placed = [orchestration.place(None, None, request, task, terms, number) for number in (None, 0, 1)]  # type: ignore[arg-type]
    assert [each.load_id for each in placed] == [task.load_id(number) for number in (2, 0, 1)]


def test_a_job_is_over_when_it_has_ended_or_has_used_too_many_credits() -> None:
    for status, used, most, over in (
        ("completed", 0, None, True),
        ("scraping", 9, None, False),
        ("scraping", 9, 9, False),
        ("scraping", 10, 9, True),
        ("scraping", None, 9, False),
    ):
        assert orchestration.is_over({"status": status, "creditsUsed": used}, most) is over


def test_a_job_that_was_started_elsewhere_is_placed_in_the_slot_of_the_task() -> None:
    request = orchestration.existing_job_request("crawl", "4d8b6c1e-0000-4000-8000-000000000001")
    task = orchestration.Task(("airflow", "dag", "task"), "run-1", "1")
    placed = orchestration.place(None, None, request, task, orchestration.Terms())  # type: ignore[arg-type]
    assert placed.load_id == request.load_id
    assert placed.slot == task.slot(0, None)


def test_a_history_names_the_loads_that_it_leaves_out(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    for n in range(2):
        land(dataset, intent(n))
    (tmp_path / "_weblake" / "ledger" / f"{load_id(1)}.done.json").write_text("{")
    left_out: list[str] = []
    rows = orchestration.history(dataset, unreadable=lambda load_id, why: left_out.append(load_id))
    assert [row.receipt.load_id for row in rows] == [load_id(0)]
    assert left_out == [load_id(1)]
