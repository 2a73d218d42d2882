"""Tests of the polls of a running job: their pauses, their time limit, and the states that end them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from scripted_transport import ScriptedTransport, reply, retry

from weblake.api.steps import NoResponse, Request, Response
from weblake.errors import DeadlineExceeded, JobGone, RateLimited, ServiceUnavailable
from weblake.events import Event, StatusPolled
from weblake.jobs import polling
from weblake.jobs.polling import JobRef, OverBudget, WaitingJob
from weblake.jobs.retry import Retry

JOB = JobRef("crawl", "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11")
ABSENT, DOWN = reply(404, {"success": False, "error": "Job not found"}), reply(503)


def status(word: str = "scraping", **more: object) -> Response:
    return reply(200, {"status": word, **more, "data": more.get("data", [])})


def wait(
    script: Sequence[Response | NoResponse], rules: Retry | None = None, *, seconds: float = 3600.0, **options: object
) -> ScriptedTransport:
    """Wait for the job and return the transport; an error that ends the wait has the transport as `transport`."""
    transport = ScriptedTransport([*script])
    until = transport.at + seconds
    try:
        transport.run(polling.wait(JOB, rules or retry(lambda: 0.0), until=until, **options))  # type: ignore[arg-type]
    except Exception as error:
        error.transport = transport  # type: ignore[attr-defined]
        raise
    return transport


def test_pauses_grow_to_the_longest_one() -> None:
    transport = wait([status()] * 12 + [status("completed")])
    assert transport.slept[:3] == pytest.approx([0.3, 0.45, 0.675])
    assert transport.slept[-2:] == [10.0, 10.0]
    transport = wait([status()] * 4 + [status("completed")], poll_s=0.4)
    assert transport.slept == pytest.approx([0.3, 0.4, 0.4, 0.4])
    transport = wait([status()] * 3 + [status("completed")], first_s=2.0, poll_s=0.4)
    assert transport.slept == [2.0] * 3


def test_jitter_shortens_a_pause_by_at_most_a_quarter() -> None:
    transport = wait([status(), status("completed")], retry(lambda: 1.0), first_s=4.0)
    assert transport.slept == [3.0]


def test_the_last_pause_ends_at_the_time_limit() -> None:
    with pytest.raises(DeadlineExceeded, match=f"before {JOB} ended") as caught:
        wait([status()], seconds=25.0)
    transport = caught.value.transport  # type: ignore[attr-defined]
    assert sum(transport.slept) == pytest.approx(25.0, abs=0.5)
    assert transport.at == pytest.approx(1025.0, abs=0.02)


@pytest.mark.parametrize("unseen_s", [3.0, 10.0])
def test_a_job_that_is_not_there_yet_is_waited_for_some_seconds(unseen_s: float) -> None:
    with pytest.raises(JobGone) as caught:
        wait([ABSENT], unseen_s=unseen_s)
    assert unseen_s <= caught.value.transport.at - 1000 < 2 * unseen_s  # type: ignore[attr-defined]
    assert wait([ABSENT, ABSENT, status("completed")]).slept == pytest.approx([0.3, 0.45])


def test_a_job_just_started_may_be_absent_for_ten_seconds() -> None:
    with pytest.raises(JobGone) as caught:
        wait([ABSENT])
    assert 10 <= caught.value.transport.at - 1000 < 20  # type: ignore[attr-defined]


def test_a_job_that_was_seen_and_is_absent_is_gone_at_once() -> None:
    with pytest.raises(JobGone) as caught:
        wait([status(), ABSENT])
    assert len(caught.value.transport.sent) == 2  # type: ignore[attr-defined]
    with pytest.raises(JobGone) as caught:
        wait([reply(410, {"success": False, "error": "Job expired"})])
    assert len(caught.value.transport.sent) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(("before", "polls"), [([], 8), ([status()], 20)], ids=["never seen", "seen"])
def test_a_service_that_is_down_is_polled_for_longer_once_the_job_was_seen(before: list[Response], polls: int) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        wait([*before, DOWN])
    assert len(caught.value.transport.sent) == len(before) + polls  # type: ignore[attr-defined]


def test_a_job_may_use_its_credits_and_no_more() -> None:
    wait([status(creditsUsed=5), status(creditsUsed=5.0), status("completed", creditsUsed=9)], max_credits=5.0)
    with pytest.raises(OverBudget, match=r"5\.5 credits") as caught:
        wait([status(creditsUsed=5), status(creditsUsed=5.5), status("completed")], max_credits=5.0)
    assert len(caught.value.transport.sent) == 2  # type: ignore[attr-defined]
    wait([status(creditsUsed=1e9), status(creditsUsed="all"), status("completed")])
    with pytest.raises(OverBudget):  # too large for a float
        wait([status(creditsUsed=10**400)], max_credits=5.0)


def test_a_retry_after_beyond_the_time_limit_ends_the_wait() -> None:
    with pytest.raises(DeadlineExceeded, match=r"The last poll: .*slow down") as caught:
        wait([status(), reply(429, {"success": False, "error": "slow down"}, {"retry-after": "60"})], seconds=30.0)
    assert isinstance(caught.value.__cause__, RateLimited)


def test_a_job_that_ends_at_its_time_limit_is_complete() -> None:
    """One response with a wrong Retry-After must not end a job that has hours left: it is asked about every hour."""
    refused = reply(429, {"success": False, "error": "slow down"}, {"retry-after": "86400"})
    for until_deadline, polls, passed in ((True, 4, 3 * 3600.0), (False, 2, 1.0)):
        with pytest.raises(DeadlineExceeded, match="slow down") as caught:
            wait([status(), *[refused] * 3], seconds=3 * 3600.0, until_deadline=until_deadline)
        transport: ScriptedTransport = caught.value.transport  # type: ignore[attr-defined]
        assert len(transport.sent) == polls
        assert transport.at - 1000 == pytest.approx(passed, abs=1.0)
    assert len(wait([status(), refused, status("completed")], seconds=3 * 3600.0, until_deadline=True).sent) == 3


def test_a_rate_limited_wait_lasts_as_long_as_the_job() -> None:
    """The pauses that a service names must not use up the retries of a client: jobs run for hours, and share it."""
    limited = reply(429, {"success": False, "error": "slow down"}, {"retry-after": "30"})
    transport = wait([*[status(), limited] * 1000, status("completed")], seconds=24 * 3600.0)
    assert len(transport.sent) == 2001
    rules = retry(lambda: 0.0)
    for _ in range(300):
        wait([status(), limited, status("completed")], rules)


@pytest.mark.parametrize("code", [429, 503])
def test_a_retry_after_of_zero_does_not_shorten_the_poll_interval(code: int) -> None:
    with pytest.raises(DeadlineExceeded, match="come back") as caught:
        wait([status(), reply(code, {"success": False, "error": "come back"}, {"retry-after": "0"})], seconds=3600.0)
    assert 350 < len(caught.value.transport.sent) < 400  # type: ignore[attr-defined]


OTHER = JobRef("batch_scrape", "1c9f4d63-7a1e-4b52-8e2d-4a6b8f0a3d22")


def wait_for_any(
    script: Sequence[Response | NoResponse], *, seconds: tuple[float, ...] = (3600.0, 3600.0), **options: float
) -> tuple[int, ScriptedTransport]:
    """Wait for two jobs with their own deadlines; return the index of the one that ended the wait."""
    transport = ScriptedTransport([*script])
    jobs = [WaitingJob(job, transport.at + each) for job, each in zip((JOB, OTHER), seconds, strict=True)]
    return transport.run(polling.wait_for_any(jobs, retry(lambda: 0.0), **options)), transport


@pytest.mark.parametrize(
    ("answers", "index"),
    [
        pytest.param([status(), status("completed")], 1, id="ended"),
        pytest.param([status(), status("failed")], 1, id="failed"),
        pytest.param([status("completed")], 0, id="the first one has ended"),
        pytest.param([status(), status(creditsUsed=6), status(), status(creditsUsed=7)], 1, id="over its credits"),
        pytest.param([status(), ABSENT, status(), status(), status(), ABSENT], 1, id="gone after it was seen"),
        pytest.param([ABSENT, ABSENT, status("completed")], 0, id="not there yet"),
        pytest.param([status(), reply(401)], 1, id="refused"),
        pytest.param([status(), DOWN, status(), status("completed")], 0, id="one failed poll"),
    ],
)
def test_of_several_jobs_the_first_that_needs_its_caller_ends_the_wait(answers: list[Response], index: int) -> None:
    found, transport = wait_for_any(answers, max_credits=6)
    assert (found, len(transport.sent)) == (index, len(answers))


def test_of_several_jobs_the_first_deadline_ends_the_wait() -> None:
    found, transport = wait_for_any([status()] * 60, seconds=(3600.0, 25.0))
    assert found == 1
    assert sum(transport.slept) == pytest.approx(25.0, abs=0.5)


@pytest.mark.parametrize("retry_after", ["1", "1800"])
def test_of_several_jobs_one_that_names_a_time_does_not_keep_the_others_from_their_polls(retry_after: str) -> None:
    """The other job's credits and deadline would be seen too late."""
    later = reply(503, {"success": False, "error": "later"}, {"retry-after": retry_after})

    class Transport(ScriptedTransport):
        def send(self, request: Request) -> Response | NoResponse:
            self.script = [later if JOB.job_id in request.path else status(creditsUsed=self.at - 1000)]
            return super().send(request)

    transport = Transport([])
    jobs = [WaitingJob(job, transport.at + 3600.0) for job in (JOB, OTHER)]
    assert transport.run(polling.wait_for_any(jobs, retry(lambda: 0.0), max_credits=60)) == 1
    assert 60 < transport.at - 1000 < 71


