"""Tests of the job trigger on a real event loop, against the embedded service, run by Airflow's own TriggerRunner."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from airflow.triggers.base import TaskSuccessEvent, TriggerEvent
from async_jobs import connect, count_requests, start, status_of, trigger, until
from catalogue import proves
from gated_site import GatedSite
from job_trigger_runner import STATUS, UNKNOWN_JOB, Runner, fire, run

from airflow_provider_weblake.triggers import weblake as triggers
from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger
from weblake.api import steps
from weblake.testing import WeblakeService


@pytest.mark.smoke
def test_a_trigger_fires_when_the_job_has_completed(weblake_connection: WeblakeService, site: GatedSite) -> None:
    """One that ends its task gives it the same value."""

    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.pages(2), *site.held(1))
        tasks = [runner.start(trigger(job_id, ends_task=ends)) for ends in (False, True)]
        await until(lambda: count_requests(weblake_connection, "GET", job_id) >= 6)
        assert not any(task.done() for task in tasks)
        site.release()
        await asyncio.gather(*tasks)
        (event,) = (event for event in runner.fired if type(event) is TriggerEvent)
        (end,) = (event for event in runner.fired if isinstance(event, TaskSuccessEvent))
        assert end.xcoms == {"return_value": event.payload}
        assert event.payload == {
            "status": "completed",
            "kind": "batch_scrape",
            "job_id": job_id,
            "completed": 3,
            "total": 3,
            "credits_used": 3,
        }
        assert len(json.dumps(event.payload)) < 1024

    run(story)


@proves(
    "5.4",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line='return await self._stop("deadline")',
    becomes='return "deadline"',
)
@pytest.mark.parametrize("owns_job", [True, False])
def test_the_deadline_cancels_a_job_of_the_task(
    weblake_connection: WeblakeService, site: GatedSite, monkeypatch: pytest.MonkeyPatch, owns_job: bool
) -> None:
    ahead = 0.0  # seconds by which the clock of the polls was advanced
    monkeypatch.setitem(steps.arun.__kwdefaults__, "clock", lambda: time.monotonic() + ahead)

    async def polled_twice(job_id: str, task: asyncio.Task[None]) -> None:
        polls = count_requests(weblake_connection, "GET", job_id)
        await until(lambda: count_requests(weblake_connection, "GET", job_id) >= polls + 2)
        assert not task.done()

    async def story(runner: Runner) -> None:
        nonlocal ahead
        job_id = await start(weblake_connection, *site.held(1))
        task = runner.start(trigger(job_id, deadline=time.time() + 600.0, owns_job=owns_job))
        await polled_twice(job_id, task)
        ahead = 400.0
        await polled_twice(job_id, task)
        ahead = 600.0
        await asyncio.wait_for(task, 60)
        event = runner.fired[0].payload
        assert (event["status"], event["total"]) == ("deadline", 1)
        assert count_requests(weblake_connection, "DELETE", job_id) == owns_job
        assert await status_of(weblake_connection, job_id) == ("cancelled" if owns_job else "scraping")

    run(story)


@pytest.mark.system
@pytest.mark.parametrize("owns_job", [True, False])
def test_max_credits_cancels_a_job_of_the_task(
    weblake_connection: WeblakeService, site: GatedSite, owns_job: bool
) -> None:
    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.pages(3), *site.held(1))
        task = runner.start(trigger(job_id, max_credits=2, owns_job=owns_job))
        if owns_job:
            await task
            (event,) = runner.fired
            assert (event.payload["status"], event.payload["credits_used"]) == ("over_budget", 3)
            assert await status_of(weblake_connection, job_id) == "cancelled"
        else:
            await until(lambda: count_requests(weblake_connection, "GET", job_id) >= 5)
            assert not task.done()
            site.release()
            await task
            assert runner.fired[0].payload["status"] == "completed"
        assert count_requests(weblake_connection, "DELETE") == owns_job

    run(story)


def test_a_job_that_is_not_found_for_some_time_is_gone(
    weblake_connection: WeblakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0  # seconds by which the clock of the polls was advanced
    monkeypatch.setattr(triggers, "UNSEEN_S", 3600.0)
    monkeypatch.setitem(steps.arun.__kwdefaults__, "clock", lambda: time.monotonic() + ahead)

    async def story(runner: Runner) -> None:
        nonlocal ahead
        task = runner.start(trigger(UNKNOWN_JOB))
        await until(lambda: count_requests(weblake_connection, "GET", UNKNOWN_JOB) > 1)
        assert not task.done()
        ahead = 3600.0
        await asyncio.wait_for(task, 60)
        event = runner.fired[0].payload
        assert (event["status"], event["completed"]) == ("gone", None)

    run(story)


def test_a_key_that_stays_refused_is_reported_by_a_worker(weblake_connection: WeblakeService, site: GatedSite) -> None:
    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.held(1))
        weblake_connection.faults({"match": STATUS, "times": None, "effect": {"status": 401}})
        assert (await fire(runner, job_id, owns_job=True))["status"] == "unknown"
        assert count_requests(weblake_connection, "GET", job_id) == 2
        assert count_requests(weblake_connection, "DELETE") == 0

    run(story)


def test_a_key_that_was_changed_is_read_anew(
    weblake_connection: WeblakeService, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, weblake_connection.url, "test-key-of-yesterday")

    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.pages(1))
        task = runner.start(trigger(job_id, poll_interval=0.4))
        await until(lambda: count_requests(weblake_connection, "GET", job_id))
        connect(monkeypatch, weblake_connection.url, weblake_connection.key)
        await task
        assert runner.fired[0].payload["status"] == "completed"

    run(story)


def test_a_connection_that_the_secrets_backend_denies_is_reported_by_a_worker(
    weblake_connection: WeblakeService, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The backend has errors of its own; one that ended the trigger would fail the task, and its job would go on."""
    from airflow_provider_weblake.hooks.weblake import WeblakeHook

    async def denied(hook: WeblakeHook) -> None:
        raise PermissionError("denied to test-secret")

    monkeypatch.setattr(WeblakeHook, "aendpoint", denied)

    async def story(runner: Runner) -> None:
        assert (await fire(runner, UNKNOWN_JOB))["status"] == "unknown"

    run(story)
    told = capfd.readouterr().out
    assert "cannot be asked about: PermissionError" in told
    assert "test-secret" not in told


