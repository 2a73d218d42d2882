"""Tests of the replacements for features that releases before Airflow 3.3 do not have.

They run on every release: on 3.3 with these features switched off. What the older releases do with it is tested in
their own environments, by .ci/airflow_releases.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from async_jobs import Waiting, count_requests, land, run_in_loop, start, status_of, trigger, until
from catalogue import proves
from gated_site import GatedSite

from airflow_provider_weblake import features, retry_policy
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator, WeblakeScrapeOperator
from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor
from airflow_provider_weblake.triggers import watching
from airflow_provider_weblake.triggers import weblake as triggers
from airflow_provider_weblake.triggers.events import WeblakeJobsCompletedTrigger
from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger
from weblake import errors
from weblake.testing import WeblakeService

UNKNOWN_JOB = "00000000-0000-4000-8000-000000000000"


class TaskInstance:
    """The running task, as far as a policy looks at it."""

    try_number, max_tries = 1, 3


def execute(operator: Any, *errors_in_turn: Exception, **kwargs: object) -> object:
    """Applies an operator's policy to a method that raises these errors, one at each call, and then returns "done"."""
    waiting = list(errors_in_turn)

    @retry_policy.policy_applied
    def method(operator: object, context: object, **kwargs: object) -> str:
        if waiting:
            raise waiting.pop(0)
        return "done"

    context: Any = {"ti": TaskInstance()}
    return method(operator, context, **kwargs)


BUSY = errors.RateLimited("busy", status=429, retry_after=100)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the worker, which take no time here."""
    found: list[float] = []
    monkeypatch.setattr(retry_policy, "RETRY_POLICIES", False)
    monkeypatch.setattr(retry_policy.time, "sleep", found.append)
    return found


def batch(**kwargs: Any) -> WeblakeBatchScrapeOperator:
    return WeblakeBatchScrapeOperator(task_id="land", urls=["http://localhost/"], to="/data/lake", **kwargs)


REFUSED = [
    errors.CreditsExhausted("no credits", status=402),
    errors.AuthenticationFailed("no key", status=401),
    errors.PermissionDenied("forbidden", status=403),
    errors.RequestRejected("bad request", status=400),
    errors.OutcomeUnknown("lost"),
]


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: f"{type(error).__name__}{error.status or ''}")
def test_without_policies_of_airflow_a_refusal_fails_the_task_for_good(
    waited: list[float], error: errors.WeblakeError
) -> None:
    with pytest.raises(features.AirflowFailException) as caught:
        execute(batch(retries=3), error)
    assert str(caught.value) == str(error)
    assert caught.value.__cause__ is error
    assert waited == []


@proves(
    "O7",
    at="airflow_provider/src/airflow_provider_weblake/retry_policy.py",
    line="time.sleep(seconds)",
    becomes="pass",
)
def test_o7_without_policies_of_airflow_a_busy_service_is_waited_for_in_the_worker(waited: list[float]) -> None:
    scrape = WeblakeScrapeOperator(task_id="scrape", url="http://localhost/", to="/data/lake", retries=0)
    for operator in (scrape, batch(deferrable=False, retries=0)):
        assert execute(operator, BUSY, BUSY) == "done"
    assert [101 <= each <= 126 for each in waited] == [True] * 4


def test_without_policies_of_airflow_a_deferrable_task_waits_in_the_triggerer(waited: list[float]) -> None:
    operator, before = batch(deferrable=True, retries=0), time.time()
    with pytest.raises(features.TaskDeferred) as caught:
        execute(operator, BUSY)
    assert waited == []
    moment = caught.value.trigger.serialize()[1]["moment"]
    assert 101 <= moment.timestamp() - before <= 127
    assert caught.value.method_name == "execute_after_pause"
    since = (caught.value.kwargs or {})["paused_since"]
    assert before <= since <= time.time()


def test_after_a_day_of_pauses_the_try_has_failed(waited: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    for deferrable in (True, False):
        with pytest.raises(errors.RateLimited):
            execute(batch(deferrable=deferrable), BUSY, paused_since=time.time() - 24 * 3600)
    assert waited == []
    now = [1e9]
    monkeypatch.setattr(retry_policy.time, "time", lambda: now[0])
    monkeypatch.setattr(retry_policy.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(errors.RateLimited):
        execute(batch(), *[BUSY] * 1000)
    assert 23.9 * 3600 < now[0] - 1e9 <= 24 * 3600


@pytest.fixture
def cancelled_only(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A release whose triggers are only cancelled; and the state that Airflow has for the task."""
    state: dict[str, object] = {"state": None}

    async def astate_of(ti: object) -> object:
        return state["state"]

    monkeypatch.setattr(triggers, "TRIGGERS_HEAR_KILLS", False)
    monkeypatch.setattr(triggers, "astate_of", astate_of)
    return state


