"""Tests that reading linked chunks ends without a busy loop for any links, on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from catalogue import proves
from scripted_transport import ScriptedTransport, reply, retry

from weblake.api import operations
from weblake.errors import DeadlineExceeded, ServiceUnreachable
from weblake.jobs import polling
from weblake.jobs.polling import JobRef
from weblake.jobs.result_pages import ResultPager
from weblake.jobs.retry import Retry, RetryPolicy
from weblake.loads import download
from weblake.steps import Flow, NoResponse, Request, Response

JOB = JobRef("crawl", "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11")


@dataclass
class Linked(ScriptedTransport):
    """Answers each offset with a chunk of one document that links to another offset."""

    following: Callable[[int], int] = lambda skip: skip
    word: str = "scraping"
    empty: bool = False

    def send(self, request: Request) -> Response:
        self.sent.append(request)
        self.at += 0.01
        skip = int(dict(request.query).get("skip", 0))
        data: list[object] = [] if self.empty else [{"markdown": f"{skip}"}]
        link = f"http://else.test{request.path}?skip={self.following(skip)}"
        return reply(200, {"status": self.word, "next": link, "data": data})

    def waited(self, seconds: float) -> int:
        """Waits for the end that never comes, and returns how many requests that took."""
        with pytest.raises(DeadlineExceeded):
            self.run(polling.wait(JOB, retry(), until=self.at + seconds))  # type: ignore[arg-type]
        assert self.at < 1000 + seconds + 1
        return len(self.sent)


@proves(
    "H17",
    at="src/weblake/jobs/polling.py",
    line="operation = replace(operation, request=next_request)",
    becomes="operation = replace(operation, request=replace(operation.request, query=asked)); continue",
    case="endless",
)
@pytest.mark.parametrize(
    "service",
    [
        pytest.param(Linked([], following=lambda skip: skip + 1), id="endless"),
        pytest.param(Linked([], following=lambda skip: (skip + 1) % 3), id="circle"),
        pytest.param(Linked([], empty=True), id="empty"),
    ],
)
def test_h17_a_running_job_is_asked_once_before_each_pause(service: Linked) -> None:
    """Also one whose pages arrive faster than responses, of which each response has new ones."""
    assert service.waited(600) == len(service.slept) < 100


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="self._policy = RetryPolicy(tries=8, cap_s=30.0, until=until)",
    becomes="self._policy = RetryPolicy(tries=8, cap_s=30.0)",
)
def test_h17_a_chain_of_new_documents_ends_with_the_time_limit() -> None:
    transport = Linked([], following=lambda skip: skip + 1, word="completed")
    pager = ResultPager(JOB, retry(), until=transport.at + 10)

    def read() -> None:
        for _ in range(3000):
            transport.run(pager.read_chunk())  # type: ignore[arg-type]
            pager.record_new(1)

    with pytest.raises(DeadlineExceeded):
        read()
    assert len(transport.sent) <= 1001


#: What reads a job: each of these may be given a reply that drips for ever.
READS: dict[str, Callable[[Retry, float], Flow[object]]] = {
    "the first poll": lambda rules, until: polling.wait(JOB, rules, until=until, keep=lambda reply: None),
    "a glance": lambda rules, until: polling.get_status(JOB, rules, RetryPolicy(until=until)),
    "a chunk": lambda rules, until: ResultPager(JOB, rules, until=until).read_chunk(),
    "the list of errors": lambda rules, until: download._errors(JOB, rules, until),
    "a single read": lambda rules, until: rules.call(operations.credit_usage()),
}


@dataclass
class EndlessResponse(ScriptedTransport):
    """Says that the job runs, and then answers nothing whole within a request's deadline."""

    running: int = 0

    def send(self, request: Request) -> Response | NoResponse:
        self.sent.append(request)
        if len(self.sent) <= self.running:
            return reply(200, {"status": "scraping", "data": []})
        self.at += request.deadline_s
        return NoResponse("no answer in time")


@proves(
    "5.5",
    at="src/weblake/jobs/retry.py",
    line="or state.timeouts >= policy.timeouts",
    becomes="or False",
    case="a chunk-0",
)
@pytest.mark.parametrize(("read", "running"), [*((read, 0) for read in READS), ("the first poll", 3)])
def test_a_response_that_never_ends_is_abandoned_after_minutes(read: str, running: int) -> None:
    """Each try ends with its own deadline of two minutes: three of them, and the pauses between."""
    transport = EndlessResponse([], running=running)
    begun = transport.at
    with pytest.raises(ServiceUnreachable):
        transport.run(READS[read](retry(), transport.at + 24 * 3600))
    assert len(transport.sent) == running + 3
    assert transport.at - begun < 7 * 60
