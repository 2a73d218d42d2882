"""When a call is sent again, after how long, and when it ends: all on a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake import operations, replies
from weblake.errors import (
    AuthenticationFailed,
    CreditsExhausted,
    DeadlineExceeded,
    FeatureMissing,
    JobGone,
    MalformedReply,
    OutcomeUnknown,
    PermissionDenied,
    RateLimited,
    RequestRejected,
    ServiceUnavailable,
    ServiceUnreachable,
    WeblakeError,
)
from weblake.retry import Patience, Retry, RetryBudget
from weblake.steps import Flow, NoReply, Reply, Request, run

OK = {"success": True, "id": "11111111-2222-4333-8444-555555555555"}


@dataclass
class Line:
    """A transport that plays a script, and a clock."""

    script: list[Reply | NoReply]
    sent: list[Request] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    at: float = 1000.0

    def send(self, request: Request) -> Reply | NoReply:
        self.sent.append(request)
        self.at += 0.01
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    def run(self, flow: Flow[object]) -> object:
        return run(flow, self, sleep=self.sleep, clock=lambda: self.at, wall=lambda: self.at)


def reply(status: int = 200, body: object = OK, headers: Mapping[str, str] | None = None, wall: float = 0.0) -> Reply:
    return Reply(status, dict(headers or {}), body if isinstance(body, bytes) else json.dumps(body).encode(), wall=wall)


def retry(jitter: Callable[[], float] = lambda: 0.5) -> Retry:
    return Retry(jitter=jitter)


HTML = reply(200, b"<html>")
READ = operations.credit_usage()
START = operations.start_batch_scrape(["http://a.test/"])
SCRAPE = operations.scrape("http://a.test/")


@pytest.mark.parametrize("trouble", [*(reply(s) for s in (500, 502, 503, 504, 408, 425)), NoReply("reset"), HTML])
def test_a_read_is_repeated(trouble: Reply | NoReply) -> None:
    line = Line([trouble, reply()])
    line.run(retry().call(READ))
    assert len(line.sent) == 2
    assert 0 < line.slept[0] < 1


@pytest.mark.parametrize("trouble", [*(reply(s) for s in (500, 502, 503, 504, 408, 409)), NoReply("reset"), HTML])
def test_a_start_is_not_repeated_and_says_that_nobody_knows(trouble: Reply | NoReply) -> None:
    line = Line([trouble, reply()])
    with pytest.raises(OutcomeUnknown):
        line.run(retry().call(START))
    assert len(line.sent) == 1


@pytest.mark.parametrize("trouble", [reply(429), NoReply("refused", sent=False)])
def test_a_start_that_surely_did_not_happen_is_repeated(trouble: Reply | NoReply) -> None:
    line = Line([trouble, reply()])
    line.run(retry().call(START))
    assert len(line.sent) == 2


@pytest.mark.parametrize("trouble", [reply(500), NoReply("reset")])
def test_a_paid_scrape_is_not_repeated(trouble: Reply | NoReply) -> None:
    line = Line([trouble, reply()])
    with pytest.raises((ServiceUnavailable, ServiceUnreachable)):
        line.run(retry().call(SCRAPE))
    assert len(line.sent) == 1


def test_a_scrape_that_goes_on_is_joined() -> None:
    waiting = reply(408, {"error": "slow", "details": {"state": "processing_continues", "retryAfterSeconds": 7}})
    line = Line([waiting, reply(200, {"success": True, "data": {"markdown": "x"}})])
    line.run(retry().call(SCRAPE))
    assert len(line.sent) == 2
    assert 7 <= line.slept[0] < 8


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": "bad"}, RequestRejected),
        (401, {"error": "key"}, AuthenticationFailed),
        (402, {"error": "credits"}, CreditsExhausted),
        (403, {"error": "team"}, PermissionDenied),
        (404, {"error": "Job not found"}, JobGone),
        (404, {"error": "miss", "code": "SCRAPE_NO_CACHED_DATA"}, RequestRejected),
        (410, {"error": "gone"}, JobGone),
        (413, b"<html>too large</html>", RequestRejected),
        (422, {"error": "schema"}, RequestRejected),
        (302, b"", MalformedReply),
        (503, {"error": "set it", "code": "FEATURE_NOT_CONFIGURED"}, FeatureMissing),
        (200, {"success": False, "error": "no"}, RequestRejected),
    ],
)
def test_a_clear_answer_is_not_asked_for_twice(status: int, body: object, kind: type[WeblakeError]) -> None:
    line = Line([reply(status, body)])
    with pytest.raises(kind) as caught:
        line.run(retry().call(READ))
    assert len(line.sent) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "body", "least", "most"),
    [
        ({"retry-after": "25"}, {}, 25, 28),
        ({"retry-after": "0"}, {}, 0.04, 0.5),
        ({"retry-after": "-3"}, {}, 0.04, 0.5),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT", "date": "Sat, 21 Nov 2026 10:00:00 GMT"}, {}, 30, 32),
        ({"retry-after": "Sat, 21 Nov 1996 10:00:30 GMT"}, {}, 0.04, 0.5),
        ({}, {"error": "x", "details": {"retryAfterSeconds": 12}}, 12, 14),
        ({}, {"error": "Rate limit exceeded, please retry after 17s, resets at noon"}, 17, 19),
        ({"retry-after": "garbage"}, {"error": "retry after 9s"}, 9, 11),
    ],
)
def test_what_the_service_says_about_waiting_is_obeyed(
    headers: Mapping[str, str], body: object, least: float, most: float
) -> None:
    line = Line([reply(429, body, headers, wall=1.8e9), reply()])
    line.run(retry().call(READ))
    assert least <= line.slept[0] <= most


def test_a_wait_beyond_a_minute_is_handed_to_the_caller() -> None:
    line = Line([reply(429, {}, {"retry-after": "3600"}), reply()])
    with pytest.raises(RateLimited) as caught:
        line.run(retry().call(READ))
    assert caught.value.retry_after == 3600
    assert not line.slept


def test_within_a_job_it_is_obeyed_up_to_the_jobs_deadline() -> None:
    line = Line([reply(429, {}, {"retry-after": "3600"}), reply()])
    line.run(retry().call(READ, Patience(until=line.at + 4000)))
    assert line.slept[0] >= 3600
    line = Line([reply(429, {}, {"retry-after": "3600"}), reply()])
    with pytest.raises(RateLimited):
        line.run(retry().call(READ, Patience(until=line.at + 100)))


def test_a_passed_deadline_ends_it_before_anything_is_sent() -> None:
    line = Line([reply()])
    with pytest.raises(DeadlineExceeded):
        line.run(retry().call(READ, Patience(until=line.at - 1)))
    assert not line.sent


def test_one_budget_is_shared_by_all_calls_of_a_client() -> None:
    rules = Retry(budget=RetryBudget(20), jitter=lambda: 0.0)
    line = Line([reply(503)])
    for _ in range(10):
        with pytest.raises(ServiceUnavailable):
            line.run(rules.call(READ))
    assert len(line.sent) == 10 + 20 // 5


@given(
    statuses=st.lists(st.sampled_from([429, 500, 502, 503, 504, 408, 0, -1]), min_size=1, max_size=40),
    hints=st.lists(st.sampled_from(["", "0", "1", "59", "9e9", "9000000000", "x"]), min_size=40, max_size=40),
    jitter=st.floats(0, 0.999),
)
def test_it_always_ends_within_its_patience(statuses: list[int], hints: list[str], jitter: float) -> None:
    script: list[Reply | NoReply] = []
    for status, hint in zip(statuses, hints, strict=False):
        if status <= 0:
            script.append(NoReply("reset", sent=status == 0))
        else:
            script.append(reply(status, {}, {"retry-after": hint} if hint else {}))
    for patience in (Patience(), Patience(tries=8, until=1600.0)):
        line = Line(list(script))
        with pytest.raises(WeblakeError):
            line.run(retry(lambda: jitter).call(READ, patience))
        assert sum(line.slept) <= (60.0 if patience.until is None else 600.0)
        assert len(line.sent) < 700


@given(st.binary(max_size=300), st.integers(200, 599), st.text(max_size=40))
def test_no_reply_breaks_the_reader(body: bytes, status: int, hint: str) -> None:
    got = Reply(status, {"retry-after": hint, "date": hint}, body)
    replies.hint_s(got)
    try:
        replies.value_of(got, "read")
        said = ""
    except WeblakeError as error:
        said = error.message
    assert "\n" not in said
