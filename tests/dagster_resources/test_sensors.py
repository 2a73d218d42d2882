"""Tests that the collect sensor requests a run for each ended job once, also after a lost cursor or a killed daemon."""

from __future__ import annotations

import secrets
import time
from types import SimpleNamespace

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import killed, survived
from in_process import Bench
from sensor_bench import Tick, Ticker, counted, ended, start, until

from dagster_weblake import BatchScrapeRequest, CrawlRequest, build_collect_sensor, build_weblake_assets
from dagster_weblake.sensors import collect, job_events
from dagster_weblake.sensors.job_events import FollowedJobs, read_new
from weblake import orchestration
from weblake.errors import InvalidOption
from weblake.events import Event, ProgressLog, StatusPolled

pytestmark = pytest.mark.system


def waiting(urls: list[str], **options: object) -> list[dg.AssetsDefinition]:
    return build_weblake_assets("docs", BatchScrapeRequest(urls=urls), wait="sensor", **options)  # type: ignore[arg-type]


def report_started(bench: Bench, job_id: str, load_id: str | None = None, **more: object) -> str:
    """Materialises `docs_job` for a job that was started without it."""
    load_id = load_id or secrets.token_hex(8)
    facts = {"load_id": load_id, "job_id": job_id, "kind": "batch_scrape", **more}
    metadata = {f"weblake/{name}": value for name, value in facts.items()}
    bench.instance.report_runless_asset_event(dg.AssetMaterialization("docs_job", metadata=metadata))
    return load_id


@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/sensors/collect.py",
    line="if launched[job.load_id] or unlanded[job.load_id] is False:",
    becomes="if False:",
)
def test_a_job_is_collected_when_it_is_over_and_once(bench: Bench, site: GatedSite) -> None:
    docs = waiting(site.held(2))
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    assert (ticker.sensor.name, ticker.sensor.default_status) == ("docs_collect", dg.DefaultSensorStatus.RUNNING)
    assert ticker.tick().said == "No jobs are pending."
    run = bench.run(docs, "docs_job")
    load_id = run.metadata("docs_job")["weblake/load_id"]
    for _ in range(3):
        assert ticker.tick().said == "1 job is pending."
    site.release()
    (request,) = ticker.until(lambda tick: bool(tick.requests)).requests
    assert (request.run_key, request.asset_selection, request.partition_key) == (load_id, [dg.AssetKey("docs")], None)
    assert request.tags["weblake/load_id"] == load_id
    # The daemon was killed before it launched the run: it is asked for again, also by a process that is new.
    assert ticker.tick().keys == [load_id]
    ticker = ticker.restarted(build_collect_sensor(docs))
    assert ticker.tick().keys == [load_id]
    assert ticker.run(request).success
    assert (bench.rows(), bench.started) == (2, 1)
    for _ in range(2):
        tick = ticker.tick()
        assert (tick.requests, tick.said) == ([], "No jobs are pending.")


@pytest.mark.parametrize("ends", ["cancelled", "gone"])
def test_a_run_that_starts_and_lands_is_the_only_one_that_fails(bench: Bench, site: GatedSite, ends: str) -> None:
    docs = waiting(site.held(1), retry_policy=None)
    ticker = Ticker(bench, build_collect_sensor(docs), docs)

    requested: list[object] = []

    def end() -> None:
        with bench.service.client() as client:
            job_id = client.list_activity(endpoint="batch_scrape").data[0].id or ""
            if ends == "cancelled":
                client.cancel_batch_scrape(job_id)
        if ends == "gone":
            site.release()
            ended(bench.service, job_id)
            bench.service.advance(50 * 3600)  # the results of a job expire after its end
        requested.extend(ticker.tick().requests)

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(ProgressLog, "__call__", lambda _, event: end() if isinstance(event, StatusPolled) else None)
        run = bench.run(docs)
        assert not run.success
        assert requested == []  # its run was about to find out
        watched.setattr(collect, "UNSEEN_S", 1.0)
        assert ticker.until(lambda tick: tick.said == "No jobs are pending.").requests == []
    assert "docs_job to start another job" in str(ticker.log)


