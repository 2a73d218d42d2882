"""Tests of which runs continue the load of another run, and which start a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pytest
from catalogue import proves

from dagster_weblake.identity import Lineage

FROM_FAILURE, OF_ASSETS = {"dagster/is_resume_retry": "true"}, {"dagster/is_asset_resume_retry": "true"}
BY_DAEMON = {"dagster/retry_number": "1"}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def a_run(instance: dg.DagsterInstance, parent: dg.DagsterRun | None, tags: Mapping[str, str] = {}) -> dg.DagsterRun:
    chain: dict[str, str] = {}
    if parent is not None:
        chain = {"dagster/parent_run_id": parent.run_id, "dagster/root_run_id": parent.root_run_id or parent.run_id}
    return instance.add_run(
        dg.DagsterRun(
            job_name="job",
            tags={**tags, **chain},
            parent_run_id=parent.run_id if parent else None,
            root_run_id=(parent.root_run_id or parent.run_id) if parent else None,
        )
    )


def task(instance: dg.DagsterInstance, run: dg.DagsterRun, partition: str | None = "p") -> Any:
    key = dg.AssetKey(["web", "docs"])
    return Lineage(instance, run).task_of(key, partition, key)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="if run.parent_run_id is None or not _continues_parent(run):",
    becomes="if True:",
)
@pytest.mark.parametrize("how", [FROM_FAILURE, OF_ASSETS, BY_DAEMON, {**BY_DAEMON, **FROM_FAILURE}])
def test_o9_a_retry_is_the_same_load_and_generation(instance: dg.DagsterInstance, how: dict[str, str]) -> None:
    first = a_run(instance, None)
    second = a_run(instance, first, how)
    third = a_run(instance, second, how)
    assert task(instance, first) == task(instance, second) == task(instance, third)
    assert task(instance, first).load_id(0) != task(instance, first, None).load_id(0)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="if run.parent_run_id is None or not _continues_parent(run):",
    becomes="if run.parent_run_id is None:",
)
def test_o9_re_executing_all_steps_is_a_new_generation_of_the_same_load(instance: dg.DagsterInstance) -> None:
    first = a_run(instance, None)
    again = a_run(instance, first)
    retried = a_run(instance, again, BY_DAEMON)
    assert task(instance, again).load_id(0) == task(instance, first).load_id(0)  # generations tell them apart
    assert task(instance, again).occasion != task(instance, first).occasion
    assert task(instance, retried) == task(instance, again)


@proves(
    "O6",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="root, asked = self.run.root_run_id or self.run.run_id, self._requested_by",
    becomes='root, asked = "run", self._requested_by',
)
def test_o6_another_run_is_another_load(instance: dg.DagsterInstance) -> None:
    one, two = a_run(instance, None), a_run(instance, None)
    assert task(instance, one).load_id(0) != task(instance, two).load_id(0)
    assert task(instance, one).slot(0, None).name == task(instance, two).slot(0, None).name


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="return None  # taken for the retry that it says it is",
    becomes="break",
)
def test_a_retry_whose_parent_run_was_deleted_is_recognised(instance: dg.DagsterInstance) -> None:
    first = a_run(instance, None)
    second = a_run(instance, first, FROM_FAILURE)
    instance.delete_run(first.run_id)
    assert task(instance, second).occasion == first.run_id
