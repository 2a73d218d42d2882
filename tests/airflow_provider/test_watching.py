"""Tests of errors in watchers: temporary ones are retried, others are raised; and of valid arguments."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from airflow.models.trigger import Trigger
from airflow.serialization.decoders import smart_decode_trigger_kwargs
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger
from async_jobs import run_in_loop, start, until
from event_triggerer import Supervisor, batches, count_calls, one_watcher, supervisor, triggerer
from gated_site import GatedSite

from airflow_provider_weblake.triggers import watching
from airflow_provider_weblake.triggers.events import WeblakeJobsCompletedTrigger, WeblakeUsagePeriodTrigger
from weblake.errors import AuthenticationFailed, InvalidOption
from weblake.jobs import ended_jobs
from weblake.testing import WeblakeService

__all__ = ["supervisor"]


def test_temporary_failures_are_waited_out(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with one_watcher(supervisor, batches(), "scraped") as running:
            weblake_service.faults(
                {"match": {"path": "/v2/team/activity"}, "times": 3, "effect": {"status": 400}},
                {"match": {"method": "GET", "path": "/v2/batch/scrape/"}, "times": 1, "effect": {"drop_before": True}},
            )
            job_id = await start(weblake_service, f"{site.url}/page/1")
            await until(lambda: running.fired, watched=running)
        assert [event["job_id"] for _, event in running.fired] == [job_id]

    run_in_loop(story)
    assert caplog.text.count("in a row") == 3
    assert weblake_service.key not in caplog.text


def test_permanent_failures_raise_after_ten_polls(
    weblake_service: WeblakeService, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        weblake_service.faults(
            {"match": {"path": "/v2/team/activity"}, "times": None, "effect": {"status": 401}},
        )
        async with triggerer() as running:
            first, second = running.watch(batches(), "one"), running.watch(batches(), "two")
            await until(lambda: len(running.failed) == 2)
        assert isinstance(running.failed[first], AuthenticationFailed)
        assert running.failed[second] is running.failed[first]

    run_in_loop(story)
    assert caplog.text.count("in a row") == watching.MAX_FAILURES - 1
    assert count_calls(weblake_service, "/v2/team/activity") == watching.MAX_FAILURES
    assert supervisor.writes == 0


def test_a_job_that_is_never_found_is_abandoned(
    weblake_service: WeblakeService, supervisor: Supervisor, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_jobs, "GONE_S", 0.0)

    async def story() -> None:
        lost = await start(weblake_service, site.held(1)[0])
        weblake_service.faults(
            {"match": {"method": "GET", "path": f"/v2/batch/scrape/{lost}"}, "times": None, "effect": {"status": 404}}
        )
        ask = ended_jobs.EndedJobs("batch_scrape")
        async with watching.shared_client("weblake_default") as client:
            rounds = [await ask(client) for _ in range(ended_jobs.GONE_POLLS + 1)]
        assert [dict(each.ended) for each in rounds[: ended_jobs.GONE_POLLS - 1]] == [{}, {}]
        assert rounds[-1].ended == {lost: {"status": "gone"}}
        memory, fired = batches(statuses=("completed", "failed")).follow({}, rounds[-1])
        assert fired == []
        assert memory is not None
        assert lost in str(memory["over"])

    run_in_loop(story)


@pytest.mark.parametrize(
    "trigger",
    [
        WeblakeUsagePeriodTrigger("other", "tokens", 60.0, True),
        WeblakeUsagePeriodTrigger(),
        WeblakeJobsCompletedTrigger("other", "crawl", 5.0, "https://example.com/*", ("failed", "completed")),
        WeblakeJobsCompletedTrigger(),
    ],
)
def test_trigger_arguments_survive_serialisation_with_the_same_hash(trigger: BaseEventTrigger) -> None:
    classpath, kwargs = trigger.serialize()
    assert json.loads(json.dumps(kwargs)) == kwargs
    encoded = encode_trigger(trigger)
    stored = Trigger(classpath=encoded["classpath"], kwargs=encoded["kwargs"])
    decoded = {name: smart_decode_trigger_kwargs(value) for name, value in stored.kwargs.items()}
    again = type(trigger)(**decoded)
    assert again.serialize() == (classpath, kwargs)
    assert BaseEventTrigger.hash(classpath, kwargs) == BaseEventTrigger.hash(stored.classpath, stored.kwargs)
    assert again.shared_stream_key() == trigger.shared_stream_key()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: WeblakeUsagePeriodTrigger(report="euros"), "report"),
        (lambda: WeblakeUsagePeriodTrigger(poll_interval=0), "poll_interval"),
        (lambda: WeblakeJobsCompletedTrigger(kind="scrape"), "kind"),
        (lambda: WeblakeJobsCompletedTrigger(statuses=["done"]), "statuses"),
        (lambda: WeblakeJobsCompletedTrigger(poll_interval=float("nan")), "poll_interval"),
    ],
)
def test_invalid_watcher_arguments_are_refused_when_the_dag_is_parsed(make: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        make()