async def _cancelled(service: WeblakeService, mine: WeblakeJobTrigger, why: str | None) -> None:
    """Runs a trigger until it has asked about its job, and cancels it."""
    mine.task_instance = Waiting()  # type: ignore[assignment]

    async def go() -> None:
        async for _ in mine.run():
            pass

    task = asyncio.create_task(go())
    await until(lambda: count_requests(service, "GET", mine.job_id) > 0)
    task.cancel(why) if why else task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="if not TRIGGERS_HEAR_KILLS and self._may_be_killed(cancelled):",
    becomes="if False:",
    case="failed",
)
@pytest.mark.parametrize("state", ["failed", "success", "scheduled", None])
def test_o3_a_trigger_that_is_only_cancelled_cancels_the_job_of_a_task_that_was_marked_or_cleared(
    weblake_connection: WeblakeService, site: GatedSite, cancelled_only: dict[str, object], state: str | None
) -> None:
    async def story() -> None:
        job_id = await start(weblake_connection, *site.held(1))
        cancelled_only["state"] = state
        await _cancelled(weblake_connection, trigger(job_id, cancel_on_kill=True), None)
        assert await status_of(weblake_connection, job_id) == "cancelled"

    run_in_loop(story)


@pytest.mark.parametrize(
    ("state", "why", "options"),
    [
        ("deferred", None, {}),  # another triggerer has it
        ("running", None, {}),  # cleared, and the job taken up again
        ("failed", "EOF - shutting down", {}),
        ("failed", None, {"timed_out": True}),
        ("failed", None, {"cancel_on_kill": False}),
    ],
    ids=["elsewhere", "again", "shutdown", "timeout", "kept"],
)
def test_o4_a_trigger_that_is_only_cancelled_leaves_the_job_otherwise(
    weblake_connection: WeblakeService,
    site: GatedSite,
    cancelled_only: dict[str, object],
    state: str,
    why: str | None,
    options: dict[str, Any],
) -> None:
    async def story() -> None:
        job_id = await start(weblake_connection, *site.held(1))
        cancelled_only["state"] = state
        mine = trigger(job_id, cancel_on_kill=options.get("cancel_on_kill", True))
        if options.get("timed_out"):
            mine.timeout_after = datetime.now(timezone.utc) - timedelta(seconds=1)  # type: ignore[attr-defined]
        await _cancelled(weblake_connection, mine, why)
        assert count_requests(weblake_connection, "DELETE") == 0

    run_in_loop(story)


def test_a_watcher_without_shared_streams_polls_by_itself(
    weblake_connection: WeblakeService, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MIN_INTERVAL_S", 0.05)

    async def story() -> None:
        await land(weblake_connection, *site.pages(1))
        events: list[Any] = []

        async def watch() -> None:
            async for event in WeblakeJobsCompletedTrigger(poll_interval=0.05).run():
                events.append(event.payload)

        task = asyncio.create_task(watch())
        # The second poll begins when the first one has seen which jobs had ended.
        await until(lambda: count_requests(weblake_connection, "GET", "/v2/team/activity") > 1)
        new = await start(weblake_connection, *site.pages(1))
        await until(lambda: events)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [event["job_id"] for event in events] == [new], "a job that had ended before is not told"

    run_in_loop(story)


def test_partition_keys_of_events_are_refused_on_older_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_weblake.operators import landing

    monkeypatch.setattr(landing, "has_asset_partitions", lambda: False)
    with pytest.raises(errors.InvalidOption, match=r"needs Airflow 3\.3"):
        batch(asset_partitions=True)
    assert batch(asset_partitions=False).asset_partitions is False


def test_on_older_releases_a_sensor_starts_and_ends_in_a_worker(
    monkeypatch: pytest.MonkeyPatch, weblake_connection: WeblakeService
) -> None:
    from airflow_provider_weblake.sensors import weblake as sensors

    monkeypatch.setattr(sensors, "TASKS_IN_TRIGGERER", False)
    sensor = WeblakeBatchScrapeSensor(task_id="watch", job_id=UNKNOWN_JOB, deferrable=True)
    assert not sensor.start_from_trigger
    with pytest.raises(features.TaskDeferred) as caught:
        sensor.execute({"ti": SimpleNamespace(xcom_push=lambda key, value: None)})  # type: ignore[typeddict-item]
    assert caught.value.trigger.serialize()[1]["ends_task"] is False


@pytest.mark.parametrize(
    ("path", "conn_id"),
    [("s3://lake_conn@bucket/web", "lake_conn"), ("s3://bucket/web", None), ("file:///data/lake", None)],
)
def test_the_connection_of_a_path_is_found_on_this_release(path: str, conn_id: str | None) -> None:
    from airflow.sdk import ObjectStoragePath

    assert features.conn_id_of(ObjectStoragePath(path)) == conn_id
