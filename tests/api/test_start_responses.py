"""Each class of answers to a start, and what the table makes of it."""

from __future__ import annotations

import pytest

from weblake.api import responses
from weblake.api.start_responses import ANSWERS, Verdict, verdict
from weblake.errors import MalformedReply, WeblakeError
from weblake.steps import NoResponse, Response

JSON = b'{"success": false, "error": "no"}'

#: Answers, and what they are evidence of; written down apart from the table in the code.
CASES: dict[str, tuple[Response | NoResponse, Verdict]] = {}


def _reply(status: int, body: bytes = JSON, **headers: str) -> Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, headers=sent, body=body, wall=0.0)


for _status in (*range(300, 303), *range(304, 309)):
    CASES[str(_status)] = _reply(_status), Verdict.REFUSED
CASES["303"] = _reply(303), Verdict.STOPPED
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
    CASES[str(_status)] = _reply(_status), Verdict.REFUSED
for _status in (408, 409, 425, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 525, 526, 529, 530, 599):
    CASES[str(_status)] = _reply(_status), Verdict.OPEN
for _status in (501, 505, 511):
    CASES[str(_status)] = _reply(_status), Verdict.REFUSED
CASES |= {
    "429": (_reply(429, retry_after="3"), Verdict.LATER),
    "a 500 that says the page could not be scraped": (
        _reply(500, b'{"success": false, "error": "no", "code": "SCRAPE_TIMEOUT"}'),
        Verdict.REFUSED,
    ),
    "a 503 that names what is not set up": (
        _reply(503, b'{"success": false, "error": "no", "code": "BROWSER_NOT_CONFIGURED"}'),
        Verdict.REFUSED,
    ),
    "200 with an error": (_reply(200), Verdict.REFUSED),
    "200 and a login page": (_reply(200, b"<html>", content_type="text/html; charset=utf-8"), Verdict.STOPPED),
    "200 and a page without a type": (_reply(200, b"\n <!doctype html>"), Verdict.STOPPED),
    "200 and nothing": (_reply(200, b""), Verdict.OPEN),
    "201 and a login page": (_reply(201, b"<html>", content_type="text/html"), Verdict.STOPPED),
    "200 and a text": (_reply(200, b"OK", content_type="text/plain"), Verdict.OPEN),
    "204": (_reply(204, b""), Verdict.OPEN),
    "206": (_reply(206, b'{"success": true'), Verdict.OPEN),
    "200 cut off": (_reply(200, b'{"success": true, "id": "', content_type="application/json"), Verdict.OPEN),
    "a 502 of a proxy": (_reply(502, b"<html>Bad Gateway</html>", content_type="text/html"), Verdict.OPEN),
    "refused connection": (NoResponse(reason="refused", sent=False, final=False), Verdict.LATER),
    "bad certificate": (NoResponse(reason="certificate", sent=False, final=True), Verdict.REFUSED),
    "reset after sending": (NoResponse(reason="reset", sent=True, final=False), Verdict.OPEN),
    "too large an answer": (NoResponse(reason="too large", sent=True, final=True), Verdict.OPEN),
}


def error_of(reply: Response | NoResponse) -> WeblakeError:
    if isinstance(reply, NoResponse) or not 200 <= reply.status < 300:
        return responses.error_of(reply, "start")
    try:
        responses.value_of(reply, "start")
    except WeblakeError as error:
        return error
    return MalformedReply("start: the service answered without a job id.")


@pytest.mark.parametrize("case", CASES)
def test_an_answer_to_a_start_is_evidence_of(case: str) -> None:
    reply, expected = CASES[case]
    assert verdict(reply, error_of(reply)) is expected


def test_every_row_of_the_table_decides_some_answer() -> None:
    decided = {next(row.name for row in ANSWERS if row.fits(reply, error_of(reply))) for reply, _ in CASES.values()}
    assert decided == {row.name for row in ANSWERS}


def test_every_status_has_a_verdict() -> None:
    for status in range(200, 600):
        reply = _reply(status)
        verdict(reply, error_of(reply))
