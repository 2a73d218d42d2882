"""Tests of when a call is repeated, after which pause (Retry-After in all forms), and when it ends."""

from __future__ import annotations

import contextlib
import random
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import accumulate

import pytest
from catalogue import proves
from hypothesis import assume, given
from hypothesis import strategies as st
from scripted_transport import CANCEL, READ, SCRAPE, START, ScriptedTransport, reply, retry

from weblake.api import responses
from weblake.api.operation import Operation
from weblake.api.start_responses import Verdict
from weblake.api.steps import NoResponse, Request, Response
from weblake.errors import (
    AskPerson,
    AuthenticationFailed,
    CreditsExhausted,
    DeadlineExceeded,
    FeatureMissing,
    FixRequest,
    GiveUp,
    JobGone,
    MalformedReply,
    OutcomeUnknown,
    PermissionDenied,
    RateLimited,
    RequestRejected,
    RetryLater,
    ServiceUnavailable,
    ServiceUnreachable,
    WeblakeError,
)
from weblake.jobs.retry import SINGLE, RetryPolicy, RetryState

HTML = reply(200, b"<html>")


@proves("H4", at="src/weblake/jobs/retry.py", line="return isinstance(error, RetryLater) or (", becomes="return (")
@pytest.mark.parametrize("trouble", [*(reply(s) for s in (500, 502, 503, 504)), NoResponse("reset"), HTML])
@pytest.mark.parametrize("operation", [READ, CANCEL], ids=["read", "cancel"])
def test_h4_a_read_and_a_cancel_are_repeated(operation: Operation[object], trouble: Response | NoResponse) -> None:
    transport = ScriptedTransport([trouble, reply()])
    transport.run(retry().call(operation))
    assert [request.method for request in transport.sent] == [operation.request.method] * 2
    assert 0 < transport.slept[0] < 1


#: What a service may say of itself is no evidence that nothing was started.
RETRY_HEADERS = {"should-retry": "true", "x-should-retry": "true", "retry-after": "0"}


@proves("H5", at="src/weblake/jobs/retry.py", line="if not operation.repeatable:", becomes="if False:")
@pytest.mark.parametrize(
    "trouble",
    [*(reply(s) for s in (500, 502, 503, 504)), reply(503, {}, RETRY_HEADERS), NoResponse("reset"), HTML],
)
def test_h5_a_lost_start_is_not_repeated_and_raises_outcome_unknown(trouble: Response | NoResponse) -> None:
    transport = ScriptedTransport([trouble, reply()])
    with pytest.raises(OutcomeUnknown):
        transport.run(retry().call(START))
    assert len(transport.sent) == 1


@proves(
    "H6",
    at="src/weblake/api/responses.py",
    line="if status in (408, 425) or status",
    becomes="if status",
    case="408-read",
)
@proves(
    "H6",
    at="src/weblake/api/start_responses.py",
    line="_status(409), Verdict.OPEN",
    becomes="_status(409), Verdict.REFUSED",
    case="409-start",
)
@pytest.mark.parametrize("operation", [READ, START], ids=["read", "start"])
@pytest.mark.parametrize("status", [408, 425, 409])
def test_h6_status_408_425_and_409_of_a_start(operation: Operation[object], status: int) -> None:
    """A read is repeated, but for a conflict, which would be the same again; of a start nobody knows."""
    transport = ScriptedTransport([reply(status, {"error": "Idempotency key already used"}), reply()])
    if operation is START:
        with pytest.raises(OutcomeUnknown):
            transport.run(retry().call(operation))
    elif status == 409:
        with pytest.raises(RequestRejected):
            transport.run(retry().call(operation))
    else:
        transport.run(retry().call(operation))
        assert 0 < transport.slept[0] < 1
    assert len(transport.sent) == 1 + len(transport.slept)


#: What a person or a program should do about each.
GROUPS = {
    400: FixRequest,
    413: FixRequest,
    422: FixRequest,
    401: AskPerson,
    402: AskPerson,
    403: AskPerson,
    404: GiveUp,
}


