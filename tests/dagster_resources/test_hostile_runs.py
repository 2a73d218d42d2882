"""Tests that loads are whole and paid once when runs overlap, are killed, or get unusual requests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from catalogue import proves
from database_search import in_bytes
from gated_site import GatedSite
from hostile_runs import IN_ONE, LETTERS, NOW, START, batches, inside, killed, load_of, one_run, survived
from in_process import Bench, Run

import dagster_weblake.reports  # noqa: F401 - loaded before a test patches what it imports
from dagster_weblake import (
    BatchScrapeRequest,
    JobRequest,
    ScrapeRequest,
    WeblakeResource,
    build_weblake_assets,
    build_weblake_specs,
    step,
    weblake_assets,
)
from weblake import orchestration
from weblake.dataset import root
from weblake.jobs import named_pauses
from weblake.loads import publishing, recovery
from weblake_service.server import LocalService

pytestmark = pytest.mark.system


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
    "3.5",
    at="src/weblake/loads/load_request.py",
    line='return load_id_of("task", *self._whole(), self.run, generation)',
    becomes='return load_id_of("task", *self._whole(), self.run, generation, id(self))',
)
def test_two_processes_that_land_the_same_load_land_it_once(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_run(monkeypatch)
    parts = batches(site)
    inner = inside(monkeypatch, root.Dataset, "path", lambda: bench.run(parts, partition="a"))
    outer = bench.run(parts, partition="a")
    (other,) = [each for each in inner if isinstance(each, Run)]
    assert load_of(outer, "parts", "a") == load_of(other, "parts", "a")
    assert (bench.rows(), bench.started) == (2, 1)


@proves(
    "O9",
    at="src/weblake/dataset/landed_loads.py",
    line="    if not dataset.storage.ensure_durable(name):",
    becomes="    if True:",
    case="finish",
)
@pytest.mark.parametrize("line", ["recover", "publish", "finish"])
def test_o9_a_run_that_dies_around_the_commit_is_finished_by_its_retry(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    one_run(monkeypatch)
    parts = batches(site)
    with monkeypatch.context() as patch:
        patch.setattr(recovery if line == "recover" else publishing, line, killed)
        assert not survived(lambda: bench.run(parts, partition="a"))
    asked = len(bench.service.requests())
    run = bench.run(parts, partition="a")
    assert run.metadata("parts", "a")["dagster/partition_row_count"] == 2
    if line == "finish":  # its documents are there: the service, which forgets them in a day, is not needed
        assert len(bench.service.requests()) == asked
    assert (bench.rows(), bench.started) == (2, 1)


def test_the_retry_reports_the_materialization_of_a_landed_load(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_run(monkeypatch)
    parts = batches(site)
    with monkeypatch.context() as patch:
        patch.setattr(step, "result_of", killed)
        assert not survived(lambda: bench.run(parts, partition="a"))
    assert (bench.rows(), bench.partitions("parts")) == (2, [])
    asked = len(bench.service.requests())
    found = bench.run(parts, partition="a").metadata("parts", "a")
    assert (found["weblake/stored"], found["dagster/partition_row_count"], found["weblake/complete"]) == (2, 2, True)
    assert len(bench.service.requests()) == asked
    assert bench.started == 1


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


def test_only_the_failed_partitions_of_a_range_are_paid_again(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job is cancelled by somebody, one start is put off: at the retry one is bought again and one at last."""
    monkeypatch.setattr(named_pauses, "MAX_RETRY_AFTER_S", 0.2)
    bench.service.faults({"match": {**START, "nth": 2}, "effect": {"status": 429, "retry_after": 90}})
    real = orchestration.start_load
    cancelled: list[str] = []

    def begin(*args: Any, **more: Any) -> Any:
        intent, job, document = real(*args, **more)
        if not cancelled:
            cancelled.append(job.job_id)
            with bench.service.client() as client:
                client.cancel_batch_scrape(job.job_id)
            site.release()
        return intent, job, document

    monkeypatch.setattr(orchestration, "start_load", begin)
    held = BatchScrapeRequest(urls=site.held(2), poll_interval=0.2)
    parts = build_weblake_assets(
        "parts", held, partitions_def=LETTERS, backfill_policy=IN_ONE, retry_policy=dg.RetryPolicy(max_retries=1)
    )
    run = bench.run(parts, partitions=("a", "c"))
    assert run.success
    (pause,) = run.retries()
    assert 1.2 < pause <= 1.2 + 0.2 * named_pauses.SPREAD
    assert (bench.started, bench.rows()) == (4, 6)
    assert set(bench.partitions("parts")) == {"a", "b", "c"}


