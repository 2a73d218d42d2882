"""Tests that jobs and loads of other programs reach Dagster once each, and that its own are left out."""

from __future__ import annotations

import json
import secrets
from datetime import datetime, timezone

import dagster as dg
import pytest
from gated_site import GatedSite
from in_process import Bench
from landed_loads import landed
from sensor_bench import Ticker, ended, start, until

from dagster_weblake import (
    BatchScrapeRequest,
    JobRequest,
    build_jobs_elsewhere_sensor,
    build_loads_elsewhere_sensor,
    build_weblake_assets,
)
from dagster_weblake.sensors import elsewhere_jobs, ticks
from weblake.dataset.records import Intent, Start
from weblake.errors import InvalidOption

pytestmark = pytest.mark.system

JOBS = build_weblake_assets("others", JobRequest())


def watch_jobs(bench: Bench, **options: object) -> Ticker:
    return Ticker(bench, build_jobs_elsewhere_sensor(JOBS, kinds=["batch_scrape"], **options), JOBS)  # type: ignore[arg-type]


def finished(bench: Bench, *urls: str) -> str:
    job_id = start(bench.service, urls)
    ended(bench.service, job_id)
    return job_id


def test_a_job_of_somebody_else_is_landed_once(bench: Bench, site: GatedSite) -> None:
    ticker = Ticker(bench, build_jobs_elsewhere_sensor(JOBS), JOBS)
    finished(bench, f"{site.url}/page/1")
    assert ticker.tick().said == "No job has ended."
    running = start(bench.service, site.held(1))
    assert ticker.tick().requests == []
    with bench.service.client() as client:
        crawl = client.start_crawl(f"{site.url}/page/2").id
        until(lambda: client.get_crawl(str(crawl)).status, lambda status: status == "completed")
    (request,) = ticker.tick().requests
    assert request.run_key == crawl
    assert request.run_config == {"ops": {"others": {"config": {"kind": "crawl", "job_id": crawl}}}}
    # Its run was never launched: it is asked for again, also by a process that is new.
    ticker = ticker.restarted(build_jobs_elsewhere_sensor(JOBS))
    assert ticker.tick().keys == [crawl]
    assert ticker.run(request).success
    assert bench.rows() == 1
    assert ticker.tick().requests == []
    ticker = ticker.restarted(build_jobs_elsewhere_sensor(JOBS))
    site.release()
    ended(bench.service, running)
    assert ticker.until(lambda tick: bool(tick.requests)).keys == [running]


def test_jobs_of_the_dataset_s_own_loads_are_left_out(bench: Bench, site: GatedSite) -> None:
    ticker = watch_jobs(bench)
    ticker.tick()
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=[f"{site.url}/page/1"]))
    detached = build_weblake_assets("later", BatchScrapeRequest(urls=[f"{site.url}/page/2"]), wait="sensor")
    assert bench.run(docs).success
    assert bench.run(detached, "later_job").success
    landed(bench.service, str(bench.root), [f"{site.url}/page/3"])  # from a shell
    other = finished(bench, f"{site.url}/page/4")
    seen = [ticker.until(lambda tick: bool(tick.requests)), *(ticker.tick() for _ in range(3))]
    assert {key for tick in seen for key in tick.keys} == {other}


def test_a_job_that_a_lost_start_may_have_begun_is_left_to_it(bench: Bench, site: GatedSite) -> None:
    ticker = watch_jobs(bench)
    ticker.tick()
    url, ledger, load_id = f"{site.url}/page/1", bench.resource.dataset().ledger, secrets.token_hex(8)
    at = datetime.now(timezone.utc).isoformat()
    kind = "batch_scrape"
    ledger.record_intent(
        Intent(load_id=load_id, kind=kind, endpoint=kind, created_at=at, request_sha256="", first_target=url)
    )
    open_start = Start(load_id=load_id, n=1, key="test-key", at=at)
    ledger.record_start(open_start)
    perhaps, other = finished(bench, url), finished(bench, f"{site.url}/page/2")
    for _ in range(3):
        assert ticker.tick().keys == [other]
    assert all(ticker.run(request).success for request in ticker.tick().requests)
    assert ticker.tick().said == "Ended, and perhaps the dataset's own: 1."
    ledger.void_start(open_start, "a test says so")
    assert ticker.tick().keys == [perhaps]