@proves(
    "H7",
    at="src/weblake/jobs/retry.py",
    line="return isinstance(error, RetryLater) or (",
    becomes="return True or (",
    case="401-read",
)
@proves(
    "H7",
    at="src/weblake/api/start_responses.py",
    line="_status(range(400, 500)), Verdict.REFUSED",
    becomes="_status(range(400, 500)), Verdict.OPEN",
    case="402-start",
)
@proves(
    "H7",
    at="src/weblake/api/responses.py",
    line="if status == 410 or (status == 404 and code is None):",
    becomes="if status == 410:",
    case="404-read",
)
@pytest.mark.parametrize("operation", [READ, START], ids=["read", "start"])
@pytest.mark.parametrize("status", GROUPS)
def test_h7_a_refusal_ends_a_call_with_an_error_type_for_each_remedy(operation: Operation[object], status: int) -> None:
    transport = ScriptedTransport([reply(status, {"success": False, "error": "no"}), reply()])
    with pytest.raises(GROUPS[status]) as caught:
        transport.run(retry().call(operation))
    assert len(transport.sent) == 1
    assert not isinstance(caught.value, OutcomeUnknown)
    assert caught.value.status == status
    assert caught.value.message
    assert caught.value.hint or "no" in caught.value.message


@proves(
    "H14",
    at="src/weblake/jobs/retry.py",
    line="(operation.repeatable or not reply.sent)",
    becomes="operation.repeatable",
    case="trouble1",
)
@pytest.mark.parametrize("trouble", [reply(429), NoResponse("refused", sent=False)])
def test_h14_a_start_that_was_certainly_not_sent_is_repeated(trouble: Response | NoResponse) -> None:
    transport = ScriptedTransport([trouble, reply()])
    transport.run(retry().call(START))
    assert len(transport.sent) == 2


@pytest.mark.parametrize("trouble", [reply(500), NoResponse("reset")])
def test_a_paid_scrape_is_not_repeated(trouble: Response | NoResponse) -> None:
    transport = ScriptedTransport([trouble, reply()])
    with pytest.raises((ServiceUnavailable, ServiceUnreachable)):
        transport.run(retry().call(SCRAPE))
    assert len(transport.sent) == 1


def test_a_repeated_scrape_under_one_key_joins_the_running_one() -> None:
    waiting = reply(408, {"error": "slow", "details": {"state": "processing_continues", "retryAfterSeconds": 7}})
    transport = ScriptedTransport([waiting, reply(200, {"success": True, "data": {"markdown": "x"}})])
    transport.run(retry().call(SCRAPE))
    assert len(transport.sent) == 2
    assert 7 <= transport.slept[0] < 8


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
def test_a_definite_response_is_not_requested_again(status: int, body: object, kind: type[WeblakeError]) -> None:
    transport = ScriptedTransport([reply(status, body)])
    with pytest.raises(kind) as caught:
        transport.run(retry().call(READ))
    assert len(transport.sent) == 1
    assert "\n" not in str(caught.value)


def test_a_passed_deadline_ends_it_before_anything_is_sent() -> None:
    transport = ScriptedTransport([reply()])
    with pytest.raises(DeadlineExceeded):
        transport.run(retry().call(READ, RetryPolicy(until=transport.at - 1)))
    with pytest.raises(DeadlineExceeded):
        transport.run(retry().call(READ, RetryPolicy(until=transport.at)))
    assert not transport.sent


class LateTransport(ScriptedTransport):
    """One on a machine that wakes late."""

    late = 0.0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds + self.late)


@pytest.mark.parametrize("late", [0.0, 0.1], ids=["cut-off", "not-sent"])
def test_a_timeout_at_the_deadline_does_not_hide_the_earlier_error(late: float) -> None:
    transport = LateTransport([reply(502), NoResponse("no complete answer within 1e-05 s")])
    transport.late = late
    with pytest.raises(DeadlineExceeded, match="502") as caught:
        transport.run(retry().call(READ, RetryPolicy(until=transport.at + 0.01 + 0.30 + 0.005)))
    assert isinstance(caught.value.__cause__, ServiceUnavailable)
    assert len(transport.sent) == (1 if late else 2)


