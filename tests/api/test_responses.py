"""The typed error of each response that is not successful, and how long it asks the client to wait."""

from __future__ import annotations

import json

import pytest

from weblake import errors
from weblake.api.responses import error_of, is_still_working, retry_after_s, value_of
from weblake.api.steps import NoResponse, Response


def response(status: int, body: object = None, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, b"" if body is None else json.dumps(body).encode(), received_at=1000.0)


@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (200, None, errors.RequestRejected, "x: refused. The service says: no"),
        (302, None, errors.MalformedReply, "redirect (302)"),
        (400, None, errors.RequestRejected, "refused (400), the request is not valid"),
        (401, None, errors.AuthenticationFailed, "the API key was not accepted"),
        (402, None, errors.CreditsExhausted, "not enough credits"),
        (403, None, errors.PermissionDenied, "forbidden"),
        (404, None, errors.JobGone, "the service does not have it"),
        (404, "NOT_FOUND", errors.RequestRejected, "refused (404), not found"),
        (405, None, errors.RequestRejected, "refused (405), the service has no such operation"),
        (408, None, errors.ServiceUnavailable, "the service failed (408)"),
        (409, None, errors.RequestRejected, "refused (409), the state of the job or key forbids it"),
        (410, None, errors.JobGone, "the service does not have it"),
        (410, "EXPIRED", errors.JobGone, "the service does not have it"),
        (413, None, errors.RequestRejected, "refused (413), it is too large"),
        (418, None, errors.RequestRejected, "refused (418), the request is wrong"),
        (422, None, errors.RequestRejected, "refused (422), the request is not valid"),
        (425, None, errors.ServiceUnavailable, "the service failed (425)"),
        (429, None, errors.RateLimited, "the rate or concurrency limit is reached"),
        (500, None, errors.ServiceUnavailable, "the service failed (500)"),
        (503, "LLM_NOT_CONFIGURED", errors.FeatureMissing, "the service is not set up for this"),
        (503, "BUSY", errors.ServiceUnavailable, "the service failed (503)"),
    ],
)
def test_each_status_has_its_error(status: int, code: str | None, kind: type[Exception], text: str) -> None:
    found = error_of(response(status, {"success": False, "error": "no"} | ({"code": code} if code else {})), "x")
    assert type(found) is kind
    assert text in found.message
    assert (found.status, found.code) == (status, code)
    with pytest.raises(kind):
        value_of(response(status, {"success": False, "error": "no"} | ({"code": code} if code else {})), "x")


def test_the_code_of_a_service_is_one_short_line() -> None:
    code = error_of(response(400, {"success": False, "error": "no", "code": "A\n\x1b[2J" + "B" * 100}), "x").code
    assert code is not None
    assert code.isprintable()
    assert len(code) == 60


def test_the_status_of_a_failed_job_is_no_error() -> None:
    failed = {"success": False, "status": "failed", "error": "no"}
    assert value_of(response(200, failed), "x") == failed


@pytest.mark.parametrize(
    ("sent", "final", "kind"),
    [
        (True, True, errors.MalformedReply),
        (False, True, errors.AskPerson),
        (True, False, errors.ServiceUnreachable),
        (False, False, errors.ServiceUnreachable),
    ],
)
def test_a_missing_response_has_its_error(sent: bool, final: bool, kind: type[Exception]) -> None:
    assert type(error_of(NoResponse("odd", sent, final), "x")) is kind


DATE = "Thu, 01 Jan 1970 00:20:00 GMT"


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (response(429), None),
        (response(429, retry_after="7"), 7.0),
        (response(429, retry_after="-7"), 0.0),
        (response(429, retry_after="soon"), None),
        (response(429, retry_after=DATE), 200.0),
        (response(429, retry_after=DATE, date="Thu, 01 Jan 1970 00:19:00 GMT"), 60.0),
        (response(429, {"error": "retry after 9s", "details": {"retryAfterSeconds": 8}}), 8.0),
        (response(429, {"error": "Please retry after 9.5 s"}), 9.5),
        (response(429, {"error": "retry after 9s"}, retry_after="7"), 7.0),
    ],
)
def test_the_wait_that_a_response_asks_for(found: Response, seconds: float | None) -> None:
    assert retry_after_s(found) == seconds


@pytest.mark.parametrize(
    ("status", "state", "works"),
    [(408, "processing_continues", True), (408, "stopped", False), (504, "processing_continues", False)],
)
def test_a_timeout_may_say_that_the_work_continues(status: int, state: str, works: bool) -> None:
    assert is_still_working(response(status, {"success": False, "details": {"state": state}})) is works
    assert not is_still_working(response(status, {"success": False}))