def test_a_job_whose_own_run_died_before_it_could_land_is_collected(bench: Bench, site: GatedSite) -> None:
    docs = waiting(site.pages(1), retry_policy=None)
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(orchestration, "collect", killed)
        assert not survived(lambda: bench.run(docs))
    (request,) = ticker.until(lambda tick: bool(tick.requests)).requests
    assert ticker.run(request).success


def test_a_job_is_left_to_the_run_that_waits_for_it(bench: Bench, site: GatedSite) -> None:
    docs = waiting(site.pages(1))
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    ticks: list[Tick] = []

    def look(event: Event) -> None:
        if isinstance(event, StatusPolled) and event.status == "completed":
            ticks.append(ticker.tick())

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(ProgressLog, "__call__", lambda _, event: look(event))
        assert bench.run(docs).success
    assert [(tick.requests, tick.said) for tick in ticks] == [([], "1 job is pending.")]
    assert ticker.tick().said == "No jobs are pending."


def test_each_partition_is_collected_as_that_partition(bench: Bench, site: GatedSite) -> None:
    sites = dg.DynamicPartitionsDefinition(name="sites")
    bench.instance.add_dynamic_partitions("sites", ["a", "b", "gone"])
    docs = build_weblake_assets(
        "docs", CrawlRequest(url=f"{site.url}/page/1?{{partition_key}}"), wait="sensor", partitions_def=sites
    )
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    for partition in ("a", "b", "gone"):
        assert bench.run(docs, "docs_job", partition=partition).success
    bench.instance.delete_dynamic_partition("sites", "gone")
    found, log = {}, list[str]()

    def collected() -> set[str | None]:
        for request in ticker.tick().requests:
            found[request.partition_key] = request
        log.extend(ticker.log)
        return set(found) | ({"gone"} if "'gone'" in str(log) else set())

    until(collected, lambda seen: seen == {"a", "b", "gone"})
    assert set(found) == {"a", "b"}
    assert all(ticker.run(request).success for request in found.values())
    assert bench.instance.get_materialized_partitions(dg.AssetKey("docs")) == {"a", "b"}
    assert ticker.tick().said == "No jobs are pending."