@proves("5.2", at="src/weblake/jobs/retry.py", line="return waited + wait <= policy.wait_s", becomes="return True")
@given(
    statuses=st.lists(st.sampled_from([429, 500, 502, 503, 504, 408, 0, -1]), min_size=1, max_size=40),
    hints=st.lists(st.sampled_from(["", "0", "1", "59", "9e9", "9000000000", "x"]), min_size=40, max_size=40),
    jitter=st.floats(0, 0.999),
)
def test_a_call_always_ends_within_its_retry_policy(statuses: list[int], hints: list[str], jitter: float) -> None:
    script: list[Response | NoResponse] = []
    for status, hint in zip(statuses, hints, strict=False):
        if status <= 0:
            script.append(NoResponse("reset", sent=status == 0))
        else:
            script.append(reply(status, {}, {"retry-after": hint} if hint else {}))
    for policy in (RetryPolicy(), RetryPolicy(tries=8, until=1600.0)):
        transport = ScriptedTransport(list(script), most=700)
        with pytest.raises(WeblakeError):
            transport.run(retry(lambda: jitter).call(READ, policy))
        assert sum(transport.slept) <= (60.0 if policy.until is None else 600.0)


@given(st.binary(max_size=300), st.integers(200, 599), st.text(max_size=40))
def test_no_response_crashes_the_parser(body: bytes, status: int, hint: str) -> None:
    got = Response(status, {"retry-after": hint, "date": hint}, body)
    responses.retry_after_s(got)
    try:
        responses.value_of(got, "read")
        said = ""
    except WeblakeError as error:
        said = error.message
    assert "\n" not in said


class Silent(ScriptedTransport):
    """Sends no response until the deadline of the request."""

    def send(self, request: Request) -> Response | NoResponse:
        self.at += request.deadline_s
        return super().send(request)


def test_three_attempts_that_reach_the_request_deadline_end_the_call() -> None:
    transport = Silent([NoResponse("no answer in time")])
    with pytest.raises(ServiceUnreachable):
        transport.run(retry().call(READ))
    assert len(transport.sent) == 3


def test_attempts_that_end_before_the_request_deadline_do_not_count_as_such() -> None:
    transport = ScriptedTransport([*[NoResponse("reset")] * 5, reply()])
    transport.run(retry().call(READ))
    assert len(transport.sent) == 6


def test_retries_for_a_given_time_may_reach_the_request_deadline_more_often() -> None:
    transport = Silent([*[NoResponse("timed out")] * 10, reply()])
    transport.run(retry().call(READ, RetryPolicy.lasting(600)))
    assert len(transport.sent) == 11


def test_retries_that_a_time_limit_ends_say_so_and_name_the_last_error() -> None:
    transport = ScriptedTransport([reply(503, {"success": False, "error": "maintenance"})])
    until = transport.at + 20
    with pytest.raises(DeadlineExceeded, match=r"The time limit passed; before that: .*maintenance"):
        transport.run(retry().call(READ, RetryPolicy(tries=50, until=until)))
    assert transport.at < until


def test_a_retry_after_does_not_count_as_a_failure() -> None:
    """Its rate limit counts as no failed try: only the seconds of all pauses are bounded."""
    transport = ScriptedTransport([*[reply(429, {}, {"retry-after": "1"})] * 20, reply()])
    transport.run(retry(lambda: 0.0).call(READ))
    assert len(transport.sent) == 21
    assert [request.attempt for request in transport.sent] == [*range(1, 22)]


@pytest.mark.parametrize(("seconds", "tries"), [("59.95", 2), ("59.96", 1)])
def test_the_pauses_of_a_call_may_take_a_whole_minute(seconds: str, tries: int) -> None:
    transport = ScriptedTransport([reply(429, {}, {"retry-after": seconds}), reply()])
    with contextlib.suppress(RateLimited):
        transport.run(retry(lambda: 0.0).call(READ))
    assert len(transport.sent) == tries


