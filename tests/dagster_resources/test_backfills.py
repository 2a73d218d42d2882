"""Tests that a re-executed backfill continues the jobs of its first run, and that a new one pays again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import IN_ONE, LETTERS, batches, load_of
from in_process import Bench, Run

from dagster_weblake import BatchScrapeRequest, CrawlRequest, build_weblake_assets, metadata, weblake_assets
from dagster_weblake.identity import Lineage
from weblake import orchestration
from weblake.errors import AskPerson

pytestmark = pytest.mark.system

#: Reading a job is refused: its step fails after the start, without a retry.
UNREADABLE = {"match": {"method": "GET", "path": "/v2/batch/scrape/"}, "times": None, "effect": {"status": 401}}


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


@pytest.mark.parametrize("wait", ["step", "sensor"])
def test_a_paid_job_lands_without_the_list_that_it_was_started_with(
    bench: Bench, site: GatedSite, tmp_path: Path, wait: Literal["step", "sensor"]
) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("\n".join(site.pages(2)))
    more: dict[str, Any] = {"partitions_def": LETTERS, "retry_policy": None, "wait": wait}
    parts = build_weblake_assets("parts", BatchScrapeRequest(urls=str(file), poll_interval=0.2), **more)
    failed(bench, parts, tags_of("one"), partition="a")
    file.unlink()
    second = bench.run(parts, partition="a", tags=tags_of("one", "two"))
    assert second.success, second.failure()
    assert (bench.started, bench.rows()) == (1, 2)
    assert not bench.run(parts, partition="b").success
    assert bench.started == 1


def test_each_level_of_re_execution_continues_the_same_job(bench: Bench, site: GatedSite) -> None:
    parts = batches(site)
    known(bench, "one", "two", "three", "four")
    for level in (("one",), ("one", "two"), ("one", "two", "three")):
        failed(bench, parts, tags_of(*level), partition="a")
    assert bench.run(parts, partition="a", tags=tags_of("one", "two", "three", "four")).success
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


def test_a_landed_load_without_a_materialization_is_reported_and_not_paid_again(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = batches(site)
    with monkeypatch.context() as broken:
        broken.setattr(metadata, "load_metadata", lambda *_, **__: 1 / 0)
        assert not bench.run(parts, partition="a", tags=tags_of("one")).success
    assert (bench.rows(), bench.partitions("parts")) == (2, [])
    assert bench.run(parts, partition="a", tags=tags_of("one", "two")).success
    assert (bench.started, bench.partitions("parts")) == (1, ["a"])


def test_a_single_run_continues_each_of_its_partitions(bench: Bench, site: GatedSite) -> None:
    parts = batches(site, backfill_policy=IN_ONE)
    failed(bench, parts, tags_of("one"), partitions=("a", "c"))
    assert bench.started == 3
    assert bench.run(parts, partitions=("b", "c"), tags=tags_of("one", "two")).success
    assert bench.started == 3
    assert bench.run(parts, partition="a", tags=tags_of("one", "three")).success  # also in runs of their own
    assert (bench.started, bench.rows()) == (3, 6)


def test_a_re_executed_backfill_finds_the_job_that_another_asset_started(bench: Bench, site: GatedSite) -> None:
    parts = batches(site, wait="sensor")
    failed(bench, parts, tags_of("one"), partition="a")  # `parts_job` is materialized, `parts` is not
    assert bench.run(parts, "parts", partition="a", tags=tags_of("one", "two")).success
    assert (bench.started, bench.rows()) == (1, 2)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="if self._first_run is None and not self._backfills:",
    becomes="if False:",
)
def test_o9_a_run_that_may_have_belonged_to_a_backfill_stops_at_an_open_load(bench: Bench, site: GatedSite) -> None:
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


def test_an_open_load_in_a_partition_of_the_path_is_found(bench: Bench, site: GatedSite) -> None:
    """The slot of an asset without partitions depends on the path keys of its request."""
    request = BatchScrapeRequest(urls=site.pages(1), poll_interval=0.2, partition={"source": "web"})
    pages = build_weblake_assets("pages", request, wait="sensor", retry_policy=None)
    assert bench.run(pages, "pages_job").success
    key = dg.AssetKey("pages")
    follows = dg.DagsterRun(
        job_name="job", root_run_id="gone", parent_run_id="gone", tags={"dagster/retry_number": "1"}
    )
    with pytest.raises(AskPerson, match=r"Load .* of pages is open"):
        Lineage(bench.instance, follows).task(bench.resource.dataset(), key, None, key)


def test_equal_reasons_of_several_partitions_are_stated_once(bench: Bench, site: GatedSite) -> None:
    """A decorated function's path keys are not known when definitions load."""
    keys, whole = [*"abc", *("d" * n for n in range(1, 30))], dg.BackfillPolicy.single_run()
    assert bench.run(build_weblake_assets("one", BatchScrapeRequest(urls=site.pages(1)))).success

    @weblake_assets(partitions_def=dg.StaticPartitionsDefinition(keys), backfill_policy=whole, retry_policy=None)
    def two() -> BatchScrapeRequest:
        return BatchScrapeRequest(urls=site.pages(1), partition={"letter": "{partition_key}"})

    for last, named in (("c", "a, b, c"), (keys[-1], r"a, b, c, d, dd, .* \[\.\.\.\]")):
        told = str(bench.run(two, partitions=("a", last)).failure().description)
        assert re.search(rf"partitions failed\. {named}: The table documents of", told), told
        assert told.count("A table has one set of keys") == 1


def test_lines_of_the_log_name_the_partition(bench: Bench, site: GatedSite, capfd: pytest.CaptureFixture[str]) -> None:
    letters, whole = dg.StaticPartitionsDefinition([*"ab"]), dg.BackfillPolicy.single_run()
    crawl = CrawlRequest(url=f"{site.url}/page/1?{{partition_key}}", poll_interval=0.2)
    how: dict[str, Any] = {"partitions_def": letters, "backfill_policy": whole}
    docs = build_weblake_assets("docs", crawl, **how)
    later = build_weblake_assets("later", crawl, wait="sensor", **how)
    for assets, selection in ((docs, "docs"), (later, "later_job")):
        assert bench.run(assets, selection, partitions=("a", "b")).success
        told = capfd.readouterr().err
        assert re.findall(r"(\w): Job \S+ of load \w+: http", told) == ["a", "b"]
        assert re.findall(r"(\w): This crawl has no limit", told) == ["a", "b"]
