"""The `Operation` class, a request together with the decoder of its response, and the functions that build requests.

operations.py defines the operations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from weblake.api.options.values import file_name, uuid_problem
from weblake.api.steps import Request, Upload
from weblake.errors import InvalidOption

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Deadline of a start in seconds; a start returns only an id.
START_DEADLINE_S = 30.0
#: Deadline of a read in seconds.
READ_DEADLINE_S = 120.0
#: Seconds that are added to the timeout of the page or the code for the deadline of the call.
DEADLINE_MARGIN_S = 30.0
#: Milliseconds for a page and seconds for code if `timeout` is not given.
DEFAULT_PAGE_MS = 60_000
DEFAULT_CODE_S = 30.0


class Operation(msgspec.Struct, Generic[T_co], frozen=True):
    """One call of the contract: a request and the decoder of its response."""

    #: The contract's operationId in snake_case.
    name: str
    request: Request
    #: Converts the decoded JSON value to the typed response; never fails.
    decode: Callable[[object], T_co]
    #: Whether the request is idempotent.
    repeatable: bool


def read(
    name: str, path: str, decode: Callable[[object], T], query: Mapping[str, object] | None = None
) -> Operation[T]:
    """Return a GET operation; `query` has wire names."""
    pairs = tuple(
        (key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in (query or {}).items()
    )
    return Operation(name, Request("GET", path, query=pairs, deadline_s=READ_DEADLINE_S), decode, repeatable=True)


def delete(name: str, path: str, decode: Callable[[object], T]) -> Operation[T]:
    """Return a DELETE operation."""
    return Operation(name, Request("DELETE", path, deadline_s=READ_DEADLINE_S), decode, repeatable=True)


def post(
    name: str, path: str, decode: Callable[[object], T], body: Mapping[str, object], deadline_s: float = READ_DEADLINE_S
) -> Operation[T]:
    """Return a POST operation with a JSON body, which has wire names."""
    request = Request("POST", path, body=encode(body), deadline_s=deadline_s)
    return Operation(name, request, decode, repeatable=False)


def start(
    name: str, path: str, decode: Callable[[object], T], body: Mapping[str, object], key: str | None
) -> Operation[T]:
    """Return a POST that starts a paid job: short deadline, and the idempotency key if given."""
    if key is not None and (not isinstance(key, str) or uuid_problem(key)):
        raise InvalidOption(
            "`idempotency_key` is not a UUID, and services refuse any other text as a conflict.",
            hint="Give str(uuid.uuid4()), and the same one for the same intent.",
        )
    headers = () if key is None else (("x-idempotency-key", key),)
    request = Request("POST", path, body=encode(body), headers=headers, deadline_s=START_DEADLINE_S, paid=True)
    return Operation(name, request, decode, repeatable=False)


def upload(file: Path | str | bytes, filename: str | None, options: Mapping[str, object]) -> Upload:
    """Return a file as form data, with its options under wire names in a separate field.

    Raises:
        InvalidOption: The file does not exist, bytes have no name, or the file type is not supported (see
            options.values.file_name).
    """
    source, size = _source(file)
    if filename is None:
        if isinstance(source, bytes):
            raise InvalidOption("`file` is given as bytes, which have no name.", hint="Give `filename`, such as a.pdf.")
        filename = source.name
    fields = (("options", encode(options).decode()),) if options else ()
    return Upload(file_name(filename, size), source, fields)


def encode(body: Mapping[str, object]) -> bytes:
    """Return the JSON bytes of a request body."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def page_deadline(wire: Mapping[str, object]) -> float:
    """Return the deadline in seconds of a call with a `timeout` in milliseconds."""
    timeout = wire.get("timeout", DEFAULT_PAGE_MS)
    assert isinstance(timeout, int)
    return max(0, timeout) / 1000 + DEADLINE_MARGIN_S


def code_deadline(wire: Mapping[str, object]) -> float:
    """Return the deadline in seconds of a call with a `timeout` in seconds."""
    timeout = wire.get("timeout", DEFAULT_CODE_S)
    assert isinstance(timeout, int | float)
    return timeout + DEADLINE_MARGIN_S


def url_list(urls: Iterable[str]) -> object:
    """Return URLs as a list; a single text is returned unchanged, so that the option check reports it."""
    if isinstance(urls, str | bytes | Mapping) or not isinstance(urls, Iterable):
        return urls
    return list(urls)


def _source(file: Path | str | bytes) -> tuple[Path | bytes, int]:
    if isinstance(file, bytes | bytearray | memoryview):
        data = bytes(file)
        return data, len(data)
    if not isinstance(file, str | os.PathLike):
        raise InvalidOption(f"`file` is a {type(file).__name__}, not a path and not bytes.")
    path = Path(file)
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidOption(f"`file` cannot be read: {path}: {reason}.", hint="Check the path.") from None
    if not path.is_file():
        raise InvalidOption(f"`file` is no file: {path}.", hint="Give the path of one file.")
    return path, size
