"""JSON responses, errors in the API's shape, and the reading of request bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NoReturn
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response

from weblake_service.page_failure import PageFailure

_ENCODER = msgspec.json.Encoder()
#: Maximum of integers in queries: no list has more entries, and SQLite's integers are limited.
_MAX_INTEGER = 10**12
#: The spellings of booleans in queries, in any case.
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "on": True, "off": False}
#: Maximum objects, lists and fields of a request: decoding them takes a third of a second.
_MAX_PARTS = 500_000


class ErrorResponse(Exception):
    """An error response: status, message, stable code, details."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        code: str | None = None,
        details: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.code = code
        self.details = details
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """Return the error body of the API."""
        body: dict[str, object] = {"success": False, "error": self.error}
        if self.code is not None:
            body["code"] = self.code
        if self.details is not None:
            body["details"] = self.details
        return body


def encode(value: object) -> bytes:
    """Return a value as JSON; characters that JSON cannot represent (lone surrogates) are replaced."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_check_storable(value))


def json_response(body: object, status: int = 200) -> Response:
    """Return a JSON response."""
    return encoded_json_response(encode(body), status)


def encoded_json_response(body: bytes, status: int = 200) -> Response:
    """Return a response with already encoded JSON."""
    return Response(body, status, media_type="application/json")


def error_response(refusal: ErrorResponse) -> Response:
    """Return the response for a refusal."""
    response = json_response(refusal.body(), refusal.status)
    response.headers.update(refusal.headers)
    return response


def failure_error(failure: PageFailure) -> ErrorResponse:
    """Return the error of a request that fails with its page, or because of its URL."""
    details = [{"message": failure.message}] if failure.status == 400 else None
    return ErrorResponse(failure.status, failure.message, code=failure.code, details=details)


def bad_request(message: str) -> NoReturn:
    """Refuse a request with invalid content."""
    raise ErrorResponse(400, message, code="BAD_REQUEST", details=[{"message": message}])


def not_found(what: str = "Job not found") -> NoReturn:
    """Refuse a request for something that does not exist, or belongs to another team."""
    raise ErrorResponse(404, what)


async def read_body(request: Request, limit: int, timeout_s: float = 300.0) -> bytes:
    """Return the body of a request.

    Raises:
        ErrorResponse: 413 as soon as it is known to exceed the limit; 408 after `timeout_s`; 400 if the client leaves.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise _too_large(limit)
    except ClientDisconnect:
        raise ErrorResponse(400, "The body was broken off.", code="BAD_REQUEST") from None
    except TimeoutError:
        raise ErrorResponse(408, f"The body did not arrive within {timeout_s:g} s.", code="TIMEOUT") from None
    return bytes(body)


async def read_object(request: Request, limit: int) -> dict[str, object]:
    """Return the JSON object in the body of a request; an empty one for no body, because all fields may be optional."""
    body = await read_body(request, limit)
    if sum(map(body.count, (b"[", b"{", b'":'))) > _MAX_PARTS:
        bad_request(f"The body has more than {_MAX_PARTS} objects, lists and fields. Send it in parts.")
    try:
        value: object = msgspec.json.decode(body) if body else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ErrorResponse(400, f"The body is not valid JSON: {error}.", code="BAD_REQUEST_INVALID_JSON") from None
    if not isinstance(value, dict):
        bad_request("The body must be a JSON object.")
    return value


def read_job_id(request: HTTPConnection, name: str = "id", *, unreadable: int = 400) -> str:
    """Return the job id in the path, in its canonical spelling.

    Raises:
        ErrorResponse: 400, or `unreadable` if the contract defines no 400; the id is malformed.
    """
    text = str(request.path_params[name])
    try:
        parsed = UUID(text)
    except ValueError:
        parsed = None
    if parsed is None or str(parsed) != text.lower():
        if unreadable == 404:
            not_found()
        raise ErrorResponse(400, "Invalid job ID", code="BAD_REQUEST", details=[{"message": "A job id is a UUID."}])
    return str(parsed)


def read_integer(request: Request, name: str, *, minimum: int, maximum: int | None, default: int | None) -> int | None:
    """Return a whole number from the query string, or the default if it is absent; a number over the maximum is
    reduced.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    number = int(text[: len(str(_MAX_INTEGER)) + 1]) if text.isascii() and text.isdigit() else -1
    number = min(number, _MAX_INTEGER)
    if number < minimum or (maximum is not None and number > maximum):
        bad_request(
            f"{name} must be a whole number from {minimum}" + (f" to {maximum}." if maximum is not None else ".")
        )
    return number


def read_boolean(request: Request, name: str) -> bool:
    """Return a boolean from the query string, in one of the usual spellings; False if it is absent."""
    text = request.query_params.get(name, "false")
    if text.lower() not in _BOOLEANS:
        bad_request(f"{name} is {text[:60]!a}, not one of {', '.join(_BOOLEANS)}.")
    return _BOOLEANS[text.lower()]


def _too_large(limit: int) -> ErrorResponse:
    return ErrorResponse(413, f"The body is larger than {limit} bytes.")


def _check_storable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_check_storable(key): _check_storable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_check_storable(entry) for entry in value]
    return value
