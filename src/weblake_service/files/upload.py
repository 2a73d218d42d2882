"""Parses a multipart upload as it arrives, within limits.

A file that is not small is stored on disk, so that waiting uploads take no memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote_to_bytes

import msgspec
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from weblake_service.responses import ErrorResponse, bad_request

#: Maximum bytes of a file (50 MB), and of the form without the file.
MAX_FILE_BYTES, _MAX_FIELD_BYTES = 52_428_800, 1 << 20
#: Timeout of an upload in seconds.
_TIMEOUT_S = 600.0
#: Bytes and seconds for which an oversized upload is still read: a client whose connection is closed while it sends
#: cannot read the error.
_MAX_DRAINED_BYTES, _DRAIN_TIMEOUT_S = 256 << 20, 10.0
_PARTS = frozenset(["file", "options"])
_EXTENDED_NAME = re.compile(rb"filename\*=(?:utf-8|UTF-8)''([^;\s]+)")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file, in memory."""

    #: Its base name, whose extension gives the type.
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class UploadForm:
    """The content of a form; `close` deletes the file."""

    #: The file's base name, and its SHA-256 in hexadecimal.
    name: str
    digest: str
    #: The object in the field `options`, unvalidated.
    options: dict[str, object]
    content: BinaryIO

    def read(self) -> Upload:
        """Return the file, in memory."""
        self.content.seek(0)
        return Upload(self.name, self.content.read())

    def close(self) -> None:
        """Delete the file."""
        self.content.close()


class _FormParser(MultiPartParser):
    """Reads `filename*`, which some clients send for names with other letters than ASCII's, as `filename`."""

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        value = _EXTENDED_NAME.sub(lambda name: b'filename="%s"' % unquote_to_bytes(name[1]), data[start:end])
        super().on_header_value(value, 0, len(value))


async def read_form(request: Request) -> UploadForm:
    """Read the body of POST /v2/parse; its parts may be in any order.

    Raises:
        ErrorResponse: 400 for a malformed form, for no file or two, and for options that are not a JSON object; 413 for
            a file that is too large; 408 for a timeout.
    """
    kind, parameters = parse_options_header(request.headers.get("content-type"))
    boundary = parameters.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        bad_request("The body must be multipart/form-data with a boundary, with the file in its part `file`.")
    parser = _FormParser(
        request.headers, _limited(request, boundary), max_files=2, max_fields=3, max_part_size=_MAX_FIELD_BYTES
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            form = await parser.parse()
    except MultiPartException as error:
        if "maximum size" in error.message:
            raise ErrorResponse(413, f"A field has more than {_MAX_FIELD_BYTES} bytes.") from None
        bad_request(f"The form cannot be read: {error.message}")
    except ClientDisconnect:
        raise ErrorResponse(400, "The upload was broken off.", code="BAD_REQUEST") from None
    except TimeoutError:
        message = f"The file did not arrive within {_TIMEOUT_S:g} s. Send it again."
        raise ErrorResponse(408, message, code="TIMEOUT") from None
    try:
        return await _checked(form)
    except BaseException:
        await form.close()
        raise


async def _limited(request: Request, boundary: bytes) -> AsyncGenerator[bytes, None]:
    """Yield the body of a request; raise ErrorResponse if it is too large, or ends without the last boundary."""
    declared = request.headers.get("content-length", "")
    read, end = int(declared) if declared.isdigit() else 0, b""
    stream = request.stream()
    if read <= MAX_FILE_BYTES + _MAX_FIELD_BYTES:
        read = 0
        async for chunk in stream:
            read, end = read + len(chunk), (end + chunk)[-2 * len(boundary) - 100 :]
            if read > MAX_FILE_BYTES + _MAX_FIELD_BYTES:
                break
            yield chunk
        else:
            if b"--%s--" % boundary not in end:
                bad_request("The form breaks off: its last boundary is missing. Send it again.")
            return
    # A client that sent Expect has not sent the body yet.
    if "expect" not in request.headers:
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                drained = 0
                async for chunk in stream:
                    drained += len(chunk)
                    if drained > _MAX_DRAINED_BYTES:
                        break
    raise _too_large()


async def _checked(form: FormData) -> UploadForm:
    if unknown := sorted(set(form) - _PARTS):
        bad_request(f"{unknown[0][:60]!r} is not a part of this form: it has `file` and `options`.")
    for name, what in (("file", "parts `file`; one file is parsed at a time"), ("options", "fields `options`")):
        if len(form.getlist(name)) > 1:
            bad_request(f"The form has two {what}.")
    file = form.get("file")
    if file is None:
        bad_request("The form has no file: put it into the part `file`, with its name.")
    # Old browsers send a full path.
    given = (file.filename or "") if isinstance(file, UploadFile) else ""
    name = PurePosixPath(given.replace("\\", "/")).name.strip()
    if not isinstance(file, UploadFile) or not name:
        bad_request("The part `file` has no file name; its extension says what it is.")
    if (file.size or 0) > MAX_FILE_BYTES:
        raise _too_large()
    options = _read_options(form.get("options"))
    digest = await asyncio.to_thread(hashlib.file_digest, file.file, "sha256")  # type: ignore[arg-type]
    return UploadForm(name, digest.hexdigest(), options, file.file)


def _read_options(text: UploadFile | str | None) -> dict[str, object]:
    if not isinstance(text, str) or not text.strip():
        return {}
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        message = f"The field `options` is not valid JSON: {error}."
        raise ErrorResponse(400, message, code="BAD_REQUEST_INVALID_JSON", details=[{"message": message}]) from None
    if not isinstance(value, dict):
        bad_request("The field `options` must hold a JSON object.")
    return value


def _too_large() -> ErrorResponse:
    return ErrorResponse(
        413,
        f"The file is larger than {MAX_FILE_BYTES} bytes (50 MB), the most that is parsed. Split it.",
        code="FILE_TOO_LARGE",
    )