@pytest.mark.parametrize("how", ["asked for", "lost cursor"])
def test_jobs_of_the_last_day_count_where_the_cursor_is_lost(bench: Bench, site: GatedSite, how: str) -> None:
    earlier = finished(bench, f"{site.url}/page/1")
    ticker = watch_jobs(bench, fire_earlier=how == "asked for")
    if how == "lost cursor":
        ticker.cursor = '{"kinds": 17'
    (request,) = ticker.tick().requests
    assert request.run_key == earlier
    assert ticker.run(request).success
    for cursor in ("[]", '{"kinds": 17, "waiting": []}'):
        ticker.cursor = cursor
        assert ticker.tick().requests == []


def test_only_the_targets_and_ends_that_are_asked_for_count(bench: Bench, site: GatedSite) -> None:
    ticker = watch_jobs(bench, target="*/held/*", statuses=["cancelled"])
    ticker.tick()
    finished(bench, f"{site.url}/page/1")
    urls = site.held(2)
    cancelled, completed = start(bench.service, urls[:1]), start(bench.service, urls[1:])
    with bench.service.client() as client:
        client.cancel_batch_scrape(cancelled)
    site.release()
    ended(bench.service, cancelled, completed)
    seen = [ticker.until(lambda tick: bool(tick.requests)), *(ticker.tick() for _ in range(2))]
    assert {key for tick in seen for key in tick.keys} == {cancelled}


def test_many_jobs_are_requested_within_bounds(bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere_jobs, "MOST_WAITING", 40)
    monkeypatch.setattr(ticks, "REQUESTS", 30)
    ticker = watch_jobs(bench, fire_earlier=True)
    jobs = {start(bench.service, [f"{site.url}/page/{number}"]) for number in range(120)}
    ended(bench.service, *jobs)
    seen = set[str]()
    monkeypatch.setattr(ticks, "launched", lambda context, sensor, keys: seen & set(keys))  # as if all were run
    for _ in range(30):
        tick = ticker.tick()
        assert len(tick.requests) <= 30
        assert len(json.loads(str(ticker.cursor))["waiting"]) <= 40
        assert seen.isdisjoint(map(str, tick.keys))
        seen |= set(map(str, tick.keys))
        if seen == jobs:
            break
    assert seen == jobs


def test_a_service_in_trouble_or_a_ledger_loses_no_job(bench: Bench, site: GatedSite) -> None:
    ticker = watch_jobs(bench)
    ticker.tick()
    bench.service.faults({"match": {"path": "/v2/team/activity"}, "times": None, "effect": {"status": 402}})
    job_id = finished(bench, f"{site.url}/page/1")
    assert "Trouble: " in str(ticker.tick().said)
    bench.service.faults()
    damaged = bench.root / "_weblake" / "ledger" / f"{secrets.token_hex(8)}.job.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")  # of another load, which leaves this job alone
    assert ticker.tick().keys == [job_id]


def test_what_cannot_be_watched_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidOption, match="kinds"):
        build_jobs_elsewhere_sensor(JOBS, kinds=["scrape"])  # type: ignore[list-item]
    with pytest.raises(InvalidOption, match="statuses"):
        build_jobs_elsewhere_sensor(JOBS, statuses=[])
    with pytest.raises(InvalidOption, match="2: others, a"):
        build_jobs_elsewhere_sensor([*JOBS, *build_weblake_assets("a", JobRequest())])
    with pytest.raises(InvalidOption, match="cwarl"):
        build_loads_elsewhere_sensor({"cwarl": "docs"})
    with pytest.raises(InvalidOption, match="several roots"):
        build_loads_elsewhere_sensor({"crawl": dg.AssetSpec("a", metadata={"weblake/to": "/a"}), "parse": "b"})


# Loads


def reported(bench: Bench, ticker: Ticker, *, keep: bool = True) -> list[dg.AssetMaterialization]:
    """The events of a tick, stored as the daemon stores them."""
    events = ticker.tick(keep=keep).events
    found = []
    for event in events:
        assert isinstance(event, dg.AssetMaterialization)
        bench.instance.report_runless_asset_event(event)
        found.append(event)
    return found


def loads_of(events: list[dg.AssetMaterialization]) -> list[object]:
    return [event.metadata["weblake/load_id"].value for event in events]