def test_pauses_of_a_long_retry_stop_growing_at_20_seconds() -> None:
    """A long policy lasts nearly as long as it says, and then ends."""
    transport = ScriptedTransport([reply(503)])
    with pytest.raises(ServiceUnavailable):
        transport.run(retry(lambda: 0.999).call(READ, RetryPolicy.lasting(600)))
    assert 19.9 < max(transport.slept) < 20.1
    assert 570 < sum(transport.slept) <= 600


def test_jitter_adds_at_most_a_tenth_to_a_retry_after() -> None:
    """Otherwise all callers that it turned away come back in the same moment."""
    for seconds, pause in (("4", 4.45), ("30", 31.05)):
        transport = ScriptedTransport([reply(429, {}, {"retry-after": seconds}), reply()])
        transport.run(retry(lambda: 1.0).call(READ))
        assert transport.slept == pytest.approx([pause])


def test_a_response_that_cannot_be_read_is_tried_three_times() -> None:
    transport = ScriptedTransport([reply(200, b"{")])
    with pytest.raises(MalformedReply):
        transport.run(retry().call(READ))
    assert len(transport.sent) == 3


@pytest.mark.parametrize("operation", [READ, START], ids=["read", "start"])
@pytest.mark.parametrize("sent", [True, False])
def test_a_failure_that_would_come_again_is_not_repeated(operation: Operation[object], sent: bool) -> None:
    transport = ScriptedTransport([NoResponse("the same again", sent, final=True), reply()])
    with pytest.raises(OutcomeUnknown if sent and operation is START else (MalformedReply, AskPerson)):
        transport.run(retry().call(operation))
    assert len(transport.sent) == 1


def test_a_definite_response_that_comes_after_the_deadline_is_not_hidden_by_the_earlier_error() -> None:
    transport = ScriptedTransport([reply(502), reply(401)])
    with pytest.raises(AuthenticationFailed):
        transport.run(retry().call(READ, RetryPolicy(until=transport.at + 0.01 + 0.30 + 0.005)))
    assert len(transport.sent) == 2


def test_a_refusal_with_status_200_is_reported_with_its_status_and_verdict() -> None:
    state = RetryState()
    transport = ScriptedTransport([reply(200, {"success": False, "error": "no"})])
    with pytest.raises(RequestRejected) as caught:
        transport.run(retry().attempt(START, lambda response: responses.value_of(response, "start"), state))
    assert (caught.value.status, state.verdict) == (200, Verdict.REFUSED)


#: What is added to what the service asks for: a moment, and a tenth, which is for chance.
AT_LEAST_S, SPREAD = 0.05, 0.1


@proves("H1", at="src/weblake/jobs/retry.py", line="2.0 ** min(state.failures - 1, 16)", becomes="1.0")
@proves(
    "H1",
    at="src/weblake/jobs/retry.py",
    line="return self.jitter() * min(state.policy.cap_s",
    becomes="return min(state.policy.cap_s",
)
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("operation", [READ, START], ids=["read", "start"])
def test_h1_a_429_without_retry_after_is_retried_with_growing_jittered_pauses(
    operation: Operation[object], chance: float
) -> None:
    transport = ScriptedTransport([reply(429)])
    with pytest.raises(RateLimited) as caught:
        transport.run(retry(lambda: chance).call(operation))
    assert caught.value.retry_after is None
    pauses = [AT_LEAST_S + chance * min(SINGLE.cap_s, 0.5 * 2**n) for n in range(SINGLE.tries - 1)]
    within = [pause for pause, total in zip(pauses, accumulate(pauses), strict=True) if total <= SINGLE.wait_s]
    assert transport.slept == pytest.approx(within)


@pytest.mark.parametrize("response", [reply(503), reply(429), NoResponse("refused", sent=False)])
@pytest.mark.parametrize("seed", range(20))
def test_a_call_is_retried_for_about_a_minute_by_default(response: Response | NoResponse, seed: int) -> None:
    """As the documentation of client, connection and resource says, and not until its tries are used up."""
    transport = ScriptedTransport([response])
    with pytest.raises(RetryLater):
        transport.run(retry(random.Random(seed).random).call(READ))
    assert 40 <= sum(transport.slept) <= 60


