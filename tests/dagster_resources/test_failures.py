"""Tests of which failures of a step are retried, after how long, and that no retry pays twice."""

from __future__ import annotations

import re
import threading
from unittest.mock import Mock

import dagster as dg
import pytest
from catalogue import proves
from gated_site import GatedSite
from hostile_runs import NOW, START
from in_process import Bench

from dagster_weblake import (
    BatchScrapeRequest,
    ScrapeRequest,
    WeblakeResource,
    build_weblake_assets,
    build_weblake_specs,
    identity,
    step,
    weblake_assets,
)
from weblake.jobs import retry
from weblake.orchestration import Task
from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

FIRST_RUN = "00000000-0000-4000-8000-000000000000"


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
    [(400, "RequestRejected"), (402, "CreditsExhausted")],
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
    at="src/weblake/jobs/retry.py",
    line="spread = 1 + SPREAD * random.random()",
    becomes="spread = 1.0",
)
def test_o7_a_long_retry_after_is_obeyed_up_to_a_limit(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAX_RETRY_AFTER_S", 0.5)
    bench.service.faults({"match": START, "times": 1, "effect": {"status": 429, "retry_after": 90}})
    run = bench.run(build_weblake_assets("page", BatchScrapeRequest(urls=site.pages(1)), retry_policy=NOW))
    (pause,) = run.retries()
    assert run.success
    assert 1.5 < pause <= 1.5 + 0.5 * retry.SPREAD
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


def all_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each run a re-execution of all steps of one first run."""
    monkeypatch.setattr(
        identity.Lineage, "_by_run", lambda self, names, partition: Task(names, FIRST_RUN, self.run.run_id, partition)
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
