"""Parses a multipart upload as it arrives, within limits.

A file that is not small is stored on disk, so that waiting uploads take no memory.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import unquote

import msgspec
from python_multipart.exceptions import FormParserError, MultipartParseError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header
from starlette.requests import ClientDisconnect, Request

from weblake import aio
from weblake_service.responses import ErrorResponse, bad_request

#: Maximum bytes of a file: 50 MB.
MAX_FILE_BYTES = 52_428_800
#: Maximum bytes of the form without the file.
_MAX_FIELD_BYTES = 1 << 20
#: Maximum bytes of a file that is kept in memory.
_MAX_IN_MEMORY_BYTES = 1 << 20
#: Timeout of an upload in seconds.
_TIMEOUT_S = 600.0
#: Bytes and seconds for which an oversized upload is still read: a client whose connection is closed while it sends
#: cannot read the error.
_MAX_DRAINED_BYTES, _DRAIN_TIMEOUT_S = 256 << 20, 10.0
_EXTENDED_NAME = re.compile(r"filename\*=(?:utf-8|UTF-8)''([^;\s]+)")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file, in memory."""

    #: Its base name, whose extension gives the type.
    name: str
    body: bytes


class UploadForm:
    """The content of a form; `close` deletes the file."""

    def __init__(
        self, name: str, digest: str, options: dict[str, object], content: tempfile.SpooledTemporaryFile[bytes]
    ) -> None:
        #: The file's base name.
        self.name = name
        #: SHA-256 of the file, in hexadecimal.
        self.digest = digest
        #: The object in the field `options`, unvalidated.
        self.options = options
        self._content = content

    def read(self) -> Upload:
        """Return the file, in memory."""
        self._content.seek(0)
        return Upload(self.name, self._content.read())

    def close(self) -> None:
        """Delete the file."""
        self._content.close()


async def read_form(request: Request) -> UploadForm:
    """Read the body of POST /v2/parse; its parts may be in any order, and unknown ones are ignored.

    Raises:
        ErrorResponse: 400 for a malformed form, for no file or two, and for options that are not a JSON object; 413 for
            a file that is too large; 408 for a timeout.
    """
    kind, parameters = parse_options_header(request.headers.get("content-type"))
    boundary = parameters.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        bad_request("The body must be multipart/form-data with a boundary, with the file in its part `file`.")
    reading = _FormReader()
    try:
        parser = MultipartParser(boundary, reading.callbacks())  # type: ignore[arg-type]
        async with aio.timeout(_TIMEOUT_S):
            await _feed(request, parser)
        if parser.state != MultipartState.END:
            bad_request("The form breaks off: its last boundary is missing. Send it again.")
        return reading.form()
    except (MultipartParseError, FormParserError) as error:
        reading.content.close()
        bad_request(f"The form cannot be read: {error}.")
    except ClientDisconnect:
        reading.content.close()
        raise ErrorResponse(400, "The upload was broken off.", code="BAD_REQUEST") from None
    except TimeoutError:
        reading.content.close()
        raise ErrorResponse(
            408, f"The file did not arrive within {_TIMEOUT_S:g} s. Send it again.", code="TIMEOUT"
        ) from None
    except BaseException:
        reading.content.close()
        raise


async def _feed(request: Request, parser: MultipartParser) -> None:
    declared = request.headers.get("content-length", "")
    stream = request.stream()
    try:
        if declared.isdigit() and int(declared) > MAX_FILE_BYTES + _MAX_FIELD_BYTES:
            raise _too_large()
        async for chunk in stream:
            parser.write(chunk)
    except ErrorResponse as refusal:
        # A client that sent Expect has not sent the body yet.
        if refusal.status == 413 and "expect" not in request.headers:
            heard = 0
            try:
                async with aio.timeout(_DRAIN_TIMEOUT_S):
                    async for chunk in stream:
                        heard += len(chunk)
                        if heard > _MAX_DRAINED_BYTES:
                            break
            except (TimeoutError, ClientDisconnect):
                pass
        raise


@dataclass(slots=True)
class _FormPart:
    """One part of a form during parsing."""

    headers: dict[str, str] = field(default_factory=dict)
    name: str = ""
    #: None for a part that is not a file.
    filename: str | None = None
    #: Its content, if it is not a file.
    data: bytearray = field(default_factory=bytearray)


class _FormReader:
    """A form during parsing."""

    def __init__(self) -> None:
        self.content: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY_BYTES)  # noqa: SIM115
        self._digest = hashlib.sha256()
        self._size = self._fields = 0
        self._filename: str | None = None
        self._options: bytes | None = None
        self._part = _FormPart()
        self._header = bytearray()
        self._value = bytearray()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
        }

    def form(self) -> UploadForm:
        if self._filename is None:
            bad_request("The form has no file: put it into the part `file`, with its name.")
        return UploadForm(self._filename, self._digest.hexdigest(), self._read_options(), self.content)

    def _read_options(self) -> dict[str, object]:
        if self._options is None or not self._options.strip():
            return {}
        try:
            value: object = msgspec.json.decode(self._options)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"The field `options` is not valid JSON: {error}."
            raise ErrorResponse(400, message, code="BAD_REQUEST_INVALID_JSON", details=[{"message": message}]) from None
        if not isinstance(value, dict):
            bad_request("The field `options` must hold a JSON object.")
        return value

    def _begin(self) -> None:
        self._part = _FormPart()

    def _header_end(self) -> None:
        self._part.headers[self._header.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._header.clear()
        self._value.clear()

    def _headers_end(self) -> None:
        disposition = self._part.headers.get("content-disposition", "")
        _, parameters = parse_options_header(disposition)
        self._part.name = parameters.get(b"name", b"").decode("utf-8", "replace")
        given = parameters.get(b"filename")
        extended = _EXTENDED_NAME.search(disposition)
        if given is not None:
            self._part.filename = _text(given)
        elif extended is not None:
            self._part.filename = unquote(extended[1], errors="replace")
        if self._part.name not in ("file", "options"):
            bad_request(f"{self._part.name[:60]!r} is not a part of this form: it has `file` and `options`.")
        if self._part.name == "file":
            self._begin_file()

    def _begin_file(self) -> None:
        if self._filename is not None:
            bad_request("The form has two parts `file`; one file is parsed at a time.")
        # Old browsers send a full path.
        bare = PurePosixPath((self._part.filename or "").replace("\\", "/")).name.strip()
        if not bare:
            bad_request("The part `file` has no file name; its extension says what it is.")
        self._filename = bare

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == "file":
            self._size += end - start
            if self._size > MAX_FILE_BYTES:
                raise _too_large()
            piece = data[start:end]
            self._digest.update(piece)
            self.content.write(piece)
            return
        self._fields += end - start
        if self._fields > _MAX_FIELD_BYTES:
            raise ErrorResponse(413, f"The form's fields hold more than {_MAX_FIELD_BYTES} bytes besides the file.")
        if self._part.name == "options":
            self._part.data += data[start:end]

    def _end(self) -> None:
        if self._part.name == "options":
            if self._options is not None:
                bad_request("The form has two fields `options`.")
            self._options = bytes(self._part.data)


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _too_large() -> ErrorResponse:
    return ErrorResponse(
        413,
        f"The file is larger than {MAX_FILE_BYTES} bytes (50 MB), the most that is parsed. Split it.",
        code="FILE_TOO_LARGE",
    )