def test_the_serialised_trigger_is_json_without_secrets(weblake_connection: WeblakeService) -> None:
    mine = trigger(UNKNOWN_JOB, deadline=1.8e9, max_credits=7, owns_job=True, cancel_on_kill=True, ends_task=True)
    classpath, kwargs = mine.serialize()
    assert classpath == f"{WeblakeJobTrigger.__module__}.{WeblakeJobTrigger.__qualname__}"
    text = json.dumps(kwargs)
    assert WeblakeJobTrigger(**json.loads(text)).serialize() == mine.serialize()
    assert json.loads(text) == kwargs, "nothing needs Airflow's own encoding"
    for shown in (text, repr(mine), str(vars(mine))):
        assert weblake_connection.key not in shown
        assert weblake_connection.url not in shown


def test_the_event_carries_no_text_of_the_service(weblake_connection: WeblakeService) -> None:
    body = (
        '{"success": true, "status": "completed", "completed": 1e999, "total": "all of them", "creditsUsed": true,'
        ' "error": "a word of the service", "warning": "a word of the service", "data": []}'
    )

    async def story(runner: Runner) -> None:
        weblake_connection.faults({"match": STATUS, "times": None, "effect": {"status": 200, "body": body}})
        event = await fire(runner, UNKNOWN_JOB)
        counts = {"completed": None, "total": None, "credits_used": None}
        assert event == {"status": "completed", "kind": "batch_scrape", "job_id": UNKNOWN_JOB, **counts}

    run(story)
