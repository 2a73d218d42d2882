"""Converts a response to its value or to the typed error that it stands for. Pure functions.

The contract defines the errors by status and code. The HTTP status is read first: responses to cancel and `/errors`
have no `success`, and the status of a failed job has `success: false` although the response is not an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime

from weblake.api import response_json
from weblake.api.steps import NoResponse, Response
from weblake.credentials import one_line
from weblake.errors import (
    AskPerson,
    AuthenticationFailed,
    CreditsExhausted,
    FeatureMissing,
    JobGone,
    MalformedReply,
    PermissionDenied,
    RateLimited,
    Remedy,
    RequestRejected,
    ServiceUnavailable,
    ServiceUnreachable,
    WeblakeError,
)

#: The only fields of an error body: if a body with status 200 and `success: false` has no others, it is an error.
_ERROR_FIELDS = frozenset({"success", "error", "code", "details", "message", "warning", "requestId"})
_RETRY_AFTER_TEXT = re.compile(r"retry after (\d{1,9}(?:\.\d+)?)\s*s", re.IGNORECASE)
_NOT_CONFIGURED = re.compile(r"NOT_CONFIGURED|DISABLED|NOT_ENABLED")
_REASONS = {
    400: "the request is not valid",
    404: "not found",
    405: "the service has no such operation",
    409: "the state of the job or key forbids it",
    413: "it is too large",
    422: "the request is not valid",
}


def value_of(response: Response, what: str) -> object:
    """Return the decoded JSON of a successful response.

    Raises:
        WeblakeError: The typed error of any other response; `what` names the operation in its message.
    """
    if not 200 <= response.status < 300:
        raise error_of(response, what)
    value = response_json.loads(bytes(response.body))
    if isinstance(value, dict) and is_error_body(value):
        raise error_of(response, what)
    return value


def is_error_body(fields: Mapping[str, object]) -> bool:
    """Return whether these fields of a response are an error at any HTTP status; a failed job's status is not."""
    return fields.get("success") is False and set(fields) <= _ERROR_FIELDS


def error_of(response: Response | NoResponse, what: str) -> WeblakeError:
    """Return the typed error for a missing response or one that is not successful."""
    if isinstance(response, NoResponse):
        if response.final and response.sent:
            return MalformedReply(f"{what}: {response.reason}.", hint=response.hint)
        if response.final:
            return AskPerson(
                f"{what}: {response.reason}.",
                hint=response.hint
                or Remedy(
                    "Check {base_url} and this machine's clock; a certificate authority of your own goes into "
                    "{ca_bundle}."
                ),
            )
        return ServiceUnreachable(
            f"{what}: {response.reason}.", hint=Remedy("Check {base_url} and that the service is up.")
        )
    text, code, _ = _error_fields(response)
    error = _error_by_status(response, what, f" The service says: {text}" if text else "", code)
    error.status, error.code = response.status, code
    return error


def _error_by_status(response: Response, what: str, detail: str, code: str | None) -> WeblakeError:
    status = response.status
    if 300 <= status < 400:
        return MalformedReply(
            f"{what}: the service answered with a redirect ({status}), and a key is never sent after one.",
            hint=Remedy("Set {base_url} to the address that the service itself uses."),
        )
    if status == 401:
        return AuthenticationFailed(f"{what}: the API key was not accepted.{detail}", hint=Remedy("Check {api_key}."))
    if status == 402:
        return CreditsExhausted(f"{what}: not enough credits.{detail}", hint="Add credits, or ask for less.")
    if status == 403:
        return PermissionDenied(f"{what}: forbidden.{detail}", hint="Check the team and the target.")
    if status == 429:
        return RateLimited(
            f"{what}: the rate or concurrency limit is reached.{detail}", retry_after=retry_after_s(response)
        )
    if status == 503 and code is not None and _NOT_CONFIGURED.search(code):
        return FeatureMissing(f"{what}: the service is not set up for this.{detail}")
    if status == 410 or (status == 404 and code is None):
        return JobGone(
            f"{what}: the service does not have it: unknown, expired, or of another team.{detail}",
            hint=Remedy("Results are kept for about a day; check the id, {api_key} and {base_url}."),
        )
    if status in (408, 425) or status >= 500:
        return ServiceUnavailable(
            f"{what}: the service failed ({status}).{detail}", retry_after=retry_after_s(response)
        )
    if status < 300:
        return RequestRejected(f"{what}: refused.{detail}")
    return RequestRejected(f"{what}: refused ({status}), {_REASONS.get(status, 'the request is wrong')}.{detail}")


def retry_after_s(response: Response) -> float | None:
    """Return the seconds that the service asks the client to wait, or None.

    Read in this order: Retry-After in seconds or as a date (relative to the Date of the response if it has one, so that
    a wrong local clock has no effect), `details.retryAfterSeconds`, "retry after Ns" in the text.
    """
    header = response.headers.get("retry-after", "").strip()
    text, _, details = _error_fields(response)
    named = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    told = _RETRY_AFTER_TEXT.search(text)
    for seconds in (_seconds(header), _seconds_until(header, response), _seconds(str(named)), told and float(told[1])):
        if seconds is not None:
            return max(0.0, seconds)
    return None


def is_still_working(response: Response) -> bool:
    """Return whether a 408 says that the work continues, so that repeating the request joins it."""
    if response.status != 408:
        return False
    details = _error_fields(response)[2]
    return isinstance(details, dict) and details.get("state") == "processing_continues"


def _error_fields(response: Response) -> tuple[str, str | None, object]:
    """Return the text, code and details of an error body; empty values if it is not JSON, such as a proxy's HTML."""
    try:
        body = response_json.loads(bytes(response.body)) if response.body else {}
    except MalformedReply:
        return "", None, None
    if not isinstance(body, Mapping):
        return "", None, None
    text, code = body.get("error"), body.get("code")
    text = one_line(text) if isinstance(text, str) else ""
    return text, one_line(code, 60) if isinstance(code, str) and code else None, body.get("details")


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[+-]?\d{1,12}(\.\d{1,9})?", text) else None


def _seconds_until(text: str, response: Response) -> float | None:
    then = http_date(text)
    base = http_date(response.headers.get("date", ""))
    return None if then is None else then - (response.received_at if base is None else base)


def clock_ahead_s(response: Response) -> float | None:
    """Return by how many seconds the service's clock is ahead of this machine's, or None without a valid `Date`.

    It may be up to the duration of the request and a second too small, because a date of HTTP has whole seconds.
    """
    at = http_date(response.headers.get("date", ""))
    return None if at is None else at - response.received_at


def http_date(text: str) -> float | None:
    """Return a date of a header in seconds since the epoch, or None; a date without a time zone is UTC, as in HTTP."""
    try:
        then = parsedate_to_datetime(text)
        return (then if then.tzinfo else then.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
