"""Tests of reading linked chunks: repetitions, pauses, the errors that end it, and bounds for any links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from catalogue import proves
from scripted_transport import ScriptedTransport, reply, retry

from weblake.api import operations
from weblake.api.steps import Flow, NoResponse, Request, Response
from weblake.errors import DeadlineExceeded, MalformedReply, RateLimited, ServiceUnavailable, ServiceUnreachable
from weblake.jobs import polling
from weblake.jobs.polling import JobRef
from weblake.jobs.result_pages import ResultPager
from weblake.jobs.retry import Retry, RetryPolicy
from weblake.loads import download

JOB = JobRef("crawl", "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11")
AT = "http://service.test/v2/crawl/0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11?skip="


def chunk(documents: int = 1, following: int | None = None, status: str = "completed") -> Response:
    link = None if following is None else f"{AT}{following}"
    return reply(200, {"status": status, "next": link, "data": [{"markdown": "x"}] * documents})


def pager_of(script: Sequence[Response | NoResponse], seconds: float = 3600.0) -> tuple[ResultPager, ScriptedTransport]:
    transport = ScriptedTransport([*script])
    return ResultPager(JOB, retry(lambda: 0.0), until=transport.at + seconds), transport


def read_all(pager: ResultPager, transport: ScriptedTransport) -> list[int]:
    counts = []
    while not pager.ended:
        documents = transport.run(pager.read_chunk())  # type: ignore[arg-type]
        counts.append(len(documents))  # type: ignore[arg-type]
        pager.record_new(counts[-1])
    return counts


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="self.ended, self._repolled = self._repolled, True",
    becomes="self.ended = True",
)
@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="self.ended, self._repolled = self._repolled, True",
    becomes="self._repolled = True",
)
def test_h17_an_empty_chunk_that_links_to_itself_is_read_once_more_each_time() -> None:
    """A last write may be delayed; the chunk after it may be late in the same way."""
    pager, transport = pager_of([chunk(1, 1), chunk(0, 1), chunk(2, 3), chunk(0, 3), chunk(4, None)])
    assert read_all(pager, transport) == [1, 0, 2, 0, 4]
    pager, transport = pager_of([chunk(1, 1), chunk(0, 1)])
    assert read_all(pager, transport) == [1, 0, 0]


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="elif following in self._visited:",
    becomes="elif following == self._asked:",
)
@proves("H17", at="src/weblake/jobs/result_pages.py", line="elif following in self._visited:", becomes="elif False:")
@pytest.mark.parametrize("chain", [[chunk(1, 1), chunk(1, 1)], [chunk(1, 1), chunk(1, 2), chunk(1, 1)]])
def test_h17_chunks_with_documents_that_link_in_a_circle_are_an_error(chain: list[Response]) -> None:
    pager, transport = pager_of([*chain])
    with pytest.raises(MalformedReply, match="circle"):
        read_all(pager, transport)
    assert len(transport.sent) == len(chain)


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="(self._stale > MAX_STALE or len(self._visited) > MAX_CHUNKS)",
    becomes="len(self._visited) > MAX_CHUNKS",
)
def test_h17_a_chain_may_have_200_chunks_in_a_row_without_a_new_document() -> None:
    pager, _ = pager_of([chunk()])
    for _ in range(2):
        for _ in range(200):
            pager.record_new(0)
        pager.record_new(1)
    for _ in range(200):
        pager.record_new(0)
    with pytest.raises(MalformedReply, match="do not end"):
        pager.record_new(0)


def test_a_chain_without_new_documents_that_ends_is_no_error() -> None:
    pager, transport = pager_of([chunk()])
    for _ in range(200):
        pager.record_new(0)
    assert len(transport.run(pager.read_chunk())) == 1  # type: ignore[arg-type]
    assert pager.ended
    pager.record_new(0)


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="(self._stale > MAX_STALE or len(self._visited) > MAX_CHUNKS)",
    becomes="self._stale > MAX_STALE",
)
def test_h17_a_chain_may_have_100_000_chunks() -> None:
    pager, _ = pager_of([chunk()])
    pager._visited = {(("skip", str(n)),) for n in range(100_000)}
    pager.record_new(1)
    pager._visited.add(())
    with pytest.raises(MalformedReply, match="do not end"):
        pager.record_new(1)


@proves(
    "H22",
    at="src/weblake/jobs/result_pages.py",
    line="for pause in (*LAG_PAUSES_S, None):",
    becomes="for pause in (None,):",
)
def test_h22_a_chunk_that_says_that_the_job_runs_is_read_five_times() -> None:
    pager, transport = pager_of([chunk(status="scraping")])
    with pytest.raises(MalformedReply, match="went back to 'scraping'"):
        transport.run(pager.read_chunk())  # type: ignore[arg-type]
    assert transport.slept == [0.5, 1.0, 2.0, 4.0]
    assert len(transport.sent) == 5
    pager, transport = pager_of([*[chunk(status="scraping")] * 4, chunk(3)])
    assert read_all(pager, transport) == [3]


def test_the_pauses_before_a_lagging_chunk_end_at_the_time_limit() -> None:
    pager, transport = pager_of([chunk(status="scraping")], seconds=1.2)
    with pytest.raises(DeadlineExceeded, match=f"while {JOB} was being read"):
        transport.run(pager.read_chunk())  # type: ignore[arg-type]
    assert transport.at == pytest.approx(1001.2, abs=0.05)


def test_a_chunk_is_tried_eight_times_and_the_error_keeps_its_status() -> None:
    pager, transport = pager_of([reply(503, {"success": False, "error": "down", "code": "DOWN"})])
    with pytest.raises(ServiceUnavailable, match=f"Reading {JOB} was given up") as caught:
        transport.run(pager.read_chunk())  # type: ignore[arg-type]
    assert len(transport.sent) == 8
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "DOWN", None)


def test_a_retry_after_beyond_the_time_limit_is_raised_to_the_caller() -> None:
    pager, transport = pager_of([reply(429, {}, {"retry-after": "600"})], seconds=300.0)
    with pytest.raises(RateLimited) as caught:
        transport.run(pager.read_chunk())  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.retry_after) == (429, 600)


def test_an_error_in_a_200_response_is_an_error_and_no_empty_chunk() -> None:
    pager, transport = pager_of([reply(200, {"success": False, "error": "the index is broken"})])
    with pytest.raises(Exception, match="the index is broken"):
        transport.run(pager.read_chunk())  # type: ignore[arg-type]


def test_one_page_of_256_mib_is_a_chunk() -> None:
    pager, transport = pager_of([chunk()])
    read_all(pager, transport)
    assert transport.sent[0].max_body == 256 << 20


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
    line="operation = replace(operation, request=replace(operation.request, query=following))",
    becomes="operation = replace(operation, request=replace(operation.request, query=following)); continue",
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
    "the first poll": lambda rules, until: polling.wait(JOB, rules, until=until),
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
