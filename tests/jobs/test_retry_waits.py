"""Tests of the pause before a repetition: Retry-After in all forms, by the right clock, and invalid values."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import accumulate

import pytest
from catalogue import proves
from hypothesis import assume, given
from hypothesis import strategies as st
from scripted_transport import READ, START, ScriptedTransport, reply, retry

from weblake.api import responses
from weblake.api.operation import Operation
from weblake.errors import RateLimited, RetryLater
from weblake.jobs.retry import SINGLE, Retry, RetryBudget, RetryPolicy
from weblake.steps import NoResponse, Response

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


@proves("H1", at="src/weblake/jobs/retry.py", line="if not named and not self.budget.take():", becomes="if False:")
def test_h1_a_429_without_retry_after_uses_the_shared_retry_budget() -> None:
    rules, transport = Retry(budget=RetryBudget(10), jitter=lambda: 0.0), ScriptedTransport([reply(429)])
    for _ in range(3):
        with pytest.raises(RateLimited):
            transport.run(rules.call(READ))
    assert len(transport.sent) == 3 + 10 // 5


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
def test_the_retry_after_of_the_service_is_obeyed(
    headers: Mapping[str, str], body: object, least: float, most: float
) -> None:
    transport = ScriptedTransport([reply(429, body, headers, received_at=1.8e9), reply()])
    transport.run(retry().call(READ))
    assert least <= transport.slept[0] <= most


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
    "a zone of which nobody knows": lambda at: at.strftime("%a, %d %b %Y %H:%M:%S -0000"),
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