def test_a_load_from_a_shell_is_reported_once(bench: Bench, site: GatedSite) -> None:
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=[f"{site.url}/page/1"]))
    ticker = Ticker(bench, build_loads_elsewhere_sensor(docs), docs)
    assert ticker.tick().said == "Nothing has landed yet."
    assert bench.run(docs).success  # Dagster's own
    _, landing = landed(bench.service, str(bench.root), site_pages := [f"{site.url}/page/{n}" for n in range(2)])
    (event,) = reported(bench, ticker, keep=False)
    assert event.asset_key == dg.AssetKey("docs")
    assert loads_of([event]) == [landing.receipt.load_id]
    assert event.metadata["dagster/row_count"].value == len(site_pages)
    # The daemon was killed before it had noted the cursor.
    assert reported(bench, ticker) == []
    ticker = ticker.restarted(build_loads_elsewhere_sensor(docs))
    assert reported(bench, ticker) == []
    latest = bench.instance.get_latest_materialization_event(dg.AssetKey("docs"))
    assert latest is not None
    assert latest.asset_materialization is not None
    assert loads_of([latest.asset_materialization]) == [landing.receipt.load_id]


def test_what_other_assets_of_this_dagster_landed_is_not_reported(bench: Bench, site: GatedSite) -> None:
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=[f"{site.url}/page/1"]))
    ticker = Ticker(bench, build_loads_elsewhere_sensor("all_pages"), docs)
    ticker.tick()
    assert bench.run(docs).success
    assert ticker.tick().said == "No other load has landed."
    with dg.instance_for_test() as other:  # to another Dagster it is news
        ticker.bench = Bench(other, bench.service, bench.root)
        ticker.cursor = "{}"
        assert len(ticker.tick().events) == 1


@pytest.mark.parametrize("earlier", [False, True])
def test_what_had_landed_before_counts_where_asked_for(bench: Bench, site: GatedSite, earlier: bool) -> None:
    _, old = landed(bench.service, str(bench.root), [f"{site.url}/page/1"])
    ticker = Ticker(bench, build_loads_elsewhere_sensor("docs", fire_earlier=earlier), [])
    assert loads_of(reported(bench, ticker)) == ([old.receipt.load_id] if earlier else [])
    _, new = landed(bench.service, str(bench.root), [f"{site.url}/page/2"])
    assert loads_of(reported(bench, ticker)) == [new.receipt.load_id]
    ticker.cursor = "{"
    assert loads_of(reported(bench, ticker)) == ([] if earlier else [old.receipt.load_id])


def test_kinds_predicates_and_partitions(bench: Bench, site: GatedSite) -> None:
    days = dg.StaticPartitionsDefinition(["one", "two"])
    batches = build_weblake_assets("batches", BatchScrapeRequest(urls=["https://a.example/"]), partitions_def=days)
    sensor = build_loads_elsewhere_sensor(
        {"batch_scrape": batches, "crawl": "crawls"},
        where=lambda receipt: receipt.stored < 3,
        partition=lambda receipt: {1: "one", 2: "three"}[receipt.stored],
        fire_earlier=True,
    )
    ticker = Ticker(bench, sensor, batches)
    for count in (1, 2, 3):
        landed(bench.service, str(bench.root), [f"{site.url}/page/{n}" for n in range(count)])
    (event,) = reported(bench, ticker)
    assert (event.asset_key, event.partition) == (dg.AssetKey("batches"), "one")
    assert event.metadata["dagster/partition_row_count"].value == 1
    assert any("'three'" in line for line in ticker.log)


def test_many_loads_are_reported_in_order_and_retired_ones_not(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_weblake.sensors.elsewhere_loads.EVENTS", 2)
    ticker = Ticker(bench, build_loads_elsewhere_sensor("docs"), [])
    ticker.tick()
    page = [f"{site.url}/page/1"]
    loads = [landed(bench.service, str(bench.root), page, key=str(n))[1].receipt.load_id for n in range(3)]
    slot = [landed(bench.service, str(bench.root), page, key=f"s{n}", slot="a")[1].receipt.load_id for n in range(2)]
    assert loads_of(reported(bench, ticker)) == loads[:2]
    assert loads_of(reported(bench, ticker)) == [loads[2], slot[1]]
    assert reported(bench, ticker) == []


def test_a_dataset_in_trouble_is_waited_out(bench: Bench, site: GatedSite) -> None:
    ticker = Ticker(bench, build_loads_elsewhere_sensor("docs"), [])
    ticker.tick()
    _, landing = landed(bench.service, str(bench.root), [f"{site.url}/page/1"])
    done = bench.root / "_weblake" / "ledger" / f"{landing.receipt.load_id}.done.json"
    whole = done.read_text()
    done.write_text("{")
    assert ticker.tick().requests == []  # its load is left out, and no other one
    done.write_text(whole)
    assert loads_of(reported(bench, ticker)) == [landing.receipt.load_id]
