"""Tests of a step's failures: whether and when it is retried, and what it reports."""

from __future__ import annotations

import re
import threading
from typing import Any
from unittest.mock import DEFAULT, Mock

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import IN_ONE, LETTERS, Killed, batches, survived
from in_process import Bench

import dagster_weblake.reports  # noqa: F401 - loaded before a test patches what it imports
from dagster_weblake import (
    BatchScrapeRequest,
    WeblakeResource,
    build_weblake_assets,
    build_weblake_specs,
    identity,
    step,
    stopping,
)
from weblake import orchestration
from weblake.jobs import named_pauses
from weblake.orchestration import Task
from weblake.testing import WeblakeService

DEADLINE_S = 30.0
FIRST_RUN = "00000000-0000-4000-8000-000000000000"
NOW = dg.RetryPolicy(max_retries=2, delay=0)
START = {"method": "POST", "path": "/v2/batch/scrape$"}


def cancel_when_started(service: WeblakeService, times: int) -> threading.Thread:
    """Cancels the first jobs as soon as they run, as somebody with a dashboard would."""

    def work() -> None:
        cancelled: set[str] = set()
        with service.client() as client:
            while len(cancelled) < times:
                for entry in client.list_activity(endpoint="batch_scrape").data:
                    if entry.id and entry.id not in cancelled:
                        client.cancel_batch_scrape(entry.id)
                        cancelled.add(entry.id)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_cancelled_job_is_paid_again_by_the_next_try(bench: Bench, site: GatedSite) -> None:
    urls = site.held(2)
    thread = cancel_when_started(bench.service, 1)
    threading.Thread(target=lambda: (thread.join(60), site.release()), daemon=True).start()
    run = bench.run(build_weblake_assets("held", BatchScrapeRequest(urls=urls), retry_policy=NOW))
    assert run.success
    assert len(run.retries()) == 1
    assert (bench.started, bench.rows()) == (2, 2)


def test_a_landing_step_does_not_retry_a_failed_job(bench: Bench, site: GatedSite) -> None:
    pages = build_weblake_assets("held", BatchScrapeRequest(urls=site.held(1)), wait="sensor", retry_policy=NOW)
    job_id = bench.run(pages, "held_job").metadata("held_job")["weblake/job_id"]
    with bench.service.client() as client:
        client.cancel_batch_scrape(str(job_id))
    site.release()
    run = bench.run(pages, "held")
    assert (run.success, run.retries(), run.failure().metadata["weblake/error"].value) == (False, [], "JobEnded")


@pytest.mark.parametrize(
    ("status", "name"),
    [(400, "RequestRejected"), (401, "AuthenticationFailed"), (402, "CreditsExhausted"), (403, "PermissionDenied")],
)
def test_permanent_errors_are_not_retried(bench: Bench, site: GatedSite, status: int, name: str) -> None:
    bench.service.faults({"match": START, "times": None, "effect": {"status": status}})
    run = bench.run(build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(1)), retry_policy=NOW))
    failure = run.failure()
    assert (run.success, run.retries(), failure.metadata["weblake/error"].value) == (False, [], name)
    assert failure.metadata["weblake/http_status"].value == status
    assert len([each for each in bench.service.requests() if each["method"] == "POST"]) == 1


@proves(
    "O7",
    at="src/weblake/jobs/named_pauses.py",
    line="spread = 1 + SPREAD * random.random()",
    becomes="spread = 1.0",
)
def test_o7_a_long_retry_after_is_obeyed_up_to_a_limit(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_pauses, "MAX_RETRY_AFTER_S", 0.5)
    bench.service.faults({"match": START, "times": 1, "effect": {"status": 429, "retry_after": 90}})
    run = bench.run(build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(1)), retry_policy=NOW))
    (pause,) = run.retries()
    assert run.success
    assert 1.5 < pause <= 1.5 + 0.5 * named_pauses.SPREAD
    assert bench.started == 1


def test_without_a_policy_nothing_is_retried_and_the_next_run_completes(bench: Bench, site: GatedSite) -> None:
    bench.service.faults({"match": {"path": "/v2/"}, "times": 1, "effect": {"status": 429, "retry_after": 90}})
    pages = build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(1)), retry_policy=None)
    run = bench.run(pages)
    assert (run.success, run.retries(), bench.started) == (False, [], 0)
    failure = run.failure()
    assert failure.metadata["weblake/error"].value == "RateLimited"
    seconds = failure.metadata["weblake/retry_after_s"].value
    assert isinstance(seconds, float)
    assert 80 <= seconds <= 90
    for words in (r"in \d\d s \(at \d\d:\d\d:\d\d UTC\)", "re-execute the run from failure", "retry_policy"):
        assert re.search(words, str(failure.description)), words
    assert bench.run(pages).success


