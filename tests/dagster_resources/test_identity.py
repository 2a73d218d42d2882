"""Tests of which runs and backfills continue the load of another one, and which start a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import batches, load_of
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import Bench, Run

from dagster_weblake.identity import Lineage
from weblake import orchestration
from weblake.errors import AskPerson

pytestmark = pytest.mark.system

FROM_FAILURE = {"dagster/is_resume_retry": "true"}
#: Reading a job is refused: its step fails after the start, without a retry.
UNREADABLE = {"match": {"method": "GET", "path": "/v2/batch/scrape/"}, "times": None, "effect": {"status": 401}}


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


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="if run.parent_run_id is None or not _continues_parent(run):",
    becomes="if run.parent_run_id is None:",
)
@settings(max_examples=30)
@given(st.lists(st.sampled_from(["retry", "failure", "assets", "all"]), max_size=6))
def test_o9_only_a_re_execution_of_all_steps_is_a_new_generation(chain: list[str]) -> None:
    tags = {
        "retry": {"dagster/retry_number": "1"},
        "failure": {"dagster/is_resume_retry": "true"},
        "assets": {"dagster/is_asset_resume_retry": "true"},
        "all": {},
    }
    runs: dict[str, Any] = {"0": SimpleNamespace(run_id="0", root_run_id=None, parent_run_id=None, tags={})}
    asked = "0"
    for n, how in enumerate(chain, 1):
        runs[str(n)] = SimpleNamespace(run_id=str(n), root_run_id="0", parent_run_id=str(n - 1), tags=tags[how])
        asked = str(n) if how == "all" else asked
    instance: Any = SimpleNamespace(get_run_by_id=runs.get)
    task = Lineage(instance, runs[str(len(chain))]).task_of(dg.AssetKey("docs"), None, dg.AssetKey("docs"))
    assert (task.run, task.occasion) == ("0", asked)


def tags_of(*backfills: str) -> dict[str, str]:
    """The tags of the runs of the last of these backfills; each is a re-execution of the one before it."""
    tags = {"dagster/backfill": backfills[-1]}
    if len(backfills) > 1:
        tags |= {"dagster/parent_backfill_id": backfills[-2], "dagster/root_backfill_id": backfills[0]}
    return tags


def failed(bench: Bench, assets: Any, tags: dict[str, str], **which: Any) -> Run:
    """A run that has started its jobs and fails before they land."""
    bench.service.faults(UNREADABLE)
    run = bench.run(assets, tags=tags, **which)
    bench.service.faults()
    assert not run.success
    return run


def known(bench: Bench, *backfills: str) -> None:
    """Has the instance know of backfills, each a re-execution of the one before it."""
    from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

    for level, backfill in enumerate(backfills, 1):
        tags = {name: value for name, value in tags_of(*backfills[:level]).items() if name != "dagster/backfill"}
        given: dict[str, Any] = {"from_failure": False, "tags": tags, "backfill_timestamp": 0.0}
        status = BulkActionStatus.COMPLETED_FAILED
        bench.instance.add_backfill(PartitionBackfill(backfill, status=status, asset_selection=[], **given))


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="return replace(by_run, run=first, occasion=self._requesting_backfill(reported_key, partition))",
    becomes="return by_run",
    case="no runs",
)
@pytest.mark.parametrize("kept", ["all runs", "no runs"])
def test_o9_a_backfill_re_executed_from_failure_lands_the_open_job(bench: Bench, site: GatedSite, kept: str) -> None:
    parts = batches(site)
    first = failed(bench, parts, tags_of("one"), partition="a")
    if kept == "no runs":
        bench.instance.delete_run(first.result.run_id)
    second = bench.run(parts, partition="a", tags=tags_of("one", "two"))
    assert second.success
    assert (bench.started, bench.rows()) == (1, 2)
    # Asked a second time to re-execute the first one: the job has landed, and nothing is bought.
    assert bench.run(parts, partition="a", tags=tags_of("one", "three")).success
    assert (bench.started, bench.rows()) == (1, 2)


@pytest.mark.parametrize("tags", [tags_of("two"), {}])
def test_a_new_backfill_or_run_of_the_partition_pays_for_a_job(
    bench: Bench, site: GatedSite, tags: dict[str, str]
) -> None:
    parts = batches(site)
    failed(bench, parts, tags_of("one"), partition="a")
    assert bench.run(parts, partition="a", tags=tags).success
    assert bench.started == 2


def test_re_executing_a_complete_backfill_pays_again_and_replaces_its_loads(bench: Bench, site: GatedSite) -> None:
    parts = batches(site)
    known(bench, "one", "two", "three")
    one = bench.run(parts, partition="a", tags=tags_of("one"))
    failed(bench, parts, tags_of("one", "two"), partition="a")
    assert bench.started == 2
    # From failure of that: its job, and not the landed one of the first backfill.
    three = bench.run(parts, partition="a", tags=tags_of("one", "two", "three"))
    assert (bench.started, bench.rows()) == (2, 2)
    assert load_of(three, "parts", "a") != load_of(one, "parts", "a")


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="if self._first_run is None and not self._backfills:",
    becomes="if False:",
)
def test_a_run_that_may_have_belonged_to_a_backfill_stops_at_an_open_load(bench: Bench, site: GatedSite) -> None:
    """Its first run is deleted, and Dagster leaves a backfill's tags out of runs that follow when it has ended."""
    failed(bench, batches(site), tags_of("one"), partition="a")
    dataset, key = bench.resource.dataset(), dg.AssetKey("parts")
    follows = dg.DagsterRun(
        job_name="job", root_run_id="gone", parent_run_id="gone", tags={"dagster/retry_number": "1"}
    )
    lineage = Lineage(bench.instance, follows)
    with pytest.raises(AskPerson) as raised:
        lineage.task(dataset, key, "a", key)
    (open_load,) = orchestration.open_loads_of_task(dataset, lineage.task_of(key, "a", key))
    for named in (f"Load {open_load.load_id} of parts, partition a", f"job {open_load.job_id}", "run gone"):
        assert named in raised.value.message
    # Where nothing is open nothing can be bought twice.
    assert lineage.task(dataset, key, "b", key).run == "gone"
