"""Tests of every kind of asset, materialised in this process on the embedded service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import dagster as dg
import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from gated_site import GatedSite
from in_process import Bench
from polling import until

from dagster_weblake import (
    ActivityRequest,
    BatchScrapeRequest,
    CrawlRequest,
    JobConfig,
    JobRequest,
    ParseRequest,
    ScrapeRequest,
    UsageRequest,
    WeblakeResource,
    build_weblake_assets,
    build_weblake_specs,
    weblake_assets,
)


class Where(dg.Config):
    """Where the pages are."""

    base: str


LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])


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


@pytest.mark.parametrize("wait", ["step", "sensor"])
def test_a_link_leads_to_the_job_in_the_console_of_the_embedded_service(
    bench: Bench, site: GatedSite, wait: Literal["step", "sensor"]
) -> None:
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=site.pages(2)), wait=wait)
    run = bench.run(docs)
    names = ["docs"] if wait == "step" else ["docs", "docs_job"]
    for name in names:
        found = run.metadata(name)
        assert found["weblake/job"] == f"{bench.service.url}/console/jobs/{found['weblake/job_id']}"
    with httpx.Client(base_url=bench.service.url) as person:
        person.post("/console/sign-in", data={"key": bench.service.key})
        page = person.get(str(found["weblake/job"]))
    assert page.status_code == 200
    assert str(found["weblake/job_id"]) in page.text


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


def test_a_load_that_fails_links_to_its_job(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=["http://127.0.0.1:9/"], fail_ratio=0.0)
    failure = bench.run(build_weblake_assets("docs", request, retry_policy=None)).failure()
    job_id = failure.metadata["weblake/job_id"].value
    assert failure.metadata["weblake/job"].value == f"{bench.service.url}/console/jobs/{job_id}"


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
    parts = build_weblake_assets(
        "parts", request, partitions_def=LETTERS, backfill_policy=dg.BackfillPolicy.single_run()
    )
    run = bench.run(parts, partitions=("a", "c"))
    assert sorted(run.materialized()) == [("parts", "a"), ("parts", "b"), ("parts", "c")]
    loads = {str(run.metadata("parts", partition)["weblake/load_id"]) for partition in "abc"}
    assert len(loads) == 3
    assert {path.rpartition("/")[2][:16] for path in bench.files()} == loads


def test_partitions_land_although_others_fail(bench: Bench, site: GatedSite) -> None:
    bench.service.faults({"match": {"method": "POST", "path": "batch/scrape$", "nth": 2}, "effect": {"status": 402}})
    request = BatchScrapeRequest(urls=[f"{site.url}/page/1"])
    parts = build_weblake_assets(
        "parts", request, partitions_def=LETTERS, backfill_policy=dg.BackfillPolicy.single_run()
    )
    run = bench.run(parts, partitions=("a", "c"))
    assert not run.success
    assert sorted(bench.partitions("parts")) == ["a", "c"]
    assert "1 of 3 partitions failed. b: " in str(run.failure().description)
    # The next run buys what is missing, and what it is asked for anew.
    assert bench.run(parts, partition="b").success
    assert bench.rows() == 3


@pytest.mark.parametrize("effect", [{"status": 429, "retry_after": 3600}, {"status": 401}])
def test_a_general_refusal_ends_the_starts_of_the_other_partitions(
    bench: Bench, site: GatedSite, effect: dict[str, int]
) -> None:
    start = {"method": "POST", "path": "batch/scrape$"}
    bench.service.faults({"match": {**start, "nth": 2}, "effect": effect})
    parts = build_weblake_assets(
        "parts",
        BatchScrapeRequest(urls=site.pages(1)),
        partitions_def=LETTERS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        retry_policy=None,
    )
    run = bench.run(parts, partitions=("a", "c"))
    assert not run.success
    assert bench.partitions("parts") == ["a"]  # what was started before lands
    assert "2 of 3 partitions failed. b, c: " in str(run.failure().description)
    assert len([each for each in bench.service.requests() if each["method"] == "POST"]) == 2


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


@pytest.mark.parametrize("wait", ["step", "sensor"])
def test_partitions_land_in_the_order_in_which_their_jobs_end(
    bench: Bench, site: GatedSite, wait: Literal["step", "sensor"]
) -> None:
    """Else the results of one job may expire while the step waits for another one."""
    site.held(1)
    parts = build_weblake_assets(
        "parts",
        BatchScrapeRequest(urls=[f"{site.url}/{{partition_key}}"], poll_interval=0.2),
        wait=wait,
        partitions_def=dg.StaticPartitionsDefinition(["held/1", "page/2", "page/3"]),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    with released_when(site, lambda: bench.rows() == 2):
        run = bench.run(parts, partitions=("held/1", "page/3"))
    assert run.success
    assert sorted(bench.partitions("parts")) == ["held/1", "page/2", "page/3"]


def test_max_credits_ends_a_job_while_the_step_waits_for_another_partition(bench: Bench, site: GatedSite) -> None:
    held = site.held(2)

    @weblake_assets(
        partitions_def=dg.StaticPartitionsDefinition(["none", "two"]),
        backfill_policy=dg.BackfillPolicy.single_run(),
        wait="sensor",
        terms=BatchScrapeRequest(urls=held, max_credits=1, poll_interval=0.2),
        retry_policy=None,
    )
    def parts(context: dg.AssetExecutionContext) -> BatchScrapeRequest:
        urls = held[:1] if context.partition_key == "none" else [*site.pages(2), held[1]]
        return BatchScrapeRequest(urls=urls)

    for partition in ("none", "two"):
        assert bench.run(parts, "parts_job", partition=partition).success

    def cancelled() -> list[str]:
        return [each["path"] for each in bench.service.requests() if each["method"] == "DELETE"]

    with released_when(site, cancelled):
        run = bench.run(parts, "parts", partitions=("none", "two"))
    assert "1 of 2 partitions failed. two: " in str(run.failure().description)
    assert len(cancelled()) == 1
    assert bench.partitions("parts") == ["none"]


def test_path_keys_contain_the_partition_on_request(bench: Bench, site: GatedSite) -> None:
    days = dg.DailyPartitionsDefinition("2026-11-01")
    request = BatchScrapeRequest(
        urls=[f"{site.url}/page/1"], partition={"day": "{partition_start}", "until": "{partition_end}"}
    )
    daily = build_weblake_assets("daily", request, partitions_def=days)
    assert bench.run(daily, partition="2026-11-03").success
    assert bench.files()[0].startswith("documents/day=2026-11-03/until=2026-11-04/")


@pytest.mark.parametrize(("wait", "given"), [("step", {}), ("sensor", {}), ("step", {"options": {"limit": 3}})])
def test_a_crawl_without_a_limit_warns_of_its_possible_cost(
    bench: Bench, site: GatedSite, capfd: pytest.CaptureFixture[str], wait: Any, given: dict[str, Any]
) -> None:
    docs = build_weblake_assets("docs", CrawlRequest(url=f"{site.url}/page/1", **given), wait=wait)
    assert bench.run(docs, *(["docs_job"] if wait == "sensor" else [])).success
    told = capfd.readouterr().err
    warning = "reach 10,000 pages and cost up to 10,000 credits. Give a `limit`, or `max_credits`."
    assert told.count(warning) == (0 if given else 1)


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


@pytest.mark.parametrize("form", ["list", "arrow", "pandas", "polars"])
def test_urls_come_from_an_upstream_asset(bench: Bench, site: GatedSite, form: str) -> None:
    urls = site.pages(3)
    forms = {
        "list": urls,
        "arrow": pa.table({"n": [1, 2, 3], "url": urls}),
        "pandas": pd.DataFrame({"n": [1, 2, 3], "url": urls}),
        "polars": pl.DataFrame({"n": [1, 2, 3], "url": urls}),
    }

    @dg.asset
    def url_list() -> object:
        return forms[form]

    pages = build_weblake_assets("pages", BatchScrapeRequest(urls=dg.AssetKey("url_list")))
    assert bench.run([url_list, *pages]).success
    assert bench.rows() == 3


def test_a_decorated_function_builds_the_request_from_its_inputs(bench: Bench, site: GatedSite) -> None:
    @dg.asset
    def numbers() -> list[int]:
        return [0, 2]

    @weblake_assets(dg.AssetSpec("chosen", group_name="web"), ins={"ids": dg.AssetIn("numbers")}, partitions_def=None)
    def chosen(
        context: dg.AssetExecutionContext, ids: list[int], weblake: WeblakeResource, config: Where
    ) -> BatchScrapeRequest:
        """Pages that were chosen."""
        assert weblake.client.credit_usage().data.remaining_credits
        assert context.run.run_id
        return BatchScrapeRequest(urls=[f"{config.base}/page/{n}" for n in ids])

    spec = chosen[0].specs_by_key[dg.AssetKey("chosen")]
    assert (spec.description, spec.group_name) == ("Pages that were chosen.", "web")
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == ["numbers"]
    config = dg.RunConfig(ops={"chosen": Where(base=site.url)})
    assert bench.run([numbers, *chosen], run_config=config).success
    assert bench.rows() == 2


def test_a_file_of_an_unsupported_kind_is_refused_by_name(bench: Bench, tmp_path: object) -> None:
    file = bench.root.parent / "leaflet.html"
    file.write_text("<h1>Leaflet</h1>")
    run = bench.run(build_weblake_assets("leaflet", ParseRequest(file=str(file), options={"formats": ["summary"]})))
    assert not run.success
    assert run.failure().metadata["weblake/error"].value == "FeatureMissing"
    assert (
        bench.run(build_weblake_assets("none", ParseRequest(file="/no/such.pdf")))
        .failure()
        .metadata["weblake/error"]
        .value
        == "InvalidOption"
    )


def test_a_job_that_was_started_elsewhere_lands_by_config(bench: Bench, site: GatedSite) -> None:
    with bench.resource.get_client() as client:
        job = client.start_batch_scrape(site.pages(2))
    elsewhere = build_weblake_assets("elsewhere", JobRequest())
    config = dg.RunConfig(ops={"elsewhere": JobConfig(kind="batch", job_id=str(job.id))})
    first, again = (bench.run(elsewhere, run_config=config) for _ in range(2))
    assert first.metadata("elsewhere")["weblake/load_id"] == again.metadata("elsewhere")["weblake/load_id"]
    assert (bench.rows(), bench.started) == (2, 1)


def test_usage_lands_the_requested_months(bench: Bench, site: GatedSite) -> None:
    at = pd.Timestamp.now("UTC")
    with bench.resource.get_client() as client:
        for _ in range(3):
            client.scrape(f"{site.url}/page/1")
            following = (at.replace(day=1) + pd.DateOffset(months=1)).replace(day=15)
            bench.service.advance((following - at).total_seconds())
            at = following
        client.scrape(f"{site.url}/page/1")
    begin = pd.Timestamp.now("UTC").strftime("%Y-%m-01")
    months = dg.MonthlyPartitionsDefinition(begin, end_offset=4)
    keys = months.get_partition_keys()[:4]
    usage = build_weblake_assets(
        "usage", UsageRequest(budget=2), partitions_def=months, backfill_policy=dg.BackfillPolicy.single_run()
    )
    run = bench.run(usage, partition=keys[1])
    assert (bench.rows("usage_periods"), run.metadata("usage", keys[1])["weblake/credits"]) == (1, 1.0)
    before = len(bench.service.requests())
    run = bench.run(usage, partitions=(keys[0], keys[3]))
    assert sorted(run.materialized()) == [("usage", key) for key in keys]
    assert [run.metadata("usage", key)["dagster/partition_row_count"] for key in keys] == [1, 1, 1, 1]
    assert len(bench.service.requests()) - before == 1
    assert bench.rows("usage_periods") == 4
    whole = build_weblake_assets("all_usage", UsageRequest(report="tokens", by_api_key=True))
    assert bench.run(whole).success
    assert any("report=tokens_by_key" in name for name in bench.files("usage_periods"))


def test_activity_lands_by_day(bench: Bench, site: GatedSite) -> None:
    with bench.resource.get_client() as client:
        client.scrape(f"{site.url}/page/1")
    run = bench.run(build_weblake_assets("calls", ActivityRequest()))
    assert run.metadata("calls")["dagster/row_count"] == 1
    assert bench.rows("activity") == 1


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


def test_requests_without_a_job_cannot_wait_with_a_sensor() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Asset 'page': wait='sensor' is for jobs"):
        build_weblake_assets("page", ScrapeRequest(url="https://a.example/"), wait="sensor")


def test_the_code_version_follows_the_request() -> None:
    def version(**given: object) -> str | None:
        request = CrawlRequest(**{"url": "https://a.example/", "options": {"limit": 3}} | given)  # type: ignore[arg-type]
        return build_weblake_specs("docs", request)[0].code_version

    assert version() == version(max_credits=5, allow_partial=True)
    assert len({version(), version(url="https://b.example/"), version(options={"limit": 4})}) == 3
    own = dg.AssetSpec("docs", code_version="mine")
    assert build_weblake_specs(own, CrawlRequest(url="https://a.example/"))[0].code_version == "mine"
    lists = [BatchScrapeRequest(urls=dg.AssetKey(name)) for name in ("one", "two")]
    assert len({build_weblake_specs("docs", request)[0].code_version for request in lists}) == 1