def waited(header: str, chance: float, status: int, **more: str) -> tuple[list[float], RateLimited | None]:
    """The pauses before a second try, and what was raised in place of one."""
    transport = ScriptedTransport([reply(status, {}, {"retry-after": header, **more}, received_at=1.8e9), reply()])
    try:
        transport.run(retry(lambda: chance).call(READ))
    except RateLimited as error:
        return transport.slept, error
    return transport.slept, None


NUMBERS = st.one_of(
    st.integers(-(10**11), 10**11).map(str),
    st.decimals(-(10**6), 10**6, places=3).map(lambda number: f"{number:f}"),
    st.floats(0, 59).map(lambda number: f"{number:.6f}"),
)


@proves("H2", at="src/weblake/jobs/retry.py", line="return waited + wait <= policy.wait_s", becomes="return True")
@proves("H2", at="src/weblake/jobs/retry.py", line="error.retry_after + 0.05 +", becomes="0.05 +")
@given(number=NUMBERS, chance=st.floats(0, 0.999))
def test_h2_a_retry_after_in_seconds_is_obeyed_up_to_a_minute_and_raised_above(number: str, chance: float) -> None:
    asked = max(0.0, float(number))
    # Between the two lies what chance adds: it may be too much for a minute, or not.
    assume(not 54 < asked <= 60)
    slept, error = waited(number, chance, 429)
    if asked > 60:
        assert slept == []
        assert error is not None
        assert error.retry_after == asked
    else:
        assert error is None
        assert len(slept) == 1
        assert asked + AT_LEAST_S <= slept[0] <= asked + AT_LEAST_S + min(1.0, SPREAD * asked)


#: What other readers take for numbers.
ODD = ["9e9", "1e3", "nan", "inf", "-Infinity", "1_0", "0x10", "5 5", "1,5", "soon", " "]


@proves("H2", at="src/weblake/api/responses.py", line=r'(\.\d{1,9})?", text)', becomes=r'(\.\d{1,9})?(e\d)?", text)')
@given(
    header=st.sampled_from(ODD)
    | st.text(st.characters(codec="latin-1", exclude_categories=("Nd",)), max_size=40).map(str.strip),
    chance=st.floats(0, 0.999),
)
def test_h2_an_invalid_retry_after_is_ignored(header: str, chance: float) -> None:
    slept, error = waited(header, chance, 429)
    assert error is None
    assert slept == pytest.approx([AT_LEAST_S + chance * 0.5])


@proves(
    "H2",
    at="src/weblake/jobs/retry.py",
    line="return wait < (yield from _seconds_left(policy))",
    becomes="return wait < (yield from _seconds_left(policy)) and wait < 60",
)
def test_h2_a_retry_after_within_a_job_is_obeyed_up_to_the_deadline_of_the_job() -> None:
    transport = ScriptedTransport([reply(429, {}, {"retry-after": "3600"}), reply()])
    transport.run(retry().call(READ, RetryPolicy(until=transport.at + 4000)))
    assert transport.slept[0] >= 3600
    transport = ScriptedTransport([reply(429, {}, {"retry-after": "3600"}), reply()])
    with pytest.raises(RateLimited):
        transport.run(retry().call(READ, RetryPolicy(until=transport.at + 100)))


