"""Tests of what a step lands and pays for: every kind of request, several partitions, and runs that overlap or die.

The last ones are of jobs that one run starts and another lands, with losses, false tags and other runs in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import IN_ONE, LETTERS, batches, inside, killed, load_of, one_run, survived
from in_process import Bench, Run
from polling import until

from dagster_weblake import (
    ActivityRequest,
    BatchScrapeRequest,
    CrawlRequest,
    JobConfig,
    JobRequest,
    ParseRequest,
    WeblakeParquetIOManager,
    WeblakeResource,
    build_document_checks,
    build_weblake_assets,
    step,
    weblake_assets,
)
from dagster_weblake.assets import WeblakeAsset
from dagster_weblake.landing import LOAD_TAG
from weblake import orchestration
from weblake.loads import publishing, recovery
from weblake.loads.orphans import open_loads

DOCUMENTS = Path(__file__).parents[1] / "service" / "documents"
FILES = dg.StaticPartitionsDefinition(["tides.docx", "tides.pdf", "gauges.xls"])


@contextmanager
def released_when(site: GatedSite, look: Callable[[], object]) -> Iterator[None]:
    """Release the held pages when `look` returns a true value; fail after the block if it never did."""
    with ThreadPoolExecutor(1) as pool:

        def release() -> None:
            try:
                until(look)
            finally:
                site.release()

        released = pool.submit(release)
        yield
        released.result()


@pytest.mark.smoke
def test_a_crawl_lands_with_the_standard_metadata(bench: Bench, site: GatedSite) -> None:
    docs = build_weblake_assets("docs", CrawlRequest(url=f"{site.url}/", options={"limit": 3}))
    run = bench.run(docs)
    found = run.metadata("docs")
    assert run.success
    assert (bench.rows(), found["dagster/row_count"], found["weblake/stored"]) == (3, 3, 3)
    assert found["dagster/uri"] == f"file://{bench.root}/{bench.files()[0]}"
    assert found["weblake/complete"] is True
    assert found["weblake/credits_used"] == 3.0
    assert found["weblake/wait_seconds"] > 0  # type: ignore[operator]
    assert found["weblake/downloaded_bytes"] > 100  # type: ignore[operator]
    assert found["weblake/retries"] == 0
    assert bench.instance.fetch_observations(dg.AssetKey("docs"), limit=5).records == []
    spec = docs[0].specs_by_key[dg.AssetKey("docs")]
    assert spec.kinds == {"weblake", "parquet"}
    assert spec.metadata["dagster/storage_kind"] == "parquet"
    assert "markdown" in [column.name for column in spec.metadata["dagster/column_schema"].columns]


def test_a_materialization_tells_what_has_changed_if_it_is_asked_to(bench: Bench, site: GatedSite) -> None:
    for first, expected in ((0, [2, 0, 0]), (1, [1, 0, 0])):
        urls = site.pages(2, first)
        docs = build_weblake_assets("docs", BatchScrapeRequest(urls=urls, report_changes=True))
        found = bench.run(docs).metadata("docs")
        assert [found[f"weblake/{kind}"] for kind in ("new", "changed", "gone")] == expected
    found = bench.run(build_weblake_assets("docs", BatchScrapeRequest(urls=site.pages(1)))).metadata("docs")
    assert "weblake/new" not in found


@pytest.mark.system
def test_only_what_is_due_is_bought(bench: Bench, site: GatedSite) -> None:
    """A load of the same partition is replaced, so its pages do not count as fresh."""
    urls, days = site.pages(3), dg.StaticPartitionsDefinition(["a"])

    def pages(urls: list[str], name: str = "pages", days: dg.PartitionsDefinition | None = None) -> WeblakeAsset:
        request = BatchScrapeRequest(urls=urls, refresh_after="7d", report_changes=True)
        return build_weblake_assets(name, request, partitions_def=days)

    @dg.asset(ins={"pages": dg.AssetIn(input_manager_key="lake")})
    def report(pages: pa.Table) -> int:
        return pages.num_rows

    lake = {"lake": WeblakeParquetIOManager(root=str(bench.root))}

    def run(urls: list[str]) -> Run:
        return bench.run([*pages(urls), report, build_document_checks(pages(urls))], resources=lake)

    first, more, nothing = run(urls[:2]), run(urls), run(urls)
    found = [run.metadata("pages") for run in (first, more, nothing)]
    assert nothing.result.output_for_node("report") == 1, "the rows of the load before"
    assert {each.passed for each in nothing.result.get_asset_check_evaluations()} == {True}
    assert "weblake/load_id" not in found[2]
    assert [(each.get("weblake/fresh"), each["weblake/submitted"]) for each in found] == [(None, 2), (2, 1), (3, 0)]
    assert [each["dagster/row_count"] for each in found] == [2, 1, 0]
    assert (found[2]["weblake/complete"], found[2]["weblake/credits_used"]) == (True, 0.0)
    assert "weblake/new" not in found[2]
    other = pages([*urls, *site.pages(1, 3)], "days", days)
    for _ in range(2):
        told = bench.run(other, partition="a").metadata("days", "a")
        assert (told["weblake/fresh"], told["weblake/submitted"]) == (3, 1)
    assert bench.rows() == 4
    late, below = pages(urls, "late", days), dg.AssetIn("late", input_manager_key="lake")
    read = dg.asset(name="read", ins={"pages": below}, partitions_def=days)(lambda pages: pages.num_rows)
    run_late = bench.run([*late, read, build_document_checks(late, blocking=True)], partition="a", resources=lake)
    assert run_late.result.output_for_node("read") == 0, "no URL of the partition was ever due"
    assert {each.passed for each in run_late.result.get_asset_check_evaluations()} == {True}


def test_what_may_have_no_job_cannot_be_waited_for_by_a_sensor() -> None:
    request = BatchScrapeRequest(urls=["http://a.test/"], refresh_after="never")
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="no URL is due"):
        build_weblake_assets("pages", request, wait="sensor")
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="refresh_after is '7 days'"):
        build_weblake_assets("pages", BatchScrapeRequest(urls=["http://a.test/"], refresh_after="7 days"))


def test_the_link_is_the_job_page_of_the_resource(bench: Bench, site: GatedSite) -> None:
    page = "https://app.example.com/{kind}/{job_id}"
    mine = {"base_url": bench.service.url, "api_key": bench.service.key, "root": str(bench.root)}
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=site.pages(1)))
    run = bench.run(docs, resources={"weblake": WeblakeResource(**mine, job_page=page)})
    found = run.metadata("docs")
    assert found["weblake/job"] == f"https://app.example.com/batch_scrape/{found['weblake/job_id']}"
    before = bench.started
    run = bench.run(docs, resources={"weblake": WeblakeResource(**mine, job_page="javascript:alert(1)//{job_id}")})
    assert not run.success
    assert bench.started == before


def test_a_second_materialization_adds_a_load_or_replaces_its_partition(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=[f"{site.url}/page/1", f"{site.url}/{{partition_key}}"])
    parts = build_weblake_assets("parts", request, partitions_def=LETTERS)
    plain = build_weblake_assets("plain", BatchScrapeRequest(urls=site.pages(3)))
    for _ in range(2):
        assert bench.run(plain).success
    assert bench.rows() == 6
    for partition in ("a", "b", "a"):
        assert bench.run(parts, partition=partition).success
    assert bench.rows() == 6 + 2 + 2
    assert bench.started == 5


@pytest.mark.smoke
def test_one_run_over_partitions_reports_each_partition(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=[f"{site.url}/page/1", f"{site.url}/{{partition_key}}"])
    parts = build_weblake_assets("parts", request, partitions_def=LETTERS, backfill_policy=IN_ONE)
    run = bench.run(parts, partitions=("a", "c"))
    assert sorted(run.materialized()) == [("parts", "a"), ("parts", "b"), ("parts", "c")]
    loads = {str(run.metadata("parts", partition)["weblake/load_id"]) for partition in "abc"}
    assert len(loads) == 3
    assert {path.rpartition("/")[2][:16] for path in bench.files()} == loads


def test_partitions_land_although_others_fail(bench: Bench, site: GatedSite) -> None:
    bench.service.faults({"match": {"method": "POST", "path": "batch/scrape$", "nth": 2}, "effect": {"status": 402}})
    parts = batches(site, backfill_policy=IN_ONE)
    run = bench.run(parts, partitions=("a", "c"))
    assert not run.success
    assert sorted(bench.partitions("parts")) == ["a", "c"]
    assert "1 of 3 partitions failed. b: " in str(run.failure().description)
    # The next run buys what is missing, and what it is asked for anew.
    assert bench.run(parts, partition="b").success
    assert bench.rows() == 6


@pytest.mark.parametrize("effect", [{"status": 429, "retry_after": 3600}, {"status": 401}])
def test_a_general_refusal_ends_the_starts_of_the_other_partitions(
    bench: Bench, site: GatedSite, effect: dict[str, int]
) -> None:
    start = {"method": "POST", "path": "batch/scrape$"}
    bench.service.faults({"match": {**start, "nth": 2}, "effect": effect})
    run = bench.run(batches(site, backfill_policy=IN_ONE), partitions=("a", "c"))
    assert not run.success
    assert bench.partitions("parts") == ["a"]  # what was started before lands
    assert "2 of 3 partitions failed. b, c: " in str(run.failure().description)
    assert len([each for each in bench.service.requests() if each["method"] == "POST"]) == 2


def test_partitions_land_in_the_order_in_which_their_jobs_end(bench: Bench, site: GatedSite) -> None:
    """Else the results of one job may expire while the step waits for another one."""
    site.held(1)
    parts = build_weblake_assets(
        "parts",
        BatchScrapeRequest(urls=[f"{site.url}/{{partition_key}}"], poll_interval=0.2),
        partitions_def=dg.StaticPartitionsDefinition(["held/1", "page/2", "page/3"]),
        backfill_policy=IN_ONE,
    )
    with released_when(site, lambda: bench.rows() == 2):
        run = bench.run(parts, partitions=("held/1", "page/3"))
    assert run.success
    assert sorted(bench.partitions("parts")) == ["held/1", "page/2", "page/3"]


def test_dimensions_and_dynamic_partitions_are_named_in_the_request(bench: Bench, site: GatedSite) -> None:
    both = dg.MultiPartitionsDefinition({"page": dg.StaticPartitionsDefinition(["1", "2"]), "kind": LETTERS})
    request = BatchScrapeRequest(urls=[site.url + "/page/{partition_key[page]}?{partition_key[kind]}"])
    multi = build_weblake_assets("multi", request, partitions_def=both)
    before = len(site.asked)
    assert bench.run(multi, partition="a|2").success
    sites = dg.DynamicPartitionsDefinition(name="sites")
    bench.instance.add_dynamic_partitions("sites", [f"127.0.0.1:{site.url.rpartition(':')[2]}"])
    crawl = CrawlRequest(url="http://{partition_key}/", options={"limit": 2})
    dynamic = build_weblake_assets("dynamic", crawl, partitions_def=sites)
    assert bench.run(dynamic, partition=f"127.0.0.1:{site.url.rpartition(':')[2]}").success
    with_query = [path for path in site.asked[before:] if path.endswith("?a")]
    assert with_query == ["/page/2?a"]
    assert bench.rows() == 3


def test_a_job_that_was_started_elsewhere_lands_by_config(bench: Bench, site: GatedSite) -> None:
    with bench.resource.get_client() as client:
        job = client.start_batch_scrape(site.pages(2))
    elsewhere = build_weblake_assets("elsewhere", JobRequest())
    config = dg.RunConfig(ops={"elsewhere": JobConfig(kind="batch", job_id=str(job.id))})
    first, again = (bench.run(elsewhere, run_config=config) for _ in range(2))
    assert first.metadata("elsewhere")["weblake/load_id"] == again.metadata("elsewhere")["weblake/load_id"]
    assert (bench.rows(), bench.started) == (2, 1)


def test_activity_lands_by_day(bench: Bench, site: GatedSite) -> None:
    with bench.resource.get_client() as client:
        client.scrape(f"{site.url}/page/1")
    run = bench.run(build_weblake_assets("calls", ActivityRequest()))
    assert run.metadata("calls")["dagster/row_count"] == 1
    assert bench.rows("activity") == 1


@proves(
    "2.3",
    at="src/weblake/loads/recovery.py",
    line="    older, newer = replacements(entry, dataset.slots.others(entry, partial(recover, dataset)))",
    becomes="    older, newer = replacements(entry, [])",
)
def test_of_two_concurrent_runs_of_a_partition_one_load_remains(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = batches(site)
    inner = inside(monkeypatch, recovery, "replacements", lambda: bench.run(parts, partition="a"))
    outer = bench.run(parts, partition="a")
    (other,) = [each for each in inner if isinstance(each, Run)]
    assert (outer.success, other.success) == (True, True)
    assert bench.rows() == 2
    assert load_of(other, "parts", "a") in bench.files()[0]  # it was begun later
    rows = {row.receipt.load_id: row for row in orchestration.history(bench.resource.dataset())}
    assert rows[load_of(outer, "parts", "a")].replaced_by == load_of(other, "parts", "a")


@proves(
    "O9",
    at="src/weblake/dataset/landed_loads.py",
    line="    if not dataset.storage.ensure_durable(name):",
    becomes="    if True:",
    case="finish",
)
@pytest.mark.parametrize("line", ["publish", "finish"])
def test_o9_a_run_that_dies_around_the_commit_is_finished_by_its_retry(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    one_run(monkeypatch)
    parts = batches(site)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, line, killed)
        assert not survived(lambda: bench.run(parts, partition="a"))
    asked = len(bench.service.requests())
    run = bench.run(parts, partition="a")
    assert run.metadata("parts", "a")["dagster/partition_row_count"] == 2
    if line == "finish":  # its documents are there: the service, which forgets them in a day, is not needed
        assert len(bench.service.requests()) == asked
    assert (bench.rows(), bench.started) == (2, 1)


def test_a_stopped_step_reports_the_partitions_that_have_landed(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = orchestration.land
    calls = []

    def land(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise dg.DagsterExecutionInterruptedError
        return real(*args, **more)

    monkeypatch.setattr(orchestration, "land", land)
    assert not survived(lambda: bench.run(batches(site, backfill_policy=IN_ONE), partitions=("a", "c")))
    assert bench.partitions("parts") == ["a"]
    assert bench.rows() == 2


def rows(bench: Bench, what: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select {what} from '{bench.root}/documents/**/*.parquet' order by url").fetchall()


def test_one_file_a_partition_lands_with_its_cost(bench: Bench) -> None:
    request = ParseRequest(file=f"{DOCUMENTS}/{{partition_key}}", options={"formats": ["markdown", "links"]})
    asset = build_weblake_assets("files", request, partitions_def=FILES, backfill_policy=IN_ONE)
    run = bench.run(asset, partitions=("tides.docx", "gauges.xls"))
    assert run.success
    assert [url for (url,) in rows(bench, "url")] == ["file:///gauges.xls", "file:///tides.docx", "file:///tides.pdf"]
    assert run.metadata("files", "tides.pdf")["weblake/credits_used"] == 2.0
    assert run.metadata("files", "tides.docx")["weblake/stored"] == 1
    assert bench.started == 3


def test_a_paid_job_lands_without_the_list_that_it_was_started_with(
    bench: Bench, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_run(monkeypatch)
    file = tmp_path / "urls.txt"
    file.write_text("\n".join(site.pages(2)))
    pages = build_weblake_assets("pages", BatchScrapeRequest(urls=str(file), poll_interval=0.2), retry_policy=None)
    bench.service.faults({"match": {"method": "GET", "path": "/v2/batch/"}, "times": None, "effect": {"status": 401}})
    assert not bench.run(pages).success
    bench.service.faults()
    file.unlink()
    assert bench.run(pages).success
    assert (bench.started, bench.rows()) == (1, 2)


@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/landing.py",
    line="if _is_reported(step, load_id, part):",
    becomes="if False:",
)
@pytest.mark.system
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
@proves("2.3", at="src/weblake/dataset/slots.py", line="and other.created() < later.created()", becomes="and True")
@pytest.mark.system
def test_an_older_job_that_is_collected_last_replaces_no_load(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = batches(site, wait="sensor")
    first, second = (load_of(bench.run(pages, "parts_job", partition="a"), "parts_job", "a") for _ in range(2))
    assert first != second

    def collected(load_id: str) -> bool:
        return survived(lambda: bench.run(pages, "parts", partition="a", tags={LOAD_TAG: load_id}))

    assert collected(second)
    with monkeypatch.context() as patch:  # the older one's run dies before it has made way
        patch.setattr(recovery, "retire", killed)
        assert not collected(first)
    assert collected(first)
    assert (bench.rows(), bench.started) == (2, 2)
    assert second in bench.files()[0]


@pytest.mark.system
def test_a_load_of_another_partition_or_asset_is_refused(bench: Bench, site: GatedSite) -> None:
    pages, others = batches(site, wait="sensor"), batches(site, "others", wait="sensor")
    tags = {LOAD_TAG: load_of(bench.run(pages, "parts_job", partition="a"), "parts_job", "a")}
    for assets, name, partition in ((pages, "parts", "b"), (others, "others", "a")):
        run = bench.run(assets, name, partition=partition, tags=tags)
        assert f"was not started for {name}, partition {partition}" in str(run.failure().description)
    assert bench.run(pages, "parts", partition="a", tags=tags).success
    assert bench.rows() == 2


@pytest.mark.system
def test_limits_that_a_function_returns_and_the_landing_does_not_know_are_named(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=site.pages(1), deadline=timedelta(hours=1), max_credits=5, partition={"day": "1"})
    said = "does not know max_credits, deadline of this request"
    for terms, warned in ((None, True), (request, False)):
        pages = weblake_assets("pages", wait="sensor", terms=terms, retry_policy=None)(lambda: request)
        run = bench.run(pages, "pages_job")
        assert run.success
        logged = [each.message for each in bench.instance.all_logs(run.result.run_id)]
        assert any(said in message for message in logged) == warned


@pytest.mark.system
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
@pytest.mark.system
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
    tags = {LOAD_TAG: unlanded.load_id}
    assert bench.run(docs, "docs", partition=partition, tags=tags).success
    assert (bench.started, bench.rows()) == (2, 4 if partition is None else 2)
