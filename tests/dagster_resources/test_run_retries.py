"""Tests of the rule by which Dagster retries a run that was over its time limit, applied before Dagster does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pytest
from catalogue import proves

from dagster_weblake.run_retries import will_retry

ON: dict[str, Any] = {"enabled": True, "max_retries": 2}
TIME_LIMIT = "Canceling due to exceeding maximum runtime of 6 seconds."


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(settings={"run_retries": request.param}) as found:
        yield found


def a_run(instance: dg.DagsterInstance, first: dg.DagsterRun | None, tags: Mapping[str, str] = {}) -> dg.DagsterRun:
    chain = {} if first is None else {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    root = first.run_id if first else None
    run = dg.DagsterRun(job_name="job", tags={**tags, **chain}, parent_run_id=root, root_run_id=root)
    return instance.add_run(run)


def now(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/run_retries.py",
    line="len(group[1]) <= retries",
    becomes="len(group[1]) <= retries + 1",
    case="no further one",
)
@pytest.mark.parametrize(
    ("instance", "earlier", "tags", "expected"),
    [
        (ON, 0, {}, True),
        (ON, 1, {}, True),
        (ON, 2, {}, False),
        (ON, 2, {"dagster/max_retries": "3"}, True),
        (ON, 0, {"dagster/max_retries": "0"}, False),
        (ON, 0, {"dagster/max_retries": "many"}, False),
        ({"enabled": True}, 0, {}, False),
        ({"enabled": False, "max_retries": 2}, 0, {"dagster/max_retries": "2"}, False),
        ({**ON, "retry_on_asset_or_op_failure": False}, 0, {}, True),
    ],
    indirect=["instance"],
    ids=[
        "first",
        "last",
        "no further one",
        "more by a tag",
        "none by a tag",
        "invalid tag",
        "none by default",
        "disabled",
        "not after a failed step",
    ],
)
@pytest.mark.filterwarnings("ignore:Error parsing int from tag dagster/max_retries")
def test_the_answer_before_dagster_decides_is_its_decision(
    instance: dg.DagsterInstance, earlier: int, tags: Mapping[str, str], expected: bool
) -> None:
    first = a_run(instance, None, tags)
    run = [first, *(a_run(instance, first, tags) for _ in range(earlier))][-1]
    instance.report_run_canceling(run, TIME_LIMIT)
    instance.report_run_canceling(run)  # by the run launcher
    assert will_retry(instance, now(instance, run)) is expected
    instance.report_run_failed(run, "Exceeded maximum runtime of 6 seconds.")
    decided = now(instance, run).tags.get("dagster/will_retry", "false")
    assert (decided, will_retry(instance, now(instance, run))) == (str(expected).lower(), expected)


@pytest.mark.parametrize("instance", [ON], indirect=True)
def test_a_run_whose_first_run_is_deleted_is_not_retried(instance: dg.DagsterInstance) -> None:
    first = a_run(instance, None)
    run = a_run(instance, first)
    instance.delete_run(first.run_id)
    instance.report_run_canceling(run, TIME_LIMIT)
    assert will_retry(instance, now(instance, run)) is False
    instance.report_run_failed(run)
    assert now(instance, run).tags["dagster/will_retry"] == "false"


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/run_retries.py",
    line="return any(_TIME_LIMIT in message for message in terminations(instance, run)) and",
    becomes="return",
)
@pytest.mark.parametrize("instance", [ON], indirect=True)
def test_o9_a_run_that_a_user_terminates_is_not_retried(instance: dg.DagsterInstance) -> None:
    run = a_run(instance, None)
    instance.report_run_canceling(run)
    assert will_retry(instance, now(instance, run)) is False
    instance.report_run_canceled(run)
    assert will_retry(instance, now(instance, run)) is False