#: The three forms of a date that HTTP allows, and those with which services err.
FORMS = {
    "usual": lambda at: format_datetime(at, usegmt=True),
    "as of 1994": lambda at: at.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
    "as C prints it": lambda at: at.strftime("%a %b %e %H:%M:%S %Y"),
    "another zone": lambda at: format_datetime(at.astimezone(timezone(timedelta(hours=5, minutes=30)))),
    "no zone": lambda at: at.strftime("%a, %d %b %Y %H:%M:%S"),
    "an unknown zone": lambda at: at.strftime("%a, %d %b %Y %H:%M:%S -0000"),
}
NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@proves(
    "H3",
    at="src/weblake/api/responses.py",
    line="return (then if then.tzinfo else then.replace(tzinfo=timezone.utc)).timestamp()",
    becomes="return then.timestamp()",
    case="Asia/Tokyo-no zone",
)
@pytest.mark.parametrize("form", FORMS)
def test_h3_every_form_of_a_retry_after_date_gives_the_same_time_in_every_time_zone(form: str, zone: str) -> None:
    header = FORMS[form](NOON + timedelta(seconds=30))
    slept, error = waited(header, 0.0, 429, date=format_datetime(NOON, usegmt=True))
    assert error is None
    assert slept == [pytest.approx(30 + AT_LEAST_S)]
    assert responses.http_date(FORMS[form](NOON)) == NOON.timestamp()


@proves(
    "H3",
    at="src/weblake/api/responses.py",
    line="then - (response.received_at if base is None else base)",
    becomes="then - response.received_at",
    case="429--86400",
)
@pytest.mark.parametrize("ahead", [-86400, -3600, 0, 45, 86400 * 365])
@pytest.mark.parametrize("status", [429, 503])
def test_h3_a_retry_after_date_is_relative_to_the_date_header(status: int, ahead: int) -> None:
    """Our clock is somewhere else: by it, the wait would be a day, or none at all."""
    headers = {
        "retry-after": format_datetime(NOON + timedelta(seconds=20), usegmt=True),
        "date": format_datetime(NOON, usegmt=True),
    }
    transport = ScriptedTransport([reply(status, {}, headers, received_at=NOON.timestamp() + ahead), reply()])
    transport.run(retry(lambda: 0.0).call(READ))
    assert transport.slept == [pytest.approx(20 + AT_LEAST_S)]


@proves(
    "H3",
    at="src/weblake/api/responses.py",
    line="return None if then is None else then - (response.received_at if base is None else base)",
    becomes="return None if then is None or base is None else then - base",
)
@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Foo 99999 99:99:99 GMT"])
def test_h3_without_a_date_header_the_local_clock_is_used(date: str) -> None:
    headers = {"retry-after": format_datetime(NOON, usegmt=True), "date": date}
    transport = ScriptedTransport([reply(429, {}, headers, received_at=NOON.timestamp() - 20), reply()])
    transport.run(retry(lambda: 0.0).call(READ))
    assert transport.slept == [pytest.approx(20 + AT_LEAST_S)]


@proves("H3", at="src/weblake/api/responses.py", line="max(0.0, seconds)", becomes="seconds")
@given(at=st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)), ours=st.floats(0, 2.5e11))
def test_h3_a_past_date_is_no_wait_and_a_distant_one_is_raised_to_the_caller(at: datetime, ours: float) -> None:
    then = at.replace(tzinfo=timezone.utc, microsecond=0)
    refused = reply(429, {}, {"retry-after": format_datetime(then, usegmt=True)}, received_at=ours)
    transport = ScriptedTransport([refused, reply()])
    ahead = then.timestamp() - ours
    assume(not 59.9 < ahead <= 60)
    assert responses.retry_after_s(refused) == pytest.approx(max(0.0, ahead))
    if ahead <= 60:
        transport.run(retry(lambda: 0.0).call(READ))
        assert transport.slept == [pytest.approx(max(0.0, ahead) + AT_LEAST_S)]
    else:
        with pytest.raises(RateLimited) as caught:
            transport.run(retry(lambda: 0.0).call(READ))
        assert caught.value.retry_after == pytest.approx(ahead)
        assert not transport.slept


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("soon", {"details": {"retryAfterSeconds": 7}}, 7.0),
        ("soon", {"error": "Rate limit exceeded, please retry after 9s"}, 9.0),
        ("5", {"details": {"retryAfterSeconds": 7}}, 5.0),
        ("-5", {}, 0.0),
        ("soon", {"details": [7]}, None),
    ],
)
def test_with_an_invalid_header_the_retry_after_of_the_body_is_used(
    header: str, body: object, seconds: float | None
) -> None:
    assert responses.retry_after_s(reply(429, body, {"retry-after": header})) == seconds
