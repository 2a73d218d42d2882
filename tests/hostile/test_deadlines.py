"""Every call ends by its deadline whatever a service does for ever, on a virtual clock.

The sum of all waits and requests stays under the deadline of the call, and the number of requests under a bound that
follows from that deadline and the smallest pause.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from catalogue import proves
from endless_service import BEHAVIOURS, EndlessService
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scripted_job import JOB, url_of
from simulated_service import SimulatedClient

from weblake.api import operations
from weblake.dataset.root import open_dataset
from weblake.errors import WeblakeError
from weblake.jobs import polling, result_pages, usage_reports
from weblake.jobs.retry import LAST_PAUSE_S, SINGLE, RetryPolicy
from weblake.loads import load, load_request, starts
from weblake.loads.load_request import LoadRequest, Naming, Terms

QUIET = settings(max_examples=30, print_blob=True, suppress_health_check=list(HealthCheck))

#: Seconds: of one read, of one call's waits.
READ_S, WAIT_S = 120.0, SINGLE.wait_s
#: The smallest pause after a response that demands a wait, and the smallest between two polls.
PAUSE_S, POLL_S = 0.05, 0.75 * polling.FIRST_POLL_S
#: The error of sums of floating point numbers.
ROUNDING_S = 0.001
#: The least seconds that a start has for its response, at the end of its load's time limit.
LATE_S = starts.LEAST_S + ROUNDING_S
#: Tries of a call that always fails.
RETRIES = polling.SEEN_TRIES
#: Tries of one call within a minute, at a service that always names the shortest time.
NAMED = 30

cycles = st.lists(st.sampled_from(BEHAVIOURS), min_size=1, max_size=4)
latencies = st.sampled_from([0.0, 0.02, 3.0])


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the real waits, because the clock is virtual, and reduce the number of chunks, because each takes time."""
    monkeypatch.setattr(result_pages, "MAX_CHUNKS", 60)
    monkeypatch.setattr(result_pages, "MAX_STALE", 20)
    monkeypatch.setattr(usage_reports, "MAX_PAGES", 100)


def most_requests(seconds: float) -> int:
    """Return the most requests that a wait and a read of so many seconds may send, at the smallest pauses."""
    polls = seconds / POLL_S + 1
    # A cycle that refuses each request: the pauses of one call grow. Any other refuses three requests of a call.
    refused = NAMED + seconds / LAST_PAUSE_S
    retries = min(seconds / PAUSE_S, RETRIES + refused + 3 * (polls + result_pages.MAX_CHUNKS))
    return math.ceil(polls + 1 + retries + 2 * result_pages.MAX_CHUNKS)


def landed(service: EndlessService, request_for: Callable[[str], LoadRequest], terms: Terms) -> None:
    with tempfile.TemporaryDirectory() as directory, service.clock.installed():
        root = str(Path(directory, "lake"))
        with contextlib.suppress(WeblakeError):
            load.land(SimulatedClient(service), open_dataset(root), request_for(root), terms)


@proves(
    "5.1", at="src/weblake/jobs/retry.py", line="return replace(request, deadline_s=left)", becomes="return request"
)
@proves(
    "5.1",
    at="src/weblake/jobs/result_pages.py",
    line="yield from sleep(min(pause, left))",
    becomes="yield from sleep(pause)",
)
@proves(
    "5.1",
    at="src/weblake/jobs/polling.py",
    line="cap_s=30.0, until=until, named_pauses=named_pauses)",
    becomes="cap_s=30.0, named_pauses=named_pauses)",
)
@QUIET
@given(cycles, latencies, st.sampled_from([4.0, 60.0, 600.0]))
@example(["timeout"], 0.0, 60.0)
@example(["runs", "ended, and grows"], 0.0, 4.0)
@example(["ended, and grows"], 0.0, 60.0)
def test_a_landing_ends_by_its_deadline(behaviours: list[str], latency_s: float, timeout_s: float) -> None:
    service = EndlessService(behaviours, most_requests(timeout_s), latency_s)
    landed(service, lambda root: load_request.existing_job("batch", JOB), Terms(timeout_s=timeout_s))
    assert service.clock.passed <= timeout_s + ROUNDING_S


