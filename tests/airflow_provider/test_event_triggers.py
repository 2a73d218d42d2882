"""Tests that completed jobs and closed usage periods fire their watchers once, also after restarts and gaps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from async_jobs import land, run_in_loop, start, status_of, until
from catalogue import proves
from event_triggerer import POLL_S, Supervisor, batches, count_calls, one_watcher, supervisor, triggerer, wait_for_polls
from gated_site import GatedSite

from airflow_provider_weblake.triggers import events
from airflow_provider_weblake.triggers.events import WeblakeUsagePeriodTrigger
from weblake.testing import WeblakeService

__all__ = ["supervisor"]


def test_a_job_that_completes_fires_once_and_earlier_ones_do_not(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite
) -> None:
    async def story() -> None:
        await land(weblake_service, f"{site.url}/page/0")
        held = await start(weblake_service, site.held(1)[0])  # runs when the watcher begins
        async with one_watcher(supervisor, batches(), "scraped") as running:
            job_id = await land(weblake_service, f"{site.url}/page/1?token=abc", f"{site.url}/page/2")
            await until(lambda: running.fired, watched=running)
            site.release()
            await until(lambda: len(running.fired) == 2, watched=running)
            await wait_for_polls(weblake_service, 3)
        assert [payload["job_id"] for _, payload in running.fired] == [job_id, held]
        first = running.fired[0][1]
        created = datetime.fromisoformat(first.pop("created_at"))
        assert abs(created - datetime.now(timezone.utc)) < timedelta(minutes=5)
        assert first == {
            "kind": "batch_scrape", "job_id": job_id, "status": "completed", "completed": 2, "total": 2,
            "credits_used": 2, "target": f"{site.url}/page/1",
        }  # fmt: skip

    run_in_loop(story)


def test_a_restart_neither_repeats_nor_loses_events(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite
) -> None:
    async def story() -> None:
        async with one_watcher(supervisor, batches(), "scraped") as before:
            first = await land(weblake_service, f"{site.url}/page/1")
            await until(lambda: before.fired, watched=before)
            held = await start(weblake_service, site.held(1)[0])
            await until(
                lambda: (
                    supervisor.of("scraped")[0]["over"].keys() == {first}
                    and supervisor.of("scraped")[0]["pending"].keys() == {held}
                ),
                watched=before,
            )
        meanwhile = await land(weblake_service, f"{site.url}/page/2")
        site.release()
        async with triggerer() as after:
            after.watch(batches(), "scraped")
            await until(lambda: len(after.fired) == 2, watched=after)
            await wait_for_polls(weblake_service, 3)
        assert [event["job_id"] for _, event in before.fired] == [first]
        assert {event["job_id"] for _, event in after.fired} == {held, meanwhile}
        assert len(after.fired) == 2

    run_in_loop(story)


def test_an_event_that_airflow_did_not_store_is_repeated(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite
) -> None:
    async def story() -> None:
        async with one_watcher(supervisor, batches(), "scraped"):
            pass
        async with triggerer(confirms=False) as killed:
            killed.watch(batches(), "scraped")
            job_id = await land(weblake_service, f"{site.url}/page/1")
            await until(lambda: killed.fired, watched=killed)
            await wait_for_polls(weblake_service, 3)
        assert job_id not in supervisor.of("scraped")[0]["over"]
        async with triggerer() as after:
            after.watch(batches(), "scraped")
            await until(lambda: after.fired, watched=after)
            await until(lambda: job_id in supervisor.of("scraped")[0]["over"], watched=after)
            await wait_for_polls(weblake_service, 3)
        assert [event["job_id"] for _, event in killed.fired + after.fired] == [job_id, job_id]

    run_in_loop(story)


def test_a_target_filters_the_jobs(weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite) -> None:
    async def story() -> None:
        async with one_watcher(supervisor, batches(target=f"{site.url}/shop/*"), "shop") as running:
            await land(weblake_service, f"{site.url}/news/1")
            wanted = await land(weblake_service, f"{site.url}/shop/1")
            await until(lambda: running.fired, watched=running)
            await wait_for_polls(weblake_service, 3)
        assert [event["job_id"] for _, event in running.fired] == [wanted]

    run_in_loop(story)


# Sharing


def test_twenty_five_watchers_share_one_poll_and_each_keeps_its_own_state(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite
) -> None:
    async def story() -> None:
        names = [f"asset-{number}" for number in range(25)]
        async with triggerer() as running:
            for number, name in enumerate(names):
                # Different choices, one poll.
                running.watch(batches(statuses=("completed", "failed") if number % 2 else ("completed",)), name)
            await until(lambda: all(supervisor.of(name) for name in names), watched=running)
            assert len(running.manager._groups) == 1
            job_id = await start(weblake_service, site.held(1)[0])
            status = f"/v2/batch/scrape/{job_id}"
            await until(lambda: all(job_id in supervisor.of(name)[0]["pending"] for name in names), watched=running)
            site.release()
            while await status_of(weblake_service, job_id) != "completed":
                pass
            before = count_calls(weblake_service, status)
            await until(lambda: len(running.fired) == 25, watched=running)
            await until(lambda: all(job_id in supervisor.of(name)[0]["over"] for name in names), watched=running)
            await wait_for_polls(weblake_service, 2)
        assert {number for number, _ in running.fired} == set(range(1, 26))
        assert len(running.fired) == 25
        # A job is not polled again once a poll has returned that it is completed.
        assert count_calls(weblake_service, status) - before <= 1

    run_in_loop(story)


def test_one_trigger_for_two_assets_keeps_its_state_with_both(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite
) -> None:
    """Airflow makes one trigger of equal ones, and its accessor refuses to choose between their assets."""

    async def story() -> None:
        async with one_watcher(supervisor, batches(), "first") as running:
            job_id = await land(weblake_service, f"{site.url}/page/1")
            await until(lambda: job_id in supervisor.of("first")[0]["over"], watched=running)
        async with triggerer() as after:
            after.watch(batches(), "added later", "first")
            second = await land(weblake_service, f"{site.url}/page/2")
            await until(lambda: after.fired, watched=after)
            # The state of each asset is written for itself.
            await until(
                lambda: supervisor.of("added later") and supervisor.of("added later") == supervisor.of("first"),
                watched=after,
            )
        assert [event["job_id"] for _, event in after.fired] == [second]

    run_in_loop(story)


@proves(
    "H26",
    at="airflow_provider/src/airflow_provider_weblake/triggers/events.py",
    line='.geturl().replace("\\0", "")[:_TARGET_CHARS]',
    becomes=".geturl()[:_TARGET_CHARS]",
)
@pytest.mark.parametrize("target", ["https://site.test/\0a", "\0https://site.test/a", "https://site.test/a\0?x"])
def test_h26_the_target_of_an_event_holds_no_nul(target: str) -> None:
    shown = events._target_text(target)
    assert shown is not None
    assert "\0" not in shown
    assert "site.test" in shown


# Usage periods


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