def test_a_failure_before_the_first_partition_pays_nothing(bench: Bench, site: GatedSite) -> None:
    bench.service.faults({"match": {"path": "/v2/"}, "times": None, "effect": {"status": 401}})
    run = bench.run(batches(site, backfill_policy=IN_ONE, retry_policy=NOW), partitions=("a", "c"))
    assert "3 of 3 partitions failed" in str(run.failure().description)
    assert (run.retries(), bench.started, bench.partitions("parts")) == ([], 0, [])


def test_errors_of_the_decorated_function_are_reported_like_any_other(bench: Bench, site: GatedSite) -> None:
    bench.service.faults({"match": {"path": "/v2/scrape$"}, "times": None, "effect": {"status": 402}})

    @weblake_assets(retry_policy=NOW)
    def pages(weblake: WeblakeResource) -> BatchScrapeRequest:
        weblake.client.scrape(site.url)
        raise AssertionError

    @weblake_assets(retry_policy=NOW)
    def nothing() -> BatchScrapeRequest:
        return None  # type: ignore[return-value]

    @weblake_assets(retry_policy=NOW, wait="sensor")
    def page() -> ScrapeRequest:
        return ScrapeRequest(url=site.url)

    told = []
    for assets, name in ((pages, "pages"), (nothing, "nothing"), (page, "page_job")):
        run = bench.run(assets, name)
        told.append((run.failure().metadata["weblake/error"].value, run.retries()))
    assert told == [("CreditsExhausted", []), ("InvalidOption", []), ("InvalidOption", [])]


def test_one_step_lands_for_two_assets_from_two_services(bench: Bench, site: GatedSite) -> None:
    with LocalService() as service:
        other = WeblakeResource(base_url=service.url, api_key=service.key, root=str(bench.root.parent / "other"))
        requests: dict[str, BatchScrapeRequest | ScrapeRequest] = {}
        requests |= {"here": BatchScrapeRequest(urls=site.pages(2)), "there": ScrapeRequest(url=f"{site.url}/page/1")}
        specs = [spec for name, request in requests.items() for spec in build_weblake_specs(name, request)]

        @dg.multi_asset(specs=specs)
        def both(context, weblake: WeblakeResource, second: WeblakeResource):  # type: ignore[no-untyped-def]
            yield from weblake.run(context, requests["here"], key=dg.AssetKey("here"))
            yield from second.run(context, requests["there"], key=dg.AssetKey("there"))

        run = bench.run([both], resources={"second": other})
        assert run.success
        assert (run.metadata("here")["weblake/kind"], run.metadata("there")["weblake/kind"]) == (
            "batch_scrape",
            "scrape",
        )
        assert (bench.rows(), bench.service.counts().get("scrape_started", 0)) == (2, 0)
        assert service.counts()["scrape_started"] == 1


def test_unusual_partition_keys_stay_within_the_root(bench: Bench, site: GatedSite) -> None:
    odd = ["a/b=c", "../..", "{partition_key}", "%2e%2e", 'it\'s "quoted"', "日本 ü", "a|b,c", "x" * 200]
    keys = dg.DynamicPartitionsDefinition(name="keys")
    bench.instance.add_dynamic_partitions("keys", odd)
    request = ScrapeRequest(url=f"{site.url}/page/1", partition={"key": "{partition_key}"})
    assets = build_weblake_assets("odd", request, partitions_def=keys, retry_policy=None)
    for key in [*odd, odd[0]]:
        assert bench.run(assets, partition=key).success
    assert [path for path in bench.root.parent.rglob("*.parquet") if not path.is_relative_to(bench.root)] == []
    assert len(bench.files()) == len(odd)
    assert set(bench.partitions("odd")) == set(odd)
    landed = pq.read_table(str(bench.root / "documents"), partitioning="hive").column("key").to_pylist()
    assert sorted(landed) == sorted(odd)
    bench.instance.delete_dynamic_partition("keys", odd[0])
    assert len(bench.files()) == len(odd)