@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/sensors/collect.py",
    line="elif job.job_id in answers.heads or job.job_id in answers.errors:",
    becomes="elif False:",
)
@pytest.mark.system
def test_more_jobs_than_a_tick_polls_are_polled_within_bounds(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "POLLS_PER_TICK", 40)
    docs = waiting([f"{site.url}/"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    quick = [start(bench.service, [f"{site.url}/page/{number}"]) for number in range(10)]
    ended(bench.service, *quick)
    held = site.held(1)
    running = [start(bench.service, held) for _ in range(120)]
    # The last ones in the line are over.
    jobs = {job_id: report_started(bench, job_id) for job_id in (*running, *quick)}
    early = {str(key) for _ in range(5) for key in ticker.tick().keys}
    assert early == {jobs[job_id] for job_id in quick}  # those that run have stood behind them
    assert counted(ticker.cursor, "pending") == 130
    site.release()
    ended(bench.service, *jobs)
    seen = set(early)
    for _ in range(20):
        tick = ticker.tick()
        assert len(tick.requests) <= collect.REQUESTS
        assert len(set(tick.keys)) == len(tick.keys)
        seen |= {str(key) for key in tick.keys}
        if seen == set(jobs.values()):
            break
    assert seen == set(jobs.values())


def test_a_failing_service_loses_no_job(bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = waiting([f"{site.url}/page/1"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    load_id = bench.run(docs, "docs_job").metadata("docs_job")["weblake/load_id"]
    for effect in ({"status": 503}, {"drop_before": True}, {"stall": True}, {"status": 402}, {"status": 401}):
        bench.service.faults({"match": {"path": "/v2/batch/scrape/"}, "times": None, "effect": effect})
        # A refusal is reported if the poll is answered within the tick, which needs more time on a busy machine.
        monkeypatch.setattr(collect, "TICK_S", collect.LEDGER_S + (30.0 if effect == {"status": 401} else 1.0))
        began = time.monotonic()
        tick = ticker.tick()
        assert time.monotonic() - began < 20
        assert (tick.requests, counted(ticker.cursor, "pending")) == ([], 1)
    assert "Trouble: " in str(tick.said)
    assert any("stay pending" in line for line in ticker.log)
    assert bench.service.key not in str(ticker.log) + str(tick.said)
    bench.service.faults()
    assert ticker.until(lambda tick: bool(tick.requests)).keys == [load_id]


@proves(
    "O7",
    at="dagster_resources/src/dagster_weblake/sensors/collect.py",
    line="self.memory.ask_after = time.time() + named",
    becomes="pass",
)
def test_o7_a_busy_service_is_not_asked_before_the_time_that_it_names(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "TICK_S", collect.LEDGER_S + 30.0)
    docs = waiting(site.pages(1))
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    load_id = bench.run(docs, "docs_job").metadata("docs_job")["weblake/load_id"]
    busy = bench.service.faults.add(status=429, retry_after=120, path="/v2/batch/scrape/", times=None)
    began = time.monotonic()
    told = str(ticker.tick().said)
    assert time.monotonic() - began < 20, "the tick does not wait for a time after its end"
    assert told.startswith("1 job is pending. Trouble: ")
    assert " It is asked again after " in told
    asked = len(bench.service.requests())
    busy.remove()
    ticker = ticker.restarted(build_collect_sensor(docs))
    for _ in range(2):
        tick = ticker.tick()
        assert tick.requests == []
        assert str(tick.said).startswith("1 job is pending. The service named a time to wait. It is asked again after ")
    assert len(bench.service.requests()) == asked
    later = SimpleNamespace(time=lambda: time.time() + 120 * 1.25 + 2, monotonic=time.monotonic)
    monkeypatch.setattr(collect, "time", later)
    assert ticker.until(lambda tick: bool(tick.requests)).keys == [load_id]


@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/sensors/job_events.py",
    line="LOOK_BACK_S = 7 * 24 * 3600.0",
    becomes="LOOK_BACK_S = 0.0",
    case="{{{",
)
@pytest.mark.parametrize("cursor", ["{{{", '{"pending": {"docs_job": ["x"]}}', f'{{"ask_after": 1{"0" * 400}}}'])
def test_a_lost_cursor_loses_no_job_and_repeats_none(bench: Bench, site: GatedSite, cursor: str) -> None:
    docs = waiting([f"{site.url}/page/1"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    bench.run(docs, "docs_job")
    (first,) = ticker.until(lambda tick: bool(tick.requests)).requests
    assert ticker.run(first).success
    second = bench.run(docs, "docs_job").metadata("docs_job")["weblake/load_id"]
    ticker.cursor = cursor
    assert ticker.until(lambda tick: bool(tick.requests)).keys == [second]


def test_a_job_is_collected_at_its_limits(bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = waiting([f"{site.url}/"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    job_id = start(bench.service, [f"{site.url}/page/1", *site.held(1)])
    with bench.service.client() as client:
        until(lambda: client.get_batch_scrape(job_id).credits_used, lambda used: bool(used))
    within = report_started(bench, job_id, deadline=time.time() + 3600, max_credits=50.0)
    late = report_started(bench, job_id, deadline=dg.MetadataValue.timestamp(time.time() - 1))
    costly = report_started(bench, job_id, max_credits=0.5)
    gone = report_started(bench, "00000000-0000-4000-8000-000000000000")
    assert set(ticker.tick().keys) == {late, costly}, "a job just started may not be found yet"
    monkeypatch.setattr(collect, "UNSEEN_S", 0.0)
    assert set(ticker.tick().keys) == {late, costly, gone}
    site.release()
    ended(bench.service, job_id)
    assert within in ticker.tick().keys


def test_a_load_that_another_process_landed_needs_no_run(bench: Bench, site: GatedSite) -> None:
    docs = waiting([f"{site.url}/page/1"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    load_id = str(bench.run(docs, "docs_job").metadata("docs_job")["weblake/load_id"])
    with bench.service.client() as client:
        orchestration.collect(client, bench.resource.dataset(), load_id)
    assert ticker.tick().said == "No jobs are pending."


def test_events_without_a_job_are_skipped(bench: Bench, site: GatedSite) -> None:
    docs = waiting([f"{site.url}/page/1"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    bench.instance.report_runless_asset_event(dg.AssetMaterialization("docs_job"))
    report_started(bench, "x", kind="nothing")
    assert ticker.tick().said == "No jobs are pending."
    bench.run(docs, "docs_job")
    ticker.tick()
    bench.instance.wipe_assets([dg.AssetKey("docs_job")])
    assert ticker.until(lambda tick: not tick.requests).said == "No jobs are pending."


def test_a_failing_storage_is_retried_at_the_next_tick(bench: Bench, site: GatedSite) -> None:
    docs = waiting([f"{site.url}/page/1"])
    ticker = Ticker(bench, build_collect_sensor(docs), docs)
    load_id = str(bench.run(docs, "docs_job").metadata("docs_job")["weblake/load_id"])
    done = bench.root / "_weblake" / "ledger" / f"{load_id}.done.json"
    done.write_text("{}")
    ticker.until(lambda tick: "Trouble: " in str(tick.said))
    assert ticker.tick().requests == []
    done.unlink()
    assert ticker.tick().keys == [load_id]


def test_an_event_that_is_seen_late_is_not_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database may show event 105 before event 103."""
    monkeypatch.setattr(job_events, "OVERLAP", 3)
    for _ in range(4):
        report_started(bench, "00000000-0000-4000-8000-000000000000")
    key, memory = dg.AssetKey("docs_job"), FollowedJobs()
    read_new(bench.instance, key, memory)
    events = list(memory.pending["docs_job"])
    assert events == list(range(events[0], events[0] + 4))
    later = FollowedJobs(after={"docs_job": events[3]}, recent={"docs_job": [events[3]]})
    read_new(bench.instance, key, later)
    assert later.pending["docs_job"] == events[1:3], "the first one is further behind than a database shows late"
    read_new(bench.instance, key, memory)
    assert memory.pending["docs_job"] == events
    assert FollowedJobs.model_validate_json(memory.model_dump_json()) == memory


def test_a_sensor_with_many_open_jobs_reads_no_further_events(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_weblake.sensors.job_events.MAX_FOLLOWED", 3)
    loads = [report_started(bench, "00000000-0000-4000-8000-000000000000") for _ in range(5)]
    key, memory = dg.AssetKey("docs_job"), FollowedJobs()
    read_new(bench.instance, key, memory)
    first = list(memory.pending["docs_job"])
    assert len(first) == 3
    for event in first:
        memory.forget(key, event)
    read_new(bench.instance, key, memory)
    assert len(memory.pending["docs_job"]) == 2
    assert set(memory.pending["docs_job"]).isdisjoint(first)
    assert len(loads) == 5


def test_assets_are_given_as_definitions_specs_or_keys(bench: Bench) -> None:
    crawl = CrawlRequest(url="https://a.example/")
    own = build_weblake_assets(dg.AssetKey(["web", "own"]), crawl, wait="sensor", to="/x")
    for given in (own, own[0], dg.AssetKey(["web", "own"]), "web/own", ["web/own"]):
        sensor = build_collect_sensor(given)  # type: ignore[arg-type]
        assert sensor.name == "web__own_collect"
        assert sensor.asset_selection is not None
        assert sensor.asset_selection == dg.AssetSelection.assets(dg.AssetKey(["web", "own"]))
    assert build_collect_sensor([*own, "other"]).name == "weblake_collect"
    assert build_collect_sensor("other", name="mine").name == "mine"
    with pytest.raises(InvalidOption, match="wait"):
        build_collect_sensor(build_weblake_assets("docs", crawl))
