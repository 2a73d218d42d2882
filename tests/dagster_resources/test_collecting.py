"""Tests of jobs that one run starts and another lands, with losses, false tags and other runs in between."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import LETTERS, batches, killed, load_of, survived
from in_process import Bench

from dagster_weblake import (
    BatchScrapeRequest,
    build_weblake_assets,
    collecting,
    step,
    weblake_assets,
)
from weblake.loads import recovery
from weblake.loads.orphans import open_loads

pytestmark = pytest.mark.system


@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/collecting.py",
    line="if _is_reported(step, load_id, part):",
    becomes="if False:",
)
def test_the_landing_asset_alone_fails_until_another_job_was_started(bench: Bench, site: GatedSite) -> None:
    docs = batches(site, "docs", wait="sensor", partitions_def=None)
    load_id = bench.run(docs, "docs_job").metadata("docs_job")["weblake/load_id"]
    assert bench.run(docs, "docs").success
    again = bench.run(docs, "docs")  # what a schedule that selects `docs` does
    failure = again.failure()
    assert f"Load {load_id}, the newest that docs_job has started" in str(failure.description)
    assert "Materialize docs_job" in str(failure.metadata["weblake/what_to_do"].value)
    assert bench.partitions("docs") == [None]
    assert bench.run(docs, "docs", tags={"weblake/load_id": str(load_id)}).success  # a run that a sensor asked for
    assert bench.run(docs, "docs_job").success
    assert bench.run(docs, "docs").success
    assert (bench.started, bench.rows()) == (2, 4)


@proves(
    "2.3",
    at="src/weblake/loads/recovery.py",
    line="_finish_retirement(dataset, intent, intent.load_id, by=gone.by)",
    becomes="pass",
)
@proves("2.3", at="src/weblake/dataset/slots.py", line="and other.created() < self.created()", becomes="and True")
def test_an_older_job_that_is_collected_last_replaces_no_load(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = batches(site, wait="sensor")
    first, second = (load_of(bench.run(pages, "parts_job", partition="a"), "parts_job", "a") for _ in range(2))
    assert first != second

    def collected(load_id: str) -> bool:
        return survived(lambda: bench.run(pages, "parts", partition="a", tags={collecting.LOAD_TAG: load_id}))

    assert collected(second)
    with monkeypatch.context() as patch:  # the older one's run dies before it has made way
        patch.setattr(recovery, "retire", killed)
        assert not collected(first)
    assert collected(first)
    assert (bench.rows(), bench.started) == (2, 2)
    assert second in bench.files()[0]


def test_a_load_of_another_partition_or_asset_is_refused(bench: Bench, site: GatedSite) -> None:
    pages, others = batches(site, wait="sensor"), batches(site, "others", wait="sensor")
    tags = {collecting.LOAD_TAG: load_of(bench.run(pages, "parts_job", partition="a"), "parts_job", "a")}
    for assets, name, partition in ((pages, "parts", "b"), (others, "others", "a")):
        run = bench.run(assets, name, partition=partition, tags=tags)
        assert f"was not started for {name}, partition {partition}" in str(run.failure().description)
    assert bench.run(pages, "parts", partition="a", tags=tags).success
    assert bench.rows() == 2


def test_limits_that_a_function_returns_and_the_landing_does_not_know_are_named(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=site.pages(1), deadline=timedelta(hours=1), max_credits=5, partition={"day": "1"})
    said = "does not know max_credits, deadline of this request"
    for terms, warned in ((None, True), (request, False)):
        pages = weblake_assets("pages", wait="sensor", terms=terms, retry_policy=None)(lambda: request)
        run = bench.run(pages, "pages_job")
        assert run.success
        logged = [each.message for each in bench.instance.all_logs(run.result.run_id)]
        assert any(said in message for message in logged) == warned


def test_a_job_and_what_it_lands_are_two_assets(bench: Bench, site: GatedSite) -> None:
    spec = dg.AssetSpec("pages", group_name="web", deps=["list"], automation_condition=dg.AutomationCondition.eager())
    job, data = build_weblake_assets(spec, BatchScrapeRequest(urls=site.pages(2)), wait="sensor")
    assert (job.key.to_user_string(), data.key.to_user_string()) == ("pages_job", "pages")
    assert job.specs_by_key[job.key].automation_condition is not None
    assert (job.specs_by_key[job.key].kinds, data.specs_by_key[data.key].kinds) == ({"weblake"}, {"weblake", "parquet"})
    assert data.specs_by_key[data.key].automation_condition is None
    assert [dep.asset_key for dep in data.specs_by_key[data.key].deps] == [job.key]
    none = bench.run([job, data], "pages")
    assert "Materialize pages_job first" in str(none.failure().description)
    started = bench.run([job, data], "pages_job").metadata("pages_job")
    assert bench.rows() == 0
    landed = bench.run([job, data], "pages").metadata("pages")
    assert (landed["weblake/load_id"], bench.rows(), bench.started) == (started["weblake/load_id"], 2, 1)
    both = bench.run([job, data])
    assert both.success
    assert bench.rows() == 4


@pytest.mark.parametrize("partition", [None, "a"])
def test_a_paid_job_that_no_event_names_lands_by_the_remedy(
    bench: Bench, site: GatedSite, partition: str | None
) -> None:
    """Its run was killed after the start. To materialize `docs_job`, as after other errors, would pay again."""
    parts = None if partition is None else LETTERS
    docs = batches(site, "docs", wait="sensor", partitions_def=parts)
    assert bench.run(docs, partition=partition).success  # an earlier load has landed
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(step, "result_of", killed)
        assert not survived(lambda: bench.run(docs, "docs_job", partition=partition))
    failure = bench.run(docs, "docs", partition=partition).failure()
    remedy = str(failure.metadata["weblake/what_to_do"].value)
    assert f"`weblake orphans {bench.root}` lists the loads that were paid" in remedy
    assert "with the run tag weblake/load_id=LOAD" in remedy
    (unlanded,) = open_loads(bench.resource.dataset()).orphans
    tags = {collecting.LOAD_TAG: unlanded.load_id}
    assert bench.run(docs, "docs", partition=partition, tags=tags).success
    assert (bench.started, bench.rows()) == (2, 4 if partition is None else 2)
