"""Tests of jobs that one run starts and another lands, with false records, losses and concurrent runs in between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import NOW, Assets, batches, killed, load_of, survived
from in_process import Bench, Run
from landed_loads import REFUSED_URL

from dagster_weblake import BatchScrapeRequest, WeblakeResource, build_weblake_assets, collecting, weblake_assets
from weblake.loads import recovery
from weblake_service.server import LocalService

pytestmark = pytest.mark.system


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


def test_each_of_two_runs_collects_what_it_started(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = batches(site, wait="sensor", partitions_def=None)
    real, inner = collecting.collect, list[Run]()

    def collect(*args: Any, **more: Any) -> Iterator[Any]:
        if not inner:
            inner.append(None)  # type: ignore[arg-type]
            inner.append(bench.run(pages))
        yield from real(*args, **more)

    monkeypatch.setattr(collecting, "collect", collect)
    outer = bench.run(pages)
    assert load_of(outer, "parts") == load_of(outer, "parts_job") != load_of(inner[1], "parts")
    assert (bench.started, bench.rows()) == (2, 4)


def test_a_made_up_load_is_refused_and_not_retried(bench: Bench, site: GatedSite) -> None:
    pages = batches(site, wait="sensor", retry_policy=NOW)
    assert bench.run(pages, "parts_job", partition="a").success
    for tag in ("nonsense", "../../etc/passwd", "0" * 16, "", "{partition_key}"):
        run = bench.run(pages, "parts", partition="a", tags={collecting.LOAD_TAG: tag})
        assert run.failure().metadata["weblake/error"].value in ("InvalidOption", "AskPerson")
        assert (run.retries(), bench.rows()) == ([], 0)


def test_a_load_of_another_partition_or_asset_is_refused(bench: Bench, site: GatedSite) -> None:
    pages, others = batches(site, wait="sensor"), batches(site, "others", wait="sensor")
    tags = {collecting.LOAD_TAG: load_of(bench.run(pages, "parts_job", partition="a"), "parts_job", "a")}
    for assets, name, partition in ((pages, "parts", "b"), (others, "others", "a")):
        run = bench.run(assets, name, partition=partition, tags=tags)
        assert f"was not started for {name}, partition {partition}" in str(run.failure().description)
    assert bench.run(pages, "parts", partition="a", tags=tags).success
    assert bench.rows() == 2


def test_terms_of_the_request_hold_when_it_is_collected(bench: Bench, site: GatedSite) -> None:
    urls = [*site.pages(1), REFUSED_URL]

    def pages(**terms: Any) -> Assets:
        request = BatchScrapeRequest(urls=urls, poll_interval=0.2, **terms)
        return build_weblake_assets("pages", request, wait="sensor", retry_policy=NOW)

    assert bench.run(pages(), "pages_job").success
    refused = bench.run(pages(fail_ratio=0.0), "pages")
    assert refused.failure().metadata["weblake/error"].value == "LoadIncomplete"
    assert (refused.retries(), bench.files()) == ([], [])
    assert bench.run(pages(fail_ratio=0.0, allow_partial=True), "pages").success
    assert (bench.started, bench.rows(), bench.rows("page_errors")) == (1, 1, 1)


def test_limits_that_a_function_returns_and_the_landing_does_not_know_are_named(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=site.pages(1), deadline=timedelta(hours=1), max_credits=5, partition={"day": "1"})
    said = "does not know max_credits, deadline of this request"
    for terms, warned in ((None, True), (request, False)):
        pages = weblake_assets("pages", wait="sensor", terms=terms, retry_policy=None)(lambda: request)
        run = bench.run(pages, "pages_job")
        assert run.success
        logged = [each.message for each in bench.instance.all_logs(run.result.run_id)]
        assert any(said in message for message in logged) == warned


def test_a_job_past_its_credits_is_not_landed(bench: Bench, site: GatedSite) -> None:
    held = BatchScrapeRequest(urls=[*site.pages(3), *site.held(1)], poll_interval=0.2)
    assert bench.run(build_weblake_assets("pages", held, wait="sensor", retry_policy=None), "pages_job").success
    dear = BatchScrapeRequest(urls=held.urls, poll_interval=0.2, max_credits=1)
    run = bench.run(build_weblake_assets("pages", dear, wait="sensor", retry_policy=NOW), "pages")
    site.release()
    assert run.failure().metadata["weblake/error"].value == "CreditsExhausted"
    assert (run.retries(), bench.rows()) == ([], 0)


def test_a_lost_list_is_reported(bench: Bench, site: GatedSite) -> None:
    pages = batches(site, wait="sensor", partitions_def=None, retry_policy=NOW)
    assert bench.run(pages, "parts_job").success
    (lost,) = [path for path in (bench.root / "_weblake").rglob("*") if path.name.endswith(".json.gz")]
    kept = lost.read_bytes()
    for data in (None, b"\x1f\x8bno gzip", kept[:-4]):
        lost.unlink() if data is None else lost.write_bytes(data)
        run = bench.run(pages, "parts")
        assert run.failure().metadata["weblake/error"].value == "StorageRefused"
        assert (run.retries(), bench.rows()) == ([], 0)
    lost.write_bytes(kept)
    assert bench.run(pages, "parts").success
    assert (bench.rows(), bench.started) == (2, 1)
    assert not lost.exists()


def test_a_job_unknown_to_the_service_is_distinguished(bench: Bench, site: GatedSite) -> None:
    pages = batches(site, wait="sensor", partitions_def=None, retry_policy=None)
    assert bench.run(pages, "parts_job").success
    for record in (bench.root / "_weblake/ledger").iterdir():  # to weblake, each service on loopback is the same one
        record.write_text(record.read_text().replace('"loopback"', '"https://far.example.com"'))
    with LocalService() as other:
        elsewhere = WeblakeResource(base_url=other.url, api_key=other.key, root=str(bench.root))
        run = bench.run(pages, "parts", resources={"weblake": elsewhere})
    assert "was started at https://far.example.com, and loopback has no such job" in str(run.failure().description)
    assert bench.run(pages, "parts").success