@proves(
    "5.1",
    at="src/weblake/loads/starts.py",
    line="RetryPolicy(wait_s=120, until=self.until)",
    becomes="RetryPolicy(wait_s=120)",
)
@QUIET
@given(cycles, latencies, st.booleans(), st.sampled_from(["batch", "crawl"]), st.sampled_from([4.0, 60.0, 600.0]))
@example(["leads on", "reset", "429, 59"], 0.0, False, "batch", 60.0)
@example(["runs", "429, 0"], 0.0, False, "crawl", 60.0)
def test_a_start_ends_with_the_time_limit_of_its_load(
    behaviours: list[str], latency_s: float, replay: bool, kind: str, timeout_s: float
) -> None:
    """The search for a lost start ends with it, too."""
    service = EndlessService(behaviours, most_requests(timeout_s) + 1000, latency_s, replay=replay)
    urls = [url_of(1), url_of(2)]

    def request_for(root: str) -> LoadRequest:
        return load_request.batch(urls, Naming()) if kind == "batch" else load_request.crawl(urls[0], Naming())

    landed(service, request_for, Terms(timeout_s=timeout_s))
    assert service.clock.passed <= timeout_s + LATE_S
    assert service.starts <= starts.MAX_STARTS + starts.REPEATS + RETRIES


@settings(QUIET, max_examples=10)
@given(cycles, latencies, st.sampled_from([4.0, 600.0]))
@example(["slow 429, 0"], 0.0, 4.0)
@example(["429, 59", "ended, and grows"], 0.0, 4.0)
def test_cancelling_a_job_at_its_deadline_is_bounded(behaviours: list[str], latency_s: float, timeout_s: float) -> None:
    spare = 2 * load.GRACE_S  # to cancel the job, and then to read the results that it has
    service = EndlessService(behaviours, most_requests(timeout_s + spare), latency_s)
    landed(service, lambda root: load_request.existing_job("batch", JOB), Terms(timeout_s=timeout_s, ends_job=True))
    assert service.clock.passed <= timeout_s + spare + ROUNDING_S


def ended(service: EndlessService, flow: Callable[[SimulatedClient], object]) -> None:
    with contextlib.suppress(WeblakeError):
        flow(SimulatedClient(service))


@proves("5.1", at="src/weblake/jobs/retry.py", line="return waited + wait <= policy.wait_s", becomes="return True")
@proves("5.1", at="src/weblake/jobs/retry.py", line="state.waited += (yield from now()) - begun", becomes="pass")
@QUIET
@given(cycles, latencies, st.sampled_from([None, 10.0, 300.0]))
@example(["slow 429, 0"], 0.0, None)
def test_a_single_call_ends_within_its_deadline(behaviours: list[str], latency_s: float, wait_s: float | None) -> None:
    policy = SINGLE if wait_s is None else RetryPolicy.lasting(wait_s)
    most = policy.tries + min(math.ceil(policy.wait_s / PAUSE_S), RETRIES) + 1
    service = EndlessService(behaviours, most, latency_s)
    ended(service, lambda client: client.run(client.retry.call(operations.credit_usage(), policy)))
    assert service.slept <= policy.wait_s
    assert service.clock.passed <= policy.wait_s + (policy.tries + 1) * READ_S


@proves("5.1", at="src/weblake/jobs/usage_reports.py", line="if (yield from now()) >= until:", becomes="if False:")
@QUIET
@given(cycles, latencies)
@example(["leads on", "429, 59"], 0.0)
def test_an_endless_activity_list_is_abandoned(behaviours: list[str], latency_s: float) -> None:
    service = EndlessService(behaviours, usage_reports.MAX_PAGES * SINGLE.tries, latency_s)
    ended(service, lambda client: client.run(usage_reports.activity(client.retry)))
    assert service.clock.passed <= usage_reports.LISTING_S + WAIT_S + SINGLE.tries * READ_S


@proves(
    "5.1",
    at="src/weblake/jobs/retry.py",
    line="return max(least, error.retry_after",
    becomes="return max(0.0, error.retry_after",
)
@QUIET
@given(cycles, latencies, st.sampled_from(["credits", "tokens"]))
@example(["429, 0"], 0.0, "credits")
def test_a_report_ends_within_the_deadline_of_a_call(behaviours: list[str], latency_s: float, what: str) -> None:
    service = EndlessService(behaviours, SINGLE.tries + NAMED, latency_s)
    ended(service, lambda client: client.run(usage_reports.report(what, client.retry)))
    assert service.slept <= WAIT_S
