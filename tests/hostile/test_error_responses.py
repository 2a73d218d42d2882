"""Refusals, outages and rate limits while a job is read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from catalogue import proves
from landing_commands import KEY, Lake
from scripted_job import JOB, Job, pages
from scripted_service import Play, ReceivedRequest, ScriptedService, each, reply
from skipped_waits import SkippedWaits

HTML = "<!doctype html><html><head><title>502</title></head><body>\n<h1>Bad Gateway</h1>\n</body></html>"

REFUSALS = {
    400: "RequestRejected",
    401: "AuthenticationFailed",
    402: "CreditsExhausted",
    403: "PermissionDenied",
    405: "RequestRejected",
    409: "RequestRejected",
    410: "JobGone",
    413: "RequestRejected",
    418: "RequestRejected",
    422: "RequestRejected",
}

BODIES = {
    "json": {"success": False, "error": "No,\nnot\x1b[31m this\u2028one.", "code": "X_Y", "details": [{"path": []}]},
    "odd json": {"success": "no", "error": {"message": ["deep"]}, "code": 7, "details": "text"},
    "a list": ["error"],
    "html": HTML,
    "nothing": "",
    "bytes": bytes(range(256)),
}


@pytest.mark.parametrize(("status", "kind"), REFUSALS.items())
def test_h7_a_refused_poll_is_reported_and_not_retried(
    service: ScriptedService, lake: Lake, status: int, kind: str
) -> None:
    service.on(f"GET /v2/batch/scrape/{JOB}", reply(BODIES["json"], status))
    lake.land(job=JOB).expect_error(kind, "No, not [31m this one.")
    assert len(service.seen) == 1


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_status_of_a_refusal_counts_whatever_its_body(service: ScriptedService, lake: Lake, body: object) -> None:
    service.on(f"GET /v2/batch/scrape/{JOB}", reply(body, 403))
    lake.land(job=JOB).expect_error("PermissionDenied")
    assert len(service.seen) == 1


@pytest.mark.parametrize(("status", "kind"), [(401, "AuthenticationFailed"), (403, "PermissionDenied")])
def test_a_refusal_between_pages_publishes_nothing(
    service: ScriptedService, lake: Lake, status: int, kind: str
) -> None:
    job = Job(service, pages(6), cut=2)
    service.first(job.at(4), reply({"success": False, "error": "not any more"}, status))
    lake.land(job=JOB).expect_error(kind, "not any more")
    lake.land(job=JOB).landed(pages(6))


@pytest.mark.parametrize("status", [401, 404, 429, 500, 200])
def test_s1_a_service_that_echoes_the_key_does_not_leak_it(service: ScriptedService, lake: Lake, status: int) -> None:
    told = {"success": False, "error": f"Invalid token: Bearer {KEY}", "code": KEY}
    service.on(f"GET /v2/batch/scrape/{JOB}", reply(told, status))
    outcome = lake.land(job=JOB, timeout=1.5)
    assert outcome.code == 1
    assert KEY not in outcome.out + outcome.err


def test_s1_a_response_that_echoes_the_request_headers_does_not_leak_the_key(
    service: ScriptedService, lake: Lake
) -> None:
    service.on(f"GET /v2/batch/scrape/{JOB}", reply(f"Bearer {KEY}\n", content_type="text/plain"))
    lake.land(job=JOB).expect_error("MalformedReply", "cannot be read")


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 599])
@pytest.mark.parametrize("skip", [0, 2])
def test_h4_a_temporary_outage_is_retried(service: ScriptedService, lake: Lake, status: int, skip: int) -> None:
    job = Job(service, pages(4), cut=2)
    service.first(job.at(skip), reply(HTML, status), reply({"success": False, "error": "again"}, status))
    lake.land(job=JOB).landed(pages(4))


@pytest.mark.parametrize("status", [500, 503])
def test_h4_a_permanent_outage_fails_the_load(service: ScriptedService, lake: Lake, status: int) -> None:
    job = Job(service, pages(4), cut=2)
    job.always(2, reply({"success": False, "error": "the database is down"}, status))
    lake.land(job=JOB).expect_error("ServiceUnavailable", "the database is down", "nothing is paid twice")
    assert len(service.requests_for(job.at(2))) == 8


def test_a_timeout_during_an_outage_names_the_cause(service: ScriptedService, lake: Lake) -> None:
    service.on(f"GET /v2/batch/scrape/{JOB}", reply(HTML, 502))
    lake.land(job=JOB, timeout=1, process=True).expect_error("DeadlineExceeded", "502")


#: The discard port, on which nothing listens. A port that a test has left may be used by another test.
REFUSED = "http://127.0.0.1:9"


def test_a_refused_connection_ends_at_the_timeout(lake: Lake) -> None:
    lake.env["WEBLAKE_BASE_URL"] = REFUSED
    # On a busy machine the time ends before the first connection, so the error need not name it.
    lake.land(job=JOB, timeout=0.3).expect_error("DeadlineExceeded")
    lake.land(job=JOB).expect_error("ServiceUnreachable", REFUSED, "WEBLAKE_BASE_URL")


def test_a_service_that_starts_later_is_reached(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(2))
    lake.env["WEBLAKE_BASE_URL"] = REFUSED
    lake.land(job=JOB).expect_error("ServiceUnreachable")
    lake.env["WEBLAKE_BASE_URL"] = service.url
    lake.land(job=JOB).landed(pages(2))


def date(seconds: float) -> str:
    return format_datetime(datetime.now(timezone.utc) + timedelta(seconds=seconds), usegmt=True)


LONG_AGO, SECONDS_LATER = (f"Sat, 01 Jan 2000 00:00:0{n} GMT" for n in (0, 1))

#: How a response demands a wait, and the fewest and most seconds that the wait takes.
WAITS = {
    "seconds": (lambda: reply({}, 429, retry_after="1"), 1.0, 6.0),
    "a fraction": (lambda: reply({}, 429, retry_after="0.5"), 0.5, 5.0),
    "zero": (lambda: reply({}, 429, retry_after="0"), 0.0, 4.0),
    "negative": (lambda: reply({}, 429, retry_after="-5"), 0.0, 4.0),
    "a date": (lambda: reply({}, 429, retry_after=date(2)), 0.9, 7.0),
    "a date by the service's own clock": (lambda: reply({}, 429, date=LONG_AGO, retry_after=SECONDS_LATER), 1.0, 6.0),
    "a date that has passed": (lambda: reply({}, 429, retry_after=date(-3600)), 0.0, 4.0),
    "garbage": (lambda: reply({}, 429, retry_after="soon"), 0.0, 4.0),
    "an exponent": (lambda: reply({}, 429, retry_after="9e9"), 0.0, 4.0),
    "not a number": (lambda: reply({}, 429, retry_after="nan"), 0.0, 4.0),
    "an odd date": (lambda: reply({}, 429, retry_after="Sat, 99 Foo 99999 99:99:99 GMT"), 0.0, 4.0),
    "details": (lambda: reply({"error": "slow down", "details": {"retryAfterSeconds": 0.4}}, 429), 0.4, 5.0),
    "text": (lambda: reply({"error": "Rate limit exceeded, please retry after 0.4s, resets at noon"}, 429), 0.4, 5.0),
    "503": (lambda: reply(HTML, 503, retry_after="0.4"), 0.4, 5.0),
    "nothing": (lambda: reply(HTML, 429), 0.0, 4.0),
}  # fmt: skip


@pytest.mark.parametrize(("refuse", "least", "most"), WAITS.values(), ids=WAITS)
def test_a_rate_limit_is_waited_out(
    service: ScriptedService, lake: Lake, short_waits: SkippedWaits, refuse: object, least: float, most: float
) -> None:
    job = Job(service, pages(4), cut=2)
    times: list[float] = []

    def timed(_: ReceivedRequest) -> Play:
        times.append(short_waits.monotonic())
        return refuse() if len(times) == 1 else reply(job.chunks[2])  # type: ignore[operator]

    job.always(2, each(timed))
    lake.land(job=JOB).landed(pages(4))
    assert least <= times[1] - times[0] <= most


@pytest.mark.parametrize(
    "hint",
    ["3600", "9000000000", "999999999999.999999999", date(86400 * 365)],
    ids=["an hour", "centuries", "fractions", "a date"],
)
def test_a_retry_after_beyond_the_timeout_fails_at_once(service: ScriptedService, lake: Lake, hint: str) -> None:
    job = Job(service, pages(4), cut=2)
    service.first(job.at(2), reply({}, 429, retry_after=hint))
    outcome = lake.land(job=JOB, timeout=60)
    outcome.expect_error("RateLimited", "again later")
    assert outcome.seconds < 15
    lake.land(job=JOB).landed(pages(4))


def test_an_endless_rate_limit_ends_at_the_timeout(service: ScriptedService, lake: Lake) -> None:
    service.on(f"GET /v2/batch/scrape/{JOB}", reply({"error": "later"}, 429, retry_after="0"))
    lake.land(job=JOB, timeout=2).expect_error("DeadlineExceeded")
    assert len(service.seen) < 60


#: Redirect targets: the other origin, the service itself, and URLs that are invalid for a service.
PLACES = {
    "another origin": "http://{other_origin}/v2/crawl?skip=0",
    "https": "https://{service}{path}",
    "no scheme": "//{other_origin}{path}",
    "user info": "http://{service}@{other_origin}{path}",
    "itself": "http://{service}{path}",
    "its own path": "{path}?skip=0",
    "another path": "/v2/team/activity",
    "a file": "file:///etc/passwd",
    "a script": "javascript:alert(1)",
    "nowhere": "",
    "a secret": "http://{other_origin}/?token=canary",
}


@proves(
    "H15",
    at="src/weblake/http/transport.py",
    line="                for part in response.stream:",
    becomes="                for part in [httpx.get(response.headers['location'], headers=self._headers).content]:",
    case="302-another origin",
)
@proves(
    "H15",
    at="src/weblake/jobs/retry.py",
    line="value, error = _outcome(reply, operation, read)",
    becomes="value, error = _outcome((yield from send(request)), operation, read)",
    case="302-itself",
)
@proves(
    "H15", at="src/weblake/api/responses.py", line="if 300 <= status < 400:", becomes="if False:", case="302-itself"
)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("status", [302, 307])
def test_h15_no_redirect_is_followed_wherever_it_points(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake, status: int, place: str
) -> None:
    job = Job(service, pages(2))
    names = {"service": service.url[7:], "other_origin": other_origin.url[7:], "path": job.path}
    job.always(0, reply("", status, location=PLACES[place].format(**names)))
    outcome = lake.land(job=JOB)
    outcome.expect_error("MalformedReply", "redirect", "WEBLAKE_BASE_URL")
    assert len(service.seen) == 1
    assert other_origin.url not in outcome.out + outcome.err
    assert "canary" not in (outcome.out + outcome.err).replace(KEY, "")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("skip", [0, 2])
def test_h15_no_redirect_of_any_kind_is_followed(
    service: ScriptedService, other_origin: ScriptedService, lake: Lake, status: int, skip: int
) -> None:
    job = Job(service, pages(4), cut=2)
    job.always(skip, reply("", status, location=f"{other_origin.url}{job.path}?skip={skip}"))
    lake.land(job=JOB).expect_error("MalformedReply", "redirect", "WEBLAKE_BASE_URL")


@pytest.mark.parametrize(
    "text", [":smile: :100:", "[bold]x[/bold] [/]", "[link=http://x.test]y[/link]", "\\[red]", "{0} %s"]
)
def test_the_error_text_of_the_service_is_shown_unchanged(service: ScriptedService, lake: Lake, text: str) -> None:
    service.on(f"GET /v2/batch/scrape/{JOB}", reply({"success": False, "error": text}, 403))
    outcome = lake.land(job=JOB)
    outcome.expect_error("PermissionDenied", text)
    assert text in outcome.err
