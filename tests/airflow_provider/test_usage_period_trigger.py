"""Tests that closed usage periods fire their watchers once, also after restarts and gaps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from async_jobs import land, run_in_loop, until
from event_triggerer import POLL_S, Supervisor, one_watcher, supervisor, triggerer, wait_for_polls
from gated_site import GatedSite

from airflow_provider_weblake.triggers import events
from airflow_provider_weblake.triggers.events import WeblakeUsagePeriodTrigger
from weblake.testing import WeblakeService

__all__ = ["supervisor"]


def usage(**options: Any) -> WeblakeUsagePeriodTrigger:
    return WeblakeUsagePeriodTrigger(poll_interval=POLL_S, **options)


MONTH = 31 * 24 * 3600.0
REPORT = "/v2/team/credit-usage/historical"


def test_a_usage_period_fires_once_when_it_has_closed(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite
) -> None:
    async def story() -> None:
        await land(weblake_service, f"{site.url}/page/1", f"{site.url}/page/2")
        month = f"{datetime.now(timezone.utc):%Y-%m}"
        async with one_watcher(supervisor, usage(), "usage") as before:
            await wait_for_polls(weblake_service, 2, path=REPORT)
            assert before.fired == []
            weblake_service.advance(MONTH)
            await land(weblake_service, f"{site.url}/page/3")
            await until(lambda: before.fired, watched=before)
            await until(lambda: supervisor.of("usage")[0]["last_period_start"], watched=before)
            await wait_for_polls(weblake_service, 2, path=REPORT)
        (event,) = [event for _, event in before.fired]
        assert (event["report"], event["period"], event["total"]) == ("credits", month, 2)
        start, end = (datetime.fromisoformat(event[name]) for name in ("period_start", "period_end"))
        assert f"{start:%Y-%m-%d %H:%M}" == f"{month}-01 00:00"
        assert timedelta(days=27) < end - start < timedelta(days=32)
        # Two more close while no triggerer runs.
        weblake_service.advance(MONTH)
        await land(weblake_service, f"{site.url}/page/4")
        weblake_service.advance(MONTH)
        await land(weblake_service, f"{site.url}/page/5")
        async with triggerer() as after:
            after.watch(usage(), "usage")
            await until(lambda: len(after.fired) == 2, watched=after)
            await wait_for_polls(weblake_service, 2, path=REPORT)
        assert len(after.fired) == 2
        assert [event["total"] for _, event in after.fired] == [1, 1]
        assert month < after.fired[0][1]["period"] < after.fired[1][1]["period"]

    run_in_loop(story)


@pytest.mark.parametrize("fire_latest", [False, True])
def test_a_new_watcher_records_or_fires_the_newest_closed_period(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite, fire_latest: bool
) -> None:
    async def story() -> None:
        for number in range(3):
            await land(weblake_service, f"{site.url}/page/{number}")
            weblake_service.advance(MONTH)
        await land(weblake_service, f"{site.url}/page/9")
        async with one_watcher(supervisor, usage(report="tokens", fire_latest=fire_latest), "usage") as running:
            await wait_for_polls(weblake_service, 2, path="/v2/team/token-usage/historical")
        periods = [event["period"] for _, event in running.fired]
        assert len(periods) == (1 if fire_latest else 0)
        noted = supervisor.of("usage")[0]["last_period_start"]
        assert noted[:7] > f"{datetime.now(timezone.utc):%Y-%m}"
        assert periods in ([], [noted[:7]])
        if fire_latest:
            assert running.fired[0][1]["total"] > 0

    run_in_loop(story)


def test_a_period_also_closes_by_the_clock_without_a_later_one(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=32)

    async def story() -> None:
        await land(weblake_service, f"{site.url}/page/1")
        async with one_watcher(supervisor, usage(), "usage") as running:
            assert running.fired == []
            monkeypatch.setattr(events, "datetime", Later)
            await until(lambda: running.fired, watched=running)
        assert [event["total"] for _, event in running.fired] == [1]

    run_in_loop(story)
