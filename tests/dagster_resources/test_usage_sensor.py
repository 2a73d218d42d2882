"""Tests that a closed usage period is landed once, also after an outage over several."""

from __future__ import annotations

from datetime import datetime, timezone

import dagster as dg
import pytest
from gated_site import GatedSite
from in_process import Bench
from sensor_bench import Ticker, ended, start

from dagster_weblake import UsageRequest, build_weblake_assets
from dagster_weblake.sensors import build_usage_closed_sensor
from weblake.errors import InvalidOption

MONTH_S = 31 * 24 * 3600.0


def month(ahead: int) -> str:
    now = datetime.now(timezone.utc)
    return f"{now.year + (now.month + ahead - 1) // 12}-{(now.month + ahead - 1) % 12 + 1:02}"


def monthly(ahead: int = 12) -> dg.MonthlyPartitionsDefinition:
    """The service's clock is moved by months, and Dagster's is not: so these partitions are there ahead of time."""
    return dg.MonthlyPartitionsDefinition(start_date=f"{month(0)}-01", end_offset=ahead)


def spend(bench: Bench, site: GatedSite) -> None:
    ended(bench.service, start(bench.service, [f"{site.url}/page/1"]))


def test_each_period_is_landed_once_when_it_has_closed(bench: Bench, site: GatedSite) -> None:
    usage = build_weblake_assets("usage", UsageRequest(), partitions_def=monthly())
    ticker = Ticker(bench, build_usage_closed_sensor(usage), usage)
    assert ticker.sensor.name == "usage_closed"
    spend(bench, site)
    assert ticker.tick().said == "No other usage period has closed."
    bench.service.advance(MONTH_S)
    spend(bench, site)
    (request,) = ticker.tick().requests
    assert (request.run_key, request.partition_key) == (f"credits/{month(0)}", f"{month(0)}-01")
    assert ticker.tick().keys == [request.run_key]  # until its run is there
    assert ticker.run(request).success
    assert bench.rows("usage_periods") == 1
    assert ticker.tick().requests == []
    # Three more close while nothing ticks.
    for _ in range(3):
        bench.service.advance(MONTH_S)
        spend(bench, site)
    ticker = ticker.restarted(build_usage_closed_sensor(usage))
    tick = ticker.tick()
    assert [request.partition_key for request in tick.requests] == [f"{month(n)}-01" for n in (1, 2, 3)]
    assert ticker.run(tick.requests[1]).success
    assert ticker.tick().keys == [f"credits/{month(n)}" for n in (1, 3)]
    assert all(ticker.run(request).success for request in ticker.tick().requests)
    assert ticker.tick().requests == []
    assert len(bench.files("usage_periods")) == 4
    # A cursor that cannot be read brings nothing again that has a run.
    for cursor in ("{", "[]", '{"settled": 5}'):
        ticker.cursor = cursor
        assert ticker.tick().requests == []


@pytest.mark.parametrize("fire_latest", [False, True])
def test_a_new_sensor_takes_note_of_what_had_closed(bench: Bench, site: GatedSite, fire_latest: bool) -> None:
    usage = build_weblake_assets("usage", UsageRequest(report="tokens"))
    for _ in range(3):
        spend(bench, site)
        bench.service.advance(MONTH_S)
    spend(bench, site)
    ticker = Ticker(bench, build_usage_closed_sensor(usage, fire_latest=fire_latest), usage)
    tick = ticker.tick()
    assert tick.keys == ([f"tokens/{month(2)}"] if fire_latest else [])
    if fire_latest:
        assert tick.requests[0].partition_key is None
        assert ticker.run(tick.requests[0]).success
    assert ticker.tick().requests == []


def test_a_period_waits_for_its_partition_and_not_for_one_before_the_first(bench: Bench, site: GatedSite) -> None:
    early, late = monthly(1), dg.MonthlyPartitionsDefinition(start_date=f"{month(1)}-01", end_offset=12)
    spend(bench, site)
    tickers = []
    for name, partitions in (("early", early), ("late", late)):
        usage = build_weblake_assets(name, UsageRequest(), partitions_def=partitions)
        tickers.append(Ticker(bench, build_usage_closed_sensor(usage), usage))
        tickers[-1].tick()
    for _ in range(2):
        bench.service.advance(MONTH_S)
        spend(bench, site)
    for _ in range(2):
        # The first month, which has run, makes no place for the second one's partition.
        assert tickers[0].tick().keys == [f"credits/{month(0)}"]
        assert any("end_offset" in line for line in tickers[0].log)
    assert tickers[0].run(tickers[0].tick().requests[0]).success
    assert tickers[0].tick().requests == []
    usage = build_weblake_assets("early", UsageRequest(), partitions_def=monthly())
    tickers[0].assets, tickers[0].sensor = usage, build_usage_closed_sensor(usage)
    assert tickers[0].tick().keys == [f"credits/{month(1)}"]
    assert tickers[1].tick().keys == [f"credits/{month(1)}"]


def test_months_by_name_and_zones_find_their_partition(bench: Bench, site: GatedSite) -> None:
    named = dg.StaticPartitionsDefinition([month(0)])
    zoned = dg.MonthlyPartitionsDefinition(f"{month(0)}-01", end_offset=3, timezone="America/New_York")
    spend(bench, site)
    tickers = [
        Ticker(bench, build_usage_closed_sensor("a", partitions_def=named), build("a", named)),
        Ticker(bench, build_usage_closed_sensor("b", partitions_def=zoned), build("b", zoned)),
    ]
    for ticker in tickers:
        ticker.tick()
    bench.service.advance(MONTH_S)
    spend(bench, site)
    assert [ticker.tick().requests[0].partition_key for ticker in tickers] == [month(0), f"{month(0)}-01"]


def build(name: str, partitions: dg.PartitionsDefinition[str]) -> list[dg.AssetsDefinition]:
    return build_weblake_assets(name, UsageRequest(), partitions_def=partitions)


def test_a_service_in_trouble_is_waited_out(bench: Bench, site: GatedSite) -> None:
    usage = build_weblake_assets("usage", UsageRequest(by_api_key=True))
    ticker = Ticker(bench, build_usage_closed_sensor(usage), usage)
    spend(bench, site)
    ticker.tick()
    cursor = ticker.cursor
    bench.service.advance(MONTH_S)
    spend(bench, site)
    bench.service.faults(
        {"match": {"path": "/v2/team/credit-usage"}, "times": None, "effect": {"status": 503, "retry_after": 7200}}
    )
    assert "Trouble: " in str(ticker.tick().said)
    assert ticker.cursor == cursor
    bench.service.faults()
    assert ticker.tick().keys == [f"credits/{month(0)}"]


def test_a_report_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidOption, match="euros"):
        build_usage_closed_sensor("usage", report="euros")  # type: ignore[arg-type]
