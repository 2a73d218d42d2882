"""Tests of the verdict on each class of responses to a start."""

from __future__ import annotations

import pytest

from weblake.api import responses
from weblake.api.start_responses import RESPONSES, Verdict, verdict
from weblake.api.steps import NoResponse, Response
from weblake.errors import MalformedReply, WeblakeError

JSON = b'{"success": false, "error": "no"}'

#: Answers, and what they are evidence of; written down apart from the table in the code.
CASES: dict[str, tuple[Response | NoResponse, Verdict]] = {}


def _response(status: int, body: bytes = JSON, **headers: str) -> Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, headers=sent, body=body, received_at=0.0)


for _status in (*range(300, 303), *range(304, 309)):
    CASES[str(_status)] = _response(_status), Verdict.REFUSED
CASES["303"] = _response(303), Verdict.STOPPED
for _status in (
    400,
    401,
    402,
    403,
    404,
    405,
    406,
    407,
    410,
    411,
    413,
    414,
    415,
    416,
    417,
    418,
    421,
    422,
    423,
    424,
    426,
    428,
    431,
    444,
    451,
    499,
):
    CASES[str(_status)] = _response(_status), Verdict.REFUSED
for _status in (408, 409, 425, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 525, 526, 529, 530, 599):
    CASES[str(_status)] = _response(_status), Verdict.OPEN
for _status in (501, 505, 511):
    CASES[str(_status)] = _response(_status), Verdict.REFUSED
CASES |= {
    "429": (_response(429, retry_after="3"), Verdict.LATER),
    "a 500 that says the page could not be scraped": (
        _response(500, b'{"success": false, "error": "no", "code": "SCRAPE_TIMEOUT"}'),
        Verdict.REFUSED,
    ),
    "a 503 that names what is not set up": (
        _response(503, b'{"success": false, "error": "no", "code": "BROWSER_NOT_CONFIGURED"}'),
        Verdict.REFUSED,
    ),
    "a 502 with such a code": (
        _response(502, b'{"success": false, "error": "no", "code": "BROWSER_NOT_CONFIGURED"}'),
        Verdict.OPEN,
    ),
    "200 with an error": (_response(200), Verdict.REFUSED),
    "200 and a login page": (_response(200, b"<html>", content_type="text/html; charset=utf-8"), Verdict.STOPPED),
    "200 and a page without a type": (_response(200, b"\n <!doctype html>"), Verdict.STOPPED),
    "200 and nothing": (_response(200, b""), Verdict.OPEN),
    "201 and a login page": (_response(201, b"<html>", content_type="text/html"), Verdict.STOPPED),
    "200 and a text": (_response(200, b"OK", content_type="text/plain"), Verdict.OPEN),
    "204": (_response(204, b""), Verdict.OPEN),
    "206": (_response(206, b'{"success": true'), Verdict.OPEN),
    "200 cut off": (_response(200, b'{"success": true, "id": "', content_type="application/json"), Verdict.OPEN),
    "a 502 of a proxy": (_response(502, b"<html>Bad Gateway</html>", content_type="text/html"), Verdict.OPEN),
    "refused connection": (NoResponse(reason="refused", sent=False, final=False), Verdict.LATER),
    "bad certificate": (NoResponse(reason="certificate", sent=False, final=True), Verdict.REFUSED),
    "reset after sending": (NoResponse(reason="reset", sent=True, final=False), Verdict.OPEN),
    "too large an answer": (NoResponse(reason="too large", sent=True, final=True), Verdict.OPEN),
}


def error_of(response: Response | NoResponse) -> WeblakeError:
    if isinstance(response, NoResponse) or not 200 <= response.status < 300:
        return responses.error_of(response, "start")
    try:
        responses.value_of(response, "start")
    except WeblakeError as error:
        return error
    return MalformedReply("start: the service answered without a job id.")


@pytest.mark.parametrize("case", CASES)
def test_a_response_to_a_start_gives_the_documented_verdict(case: str) -> None:
    response, expected = CASES[case]
    assert verdict(response, error_of(response)) is expected


def test_every_row_of_the_verdict_table_is_used() -> None:
    decided = {
        next(row.name for row in RESPONSES if row.fits(response, error_of(response))) for response, _ in CASES.values()
    }
    assert decided == {row.name for row in RESPONSES}


def test_every_status_has_a_verdict() -> None:
    for status in range(200, 600):
        response = _response(status)
        verdict(response, error_of(response))
