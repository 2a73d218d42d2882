"""The table that maps each response to a start to a verdict about the job.

A POST that costs money may have started a job even if the response does not name one: a proxy may answer 502 or 504 for
a service that accepted the request, and the connection may break afterwards. Such a response is not evidence that
nothing was started. Evidence is a refusal by the service before it accepts the request (its own 4xx), proof that the
request did not reach it (a refused connection, a redirect, 405, 501), and 429. The reason for each row is in
docs/decisions/046-start-response-verdicts.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from weblake.api.steps import NoResponse, Response
from weblake.errors import FeatureMissing, MalformedReply, WeblakeError


class Verdict(Enum):
    """What is known after a response to a start, and what to do next."""

    #: Nothing was started, and the same request would get the same response: fail immediately.
    REFUSED = "refused"
    #: Nothing was started, and the same request may be sent again later.
    LATER = "later"
    #: A job may have been started: search for it, and start again only if there is none.
    OPEN = "open"
    #: A job may have been started, and the same request would get the same response: fail; the next run searches.
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Row:
    """One class of responses and its verdict."""

    name: str
    fits: Callable[[Response | NoResponse, WeblakeError], bool]
    verdict: Verdict


def _status(*statuses: int | range) -> Callable[[Response | NoResponse, WeblakeError], bool]:
    known = frozenset(each for one in statuses for each in (one if isinstance(one, range) else (one,)))
    return lambda response, error: isinstance(response, Response) and response.status in known


def _no_response(*, sent: bool, final: bool) -> Callable[[Response | NoResponse, WeblakeError], bool]:
    return lambda response, error: isinstance(response, NoResponse) and (response.sent, response.final) == (sent, final)


def _scrape_failed(response: Response | NoResponse, error: WeblakeError) -> bool:
    return error.code is not None and error.code.startswith("SCRAPE_")


def _not_set_up(response: Response | NoResponse, error: WeblakeError) -> bool:
    return isinstance(error, FeatureMissing)


def _web_page(response: Response | NoResponse, error: WeblakeError) -> bool:
    """Return whether a successful response is a web page instead of JSON: a login page or a page of a proxy."""
    if not isinstance(response, Response) or not 200 <= response.status < 300 or not isinstance(error, MalformedReply):
        return False
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml") or bytes(response.body[:64]).lstrip()[:1] == b"<"


def _unreadable(response: Response | NoResponse, error: WeblakeError) -> bool:
    return isinstance(response, Response) and 200 <= response.status < 300 and isinstance(error, MalformedReply)


def _any(response: Response | NoResponse, error: WeblakeError) -> bool:
    return True


#: All classes of responses that name no job; the first row that fits decides.
RESPONSES: tuple[Row, ...] = (
    Row(
        "no connection: refused, no such host, or no time left to send",
        _no_response(sent=False, final=False),
        Verdict.LATER,
    ),
    Row("no connection: a certificate that is not valid", _no_response(sent=False, final=True), Verdict.REFUSED),
    Row("connection broken or deadline passed after sending", _no_response(sent=True, final=False), Verdict.OPEN),
    Row("a response that is too large or in another encoding", _no_response(sent=True, final=True), Verdict.OPEN),
    Row("code SCRAPE_…: the page itself could not be scraped", _scrape_failed, Verdict.REFUSED),
    Row("2xx and a web page: a login page in front of the service", _web_page, Verdict.STOPPED),
    Row("2xx without a job id: empty, truncated or not JSON", _unreadable, Verdict.OPEN),
    Row("2xx with `success: false`", _status(range(200, 300)), Verdict.REFUSED),
    Row("303: the result is elsewhere, so something may have been done", _status(303), Verdict.STOPPED),
    Row("any other redirect: not accepted at this address", _status(range(300, 400)), Verdict.REFUSED),
    Row("429: rate or concurrency limit", _status(429), Verdict.LATER),
    Row("408, 425: a timeout of the service or of a proxy", _status(408, 425), Verdict.OPEN),
    Row("409: the idempotency key was used before, perhaps by this start", _status(409), Verdict.OPEN),
    Row("any other 4xx: the service's own refusal", _status(range(400, 500)), Verdict.REFUSED),
    Row("503 with a code that names what is not set up", _not_set_up, Verdict.REFUSED),
    Row("501, 505: the server does not support such requests", _status(501, 505), Verdict.REFUSED),
    Row("511: a network that requires a login", _status(511), Verdict.REFUSED),
    Row(
        "any other 5xx: may be the response of a proxy, while the service has accepted the request", _any, Verdict.OPEN
    ),
)


def verdict(response: Response | NoResponse, error: WeblakeError) -> Verdict:
    """Return the verdict of the first row of RESPONSES that fits a response to a start.

    Args:
        response: The response, or the reason why there is none.
        error: The typed error of the response.
    """
    return next(row.verdict for row in RESPONSES if row.fits(response, error))