def test_of_several_jobs_one_is_polled_again_at_the_time_that_the_service_named() -> None:
    later = reply(503, {"success": False, "error": "later"}, {"retry-after": "60"})
    begun = 1000.0
    transport = ScriptedTransport([later, status("completed")])
    assert transport.run(polling.wait_for_any([WaitingJob(JOB, begun + 3600.0)], retry(lambda: 0.0))) == 0
    assert 60.0 <= transport.at - begun < 71.0
    assert len(transport.sent) == 2
    for seconds in (60.0, 30.0):  # the time is after the deadline: `wait` decides
        transport = ScriptedTransport([later])
        assert transport.run(polling.wait_for_any([WaitingJob(JOB, begun + seconds)], retry(lambda: 0.0))) == 0
        assert len(transport.sent) == 1


def test_many_jobs_are_polled_once_a_second_together() -> None:
    transport = ScriptedTransport([status()] * 100 * 30 + [status("completed")])
    begun = transport.at
    jobs = [WaitingJob(JOB, begun + 86400.0)] * 100
    assert transport.run(polling.wait_for_any(jobs, retry(lambda: 0.0))) == 0
    assert transport.slept[0] == pytest.approx(0.3)
    assert transport.slept[-1] == 100.0


def test_each_poll_is_reported_with_its_counts() -> None:
    seen: list[Event] = []
    wait(
        [status(completed=1, total=3), status("completed", completed=3, total=3)],
        Retry(jitter=lambda: 0.0, observe=seen.append),
    )
    polls = [event for event in seen if isinstance(event, StatusPolled)]
    assert [(poll.status, poll.completed, poll.total) for poll in polls] == [("scraping", 1, 3), ("completed", 3, 3)]


def test_documents_before_a_head_that_ends_in_spaces_are_documents() -> None:
    """The next poll uses the next address, as after a head at the beginning."""
    link = f"http://service.test/v2/crawl/{JOB.job_id}?skip=1"
    chunk = {"data": [{"markdown": "x" * 70_000}], "status": "scraping", "next": link}
    transport = wait([Response(200, {}, json.dumps(chunk).encode() + b" " * 100), status("completed")])
    assert [request.query for request in transport.sent] == [(), (("skip", "1"),)]


def test_a_status_is_read_up_to_its_first_document() -> None:
    body = memoryview(status(data=[{"markdown": "x"}]).body)
    enough = wait([status("completed")]).sent[0].stop_when
    assert enough is not None
    assert enough(body)
    assert not enough(body[:20])