def test_windows_have_the_days_of_their_time_zone(bench: Bench, site: GatedSite) -> None:
    days = dg.DailyPartitionsDefinition("2026-03-28", timezone="Europe/Berlin", end_offset=400)
    request = ScrapeRequest(
        url=f"{site.url}/page/1?{{partition_start}}", partition={"from": "{partition_start}", "to": "{partition_end}"}
    )
    daily = build_weblake_assets("daily", request, partitions_def=days)
    assert bench.run(daily, partition="2026-03-29").success  # the clocks go forward: a day of 23 hours
    assert bench.files()[0].startswith("documents/from=2026-03-29/to=2026-03-30/")


def test_dagster_features_for_assets_work_with_weblake_assets(bench: Bench, site: GatedSite) -> None:
    seen = []

    @dg.success_hook
    def hook(context: dg.HookContext) -> None:
        seen.append(context.op.name)

    assets = batches(
        site, partitions_def=None, hooks={hook}, op_tags={"dagster/priority": "3"}, pool="web", retry_policy=None
    )
    node = assets[0].node_def
    assert (assets[0].op.pool, node.tags["dagster/priority"]) == ("web", "3")
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(assets, instance=instance, resources={"weblake": bench.resource})
    assert result.success
    assert seen == ["parts"]


def test_metadata_has_a_bounded_size(bench: Bench, site: GatedSite) -> None:
    urls = [f"{site.url}/page/{n}?{'q' * 1500}" for n in range(8)]
    values = bench.run(build_weblake_assets("wide", BatchScrapeRequest(urls=urls))).metadata("wide")
    assert values["weblake/stored"] == 8
    assert len(str(values)) < 20_000


def test_the_key_is_in_no_file_or_row_of_dagster(
    bench: Bench, site: GatedSite, capfd: pytest.CaptureFixture[str]
) -> None:
    """The service repeats the key in what it answers, at every point where it answers."""
    key = bench.service.key
    said = {"success": False, "error": f"Bearer {key} is not welcome", "details": [{"key": key}]}
    points: list[Mapping[str, object]] = [{"path": "team/activity"}, START, {"method": "GET", "path": "/v2/batch/"}]
    for point in points:
        bench.service.faults({"match": point, "times": None, "effect": {"status": 401, "body": said}})
        assert not bench.run(batches(site, partitions_def=None)).success
    bench.service.faults()
    assert bench.run(batches(site, partitions_def=None)).success
    captured = capfd.readouterr()
    assert "is not welcome" in captured.err
    assert not in_bytes((captured.out + captured.err).encode(), key)
    for path in bench.root.parent.rglob("*"):
        assert not path.is_file() or not in_bytes(path.read_bytes(), key), path
    logged = [entry for run in bench.instance.get_runs() for entry in bench.instance.all_logs(run.run_id)]
    assert len(logged) > 40
    assert key not in repr(logged)


def test_a_job_started_elsewhere_is_landed_and_not_cancelled(bench: Bench, site: GatedSite) -> None:
    with bench.service.client() as client:
        job = client.start_batch_scrape([*site.pages(2), *site.held(1)])
    timer = threading.Timer(1.0, site.release)
    timer.start()
    request = JobRequest(kind="batch", job_id=f" {job.id} ".upper(), poll_interval=0.2, max_credits=1)
    run = bench.run(build_weblake_assets("theirs", request, retry_policy=None))
    timer.join()
    assert run.success
    assert (bench.started, bench.rows()) == (1, 3)
