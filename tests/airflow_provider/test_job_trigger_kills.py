"""Tests of a stopped job trigger: by a person, by a restart, and while Airflow or the service does not answer."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from airflow.configuration import conf
from async_jobs import count_requests, start, status_of, trigger, until
from catalogue import proves
from gated_site import GatedSite
from job_trigger_runner import CANCEL, SHUTDOWN_CANCEL, USER_CANCEL, Runner, run

from airflow_provider_weblake.triggers import weblake as triggers
from weblake.testing import WeblakeService

pytestmark = pytest.mark.system


@proves(
    "O4",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="async def on_kill(self) -> None:",
    becomes="async def cleanup(self) -> None:",
)
def test_o4_a_restarted_triggerer_neither_cancels_nor_loses_the_job(
    weblake_connection: WeblakeService, site: GatedSite
) -> None:
    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.held(1))
        mine = trigger(job_id, cancel_on_kill=True, owns_job=True, deadline=time.time() + 600)
        for _ in range(2):
            seen = count_requests(weblake_connection, "GET", job_id)
            task = runner.start(mine)
            await until(lambda seen=seen: count_requests(weblake_connection, "GET", job_id) > seen)
            task.cancel(SHUTDOWN_CANCEL)
            with pytest.raises(asyncio.CancelledError):
                await task
        assert count_requests(weblake_connection, "DELETE") == 0
        again = runner.start(mine)
        site.release()
        await again
        assert [event.payload["status"] for event in runner.fired] == ["completed"]

    run(story)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (ConnectionResetError("the supervisor is gone"), "Airflow does not say why"),
        ("deferred", "its task is deferred"),  # another triggerer has taken it over
    ],
    ids=["no answer", "elsewhere"],
)
@proves(
    "O4",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="if state in ACTIVE_STATES:",
    becomes="if False:",
    case="elsewhere",
)
def test_o4_unless_airflow_says_that_the_task_has_ended_nothing_is_cancelled(
    weblake_connection: WeblakeService, site: GatedSite, capfd: pytest.CaptureFixture[str], state: object, told: str
) -> None:
    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.held(1))
        runner.state = state
        task = runner.start(trigger(job_id, cancel_on_kill=True))
        await until(lambda: count_requests(weblake_connection, "GET", job_id))
        task.cancel(USER_CANCEL)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await status_of(weblake_connection, job_id) == "scraping"

    run(story)
    assert told in capfd.readouterr().out


@pytest.mark.parametrize(
    ("state", "cancel_on_kill"), [("failed", True), ("success", True), (None, True), ("failed", False)]
)
@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="cancelled = await client.run(orchestration.cancel(self._job, client.retry))",
    becomes="cancelled = True",
    case="failed-True",
)
def test_o3_a_kill_by_a_person_cancels_the_job_if_configured(
    weblake_connection: WeblakeService, site: GatedSite, cancel_on_kill: bool, state: str | None
) -> None:
    async def story(runner: Runner) -> None:
        runner.state = state
        job_id = await start(weblake_connection, *site.held(1))
        task = runner.start(trigger(job_id, cancel_on_kill=cancel_on_kill))
        await until(lambda: count_requests(weblake_connection, "GET", job_id))
        task.cancel(USER_CANCEL)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert count_requests(weblake_connection, "DELETE", job_id) == cancel_on_kill
        assert await status_of(weblake_connection, job_id) == ("cancelled" if cancel_on_kill else "scraping")
        assert runner.fired == []

    run(story)


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="await asyncio.shield(killing)",
    becomes="await killing",
)
def test_o3_a_kill_that_airflow_repeats_every_second_completes(
    weblake_connection: WeblakeService, site: GatedSite
) -> None:
    """The first try of the cancel fails; before the second, the next kill breaks off whatever `on_kill` awaits."""

    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.held(1))
        task = runner.start(trigger(job_id, cancel_on_kill=True))
        await until(lambda: count_requests(weblake_connection, "GET", job_id))
        weblake_connection.faults({"match": CANCEL, "times": 1, "effect": {"status": 503, "retry_after": 1}})
        task.cancel(USER_CANCEL)
        await until(lambda: count_requests(weblake_connection, "DELETE", job_id))
        while not task.done():
            task.cancel(USER_CANCEL)
            await asyncio.sleep(0.01)
        assert task.cancelled()
        await until(lambda: count_requests(weblake_connection, "DELETE", job_id) == 2)
        await until(lambda: not triggers._KILLING)
        assert await status_of(weblake_connection, job_id) == "cancelled"

    run(story)


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="async with asyncio.timeout(CANCEL_S), shared",
    becomes="async with asyncio.timeout(None), shared",
)
def test_o3_a_kill_ends_in_time_if_the_service_hangs(
    weblake_connection: WeblakeService,
    site: GatedSite,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert conf.getint("triggerer", "on_kill_timeout", fallback=30) > triggers.CANCEL_S
    monkeypatch.setattr(triggers, "CANCEL_S", 0.5)

    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.held(1))
        task = runner.start(trigger(job_id, cancel_on_kill=True))
        await until(lambda: count_requests(weblake_connection, "GET", job_id))
        weblake_connection.faults({"match": CANCEL, "times": None, "effect": {"stall": True}})
        began = time.monotonic()
        task.cancel(USER_CANCEL)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 50

    run(story)
    assert "could not be: no answer within 0.5 s" in capfd.readouterr().out


def test_a_trigger_never_blocks_the_event_loop(weblake_connection: WeblakeService, site: GatedSite) -> None:
    """Every reply takes two seconds, that to the cancel too: whoever waited in the loop would stop it so long."""

    async def story(runner: Runner) -> None:
        asyncio.get_running_loop().set_debug(True)
        job_id = await start(weblake_connection, *site.held(1))
        weblake_connection.faults({"match": {}, "times": None, "effect": {"latency_ms": 2000}})
        # The loop is compared with a thread, because a busy machine stops both of them.
        beats, gaps, over = 0, list[int](), threading.Event()

        def beat() -> None:
            nonlocal beats
            while not over.wait(0.01):
                beats += 1

        async def tick() -> None:
            while True:
                before = beats
                await asyncio.sleep(0.01)
                gaps.append(beats - before)

        ticking, beating = asyncio.create_task(tick()), threading.Thread(target=beat)
        beating.start()
        task = runner.start(trigger(job_id, cancel_on_kill=True))
        while await asyncio.to_thread(count_requests, weblake_connection, "GET", job_id) < 2:
            pass
        task.cancel(USER_CANCEL)
        await asyncio.wait({task}, timeout=60)
        ticking.cancel()
        over.set()
        beating.join()
        assert task.cancelled()
        assert max(gaps) < 150, "something was waited for in the loop itself"

    run(story)