def test_a_lost_response_to_a_start_gives_one_job(bench: Bench, site: GatedSite) -> None:
    bench.service.faults({"match": START, "times": 1, "effect": {"drop_after": True}})
    run = bench.run(build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(2)), retry_policy=NOW))
    assert run.success
    assert (bench.started, bench.rows()) == (1, 2)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="self._check_run()  # it may have waited in a queue",
    becomes="pass",
)
def test_o9_a_step_that_begins_after_its_run_was_terminated_starts_no_job(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited in the queue of an executor that does not take it out."""
    pages = build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(2)), retry_policy=NOW)
    terminated = dg.DagsterRun(job_name="job", status=dg.DagsterRunStatus.CANCELED)
    with monkeypatch.context() as patched:
        patched.setattr(stopping.InterruptHandler, "_run", lambda self: terminated)
        assert not survived(lambda: bench.run(pages))
    assert (bench.started, bench.files()) == (0, [])


def test_a_terminated_run_cancels_its_jobs_at_the_same_time(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cancel that gets no response does not use up the time in which the others are sent."""
    all_there = threading.Barrier(3)
    real, found = orchestration.cancel, stopping.InterruptHandler._run

    def cancel(*args: Any) -> Any:
        all_there.wait(DEADLINE_S)
        return (yield from real(*args))

    def terminated(handler: stopping.InterruptHandler) -> Any:
        run = found(handler)
        return run.with_status(dg.DagsterRunStatus.CANCELING) if run is not None and handler.open else run

    monkeypatch.setattr(orchestration, "cancel", cancel)
    monkeypatch.setattr(orchestration, "wait_for_any", Mock(side_effect=dg.DagsterExecutionInterruptedError))
    monkeypatch.setattr(stopping.InterruptHandler, "_run", terminated)
    held = BatchScrapeRequest(urls=site.held(1))
    parts = build_weblake_assets("parts", held, partitions_def=LETTERS, backfill_policy=IN_ONE, retry_policy=None)
    assert not survived(lambda: bench.run(parts, partitions=("a", "c")))
    site.release()
    with bench.service.client() as client:
        ids = [str(entry.id) for entry in client.list_activity(endpoint="batch_scrape").data]
        assert [client.get_batch_scrape(each).status for each in ids] == ["cancelled"] * 3
    (run,) = bench.instance.get_runs()
    logged = [each.message for each in bench.instance.all_logs(run.run_id)]
    assert sum(message.endswith("was cancelled: its run was terminated.") for message in logged) == 3


def test_a_run_that_is_terminated_before_its_started_job_is_reported_cancels_it(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sensor would know of it."""
    found = stopping.InterruptHandler._run

    def terminated(handler: stopping.InterruptHandler) -> dg.DagsterRun | None:
        run = found(handler)
        return run.with_status(dg.DagsterRunStatus.CANCELING) if run is not None and bench.started else run

    monkeypatch.setattr(stopping.InterruptHandler, "_run", terminated)
    monkeypatch.setattr(step.Step, "log_job", Mock(side_effect=dg.DagsterExecutionInterruptedError))
    held = BatchScrapeRequest(urls=site.held(1))
    pages = build_weblake_assets("pages", held, wait="sensor", retry_policy=None)
    assert not survived(lambda: bench.run(pages, "pages_job"))
    site.release()
    with bench.service.client() as client:
        (entry,) = client.list_activity(endpoint="batch_scrape").data
        assert client.get_batch_scrape(str(entry.id)).status == "cancelled"
    assert bench.partitions("pages_job") == []


def all_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each run a re-execution of all steps of one first run."""
    monkeypatch.setattr(
        identity.Lineage, "_by_run", lambda self, names, partition: Task(names, FIRST_RUN, self.run.run_id, partition)
    )


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/step.py",
    line="task = replace(task, records_return=key is None)",
    becomes="pass",
)
@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/step.py",
    line="orchestration.record_returned(self.dataset, load_request)",
    becomes="pass",
)
def test_o9_a_step_that_failed_after_its_load_had_landed_does_not_pay_again(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor if a person executes all steps again; after a step that has succeeded, that pays."""
    all_steps_again(monkeypatch)
    pages = build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(2)), retry_policy=None)
    with monkeypatch.context() as patched:
        patched.setattr(step.Step, "record_landing", Mock(side_effect=OSError("The event cannot be made.")))
        assert not bench.run(pages).success
    assert (bench.started, bench.rows()) == (1, 2)
    assert bench.run(pages).success
    assert bench.started == 1
    assert bench.run(pages).success
    assert (bench.started, bench.rows()) == (2, 2)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/step.py",
    line="yield result_of(self.context, self.key, outcome.found)",
    becomes="yield (self._record_returned(outcome.found), result_of(self.context, self.key, outcome.found))[1]",
)
def test_o9_a_body_that_fails_after_the_load_has_landed_does_not_pay_again(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that logs what has landed before it yields the result. After a success, all steps pay again."""
    all_steps_again(monkeypatch)
    request = BatchScrapeRequest(urls=site.pages(2))
    faulty = True

    @dg.multi_asset(specs=build_weblake_specs("page", request))
    def page(context, weblake: WeblakeResource):  # type: ignore[no-untyped-def]
        for result in weblake.run(context, request):
            if faulty:
                raise ValueError("The result cannot be logged.")
            yield result

    assert not bench.run([page]).success
    assert (bench.started, bench.rows()) == (1, 2)
    faulty = False
    assert bench.run([page]).success
    assert bench.started == 1
    assert bench.run([page]).success
    assert (bench.started, bench.rows()) == (2, 2)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/landing.py",
    line="return step.record_landing(part, landing, load_request.load_id)",
    becomes="return (step.record_landing(part, landing, load_request.load_id), "
    "orchestration.record_returned(step.dataset, load_request))[0]",
)
@pytest.mark.parametrize("killed", ["while the other job runs", "before the event"])
def test_o9_a_run_over_partitions_that_is_killed_before_its_events_does_not_pay_again(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Nor if a person executes all steps again; a load has been returned when Dagster has its event."""
    all_steps_again(monkeypatch)
    request = BatchScrapeRequest(urls=site.pages(2), poll_interval=0.2)
    parts = build_weblake_assets(
        "parts",
        request,
        partitions_def=dg.StaticPartitionsDefinition(["a", "b"]),
        backfill_policy=dg.BackfillPolicy.single_run(),
        retry_policy=None,
    )
    with monkeypatch.context() as patched:
        if killed == "before the event":
            patched.setattr(step, "result_of", Mock(side_effect=Killed))
        else:
            first_lands = Mock(wraps=orchestration.land, side_effect=[DEFAULT, Killed])
            patched.setattr(orchestration, "land", first_lands)
        assert not survived(lambda: bench.run(parts, partitions=("a", "b")))
    assert (bench.started, bench.partitions("parts")) == (2, [])
    assert bench.run(parts, partitions=("a", "b")).success
    assert (bench.started, bench.rows(), sorted(map(str, bench.partitions("parts")))) == (2, 4, ["a", "b"])
    assert bench.run(parts, partitions=("a", "b")).success
    assert (bench.started, bench.rows()) == (4, 4)


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/step.py",
    line="self._record_returned(succeeded)",
    becomes="self._record_returned(found)",
)
def test_o9_a_run_that_is_stopped_while_it_starts_jobs_has_returned_none_of_their_loads(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load lands in a re-execution of all steps that is killed before its event, and the next one returns it."""
    all_steps_again(monkeypatch)
    parts = batches(site, backfill_policy=IN_ONE)
    with monkeypatch.context() as patched:
        start = Mock(wraps=orchestration.start_load, side_effect=[DEFAULT, dg.DagsterExecutionInterruptedError])
        patched.setattr(orchestration, "start_load", start)
        assert not survived(lambda: bench.run(parts, partitions=("a", "b")))
    assert (bench.started, bench.partitions("parts")) == (1, [])
    with monkeypatch.context() as patched:
        patched.setattr(step, "result_of", Mock(side_effect=Killed))
        assert not survived(lambda: bench.run(parts, partitions=("a", "b")))
    assert bench.started == 2
    assert bench.run(parts, partitions=("a", "b")).success
    assert (bench.started, bench.rows()) == (2, 4)


def test_remedies_name_assets(bench: Bench, site: GatedSite) -> None:
    request = BatchScrapeRequest(urls=site.pages(3), max_credits=2)
    failure = bench.run(build_weblake_assets("dear", request)).failure()
    assert "Raise max_credits" in str(failure.description)
    assert "--" not in str(failure.description)
    assert bench.started == 0
