"""Decodes untrusted JSON: for any bytes that the service sends, the only error is MalformedReply.

Valid JSON is decoded by msgspec. A text that msgspec refuses as a whole (one lone surrogate, one NaN, one document
nested too deeply for its recursion) is split by scanners without recursion, so that one bad document does not affect
the other documents of its chunk. Parts of JSON are `msgspec.Raw`: views of the response body, which must not change.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from weblake.api import json_scanner
from weblake.compat import re
from weblake.errors import MalformedReply

#: Types of JSON text. A Raw is also a buffer: bytes(raw) copies it, memoryview(raw) does not.
JsonBytes = bytes | bytearray | memoryview | Raw

#: Maximum bytes of a response in which a head is searched. For a longer head the response is read to its end.
MAX_HEAD_BYTES = 64 << 10

#: Maximum bytes before `data` that are decoded in one step.
MAX_PREFIX_BYTES = 4 << 10

#: All errors that msgspec raises for a text that it refuses.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_fields = msgspec.json.Decoder(dict[str, object]).decode
_HINT = "Try again; if it stays so, check that the base URL names the service, and that no proxy or login page answers."
_BOM = b"\xef\xbb\xbf"
_NULL = b"null"
_EMPTY_ARRAY = memoryview(b"[]")
_SPACE = b" \t\n\r"
_COLON = re.compile(rb"[ \t\n\r]*+:[ \t\n\r]*+")
_CONTROLS_TO_BLANKS = bytes.maketrans(bytes(range(0x20)), b" " * 0x20)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# An unterminated string matches up to the end of the text: searching again at each quote would take quadratic time.
_REPAIRABLE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|NaN|-?Infinity', re.DOTALL)
_ESCAPE = re.compile(
    rb"[\x00-\x1f]|\\(?:"
    rb"(?P<good>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|"
    rb'u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|["\\/bfnrt])|'
    rb"(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class Documents:
    """Sequence of the JSON texts of the elements of `data`, undecoded. An element may be any JSON value."""

    def __init__(self, texts: Sequence[JsonBytes]) -> None:
        #: The top-level fields of each element, if all elements are valid objects.
        self.objects: list[dict[str, Raw]] | None = None
        self._texts = texts
        self._array = _EMPTY_ARRAY

    @classmethod
    def of_objects(cls, array: memoryview) -> Documents:
        """Return the elements of an array of valid objects. It is scanned once; the texts are split on first access."""
        made = cls(())
        made._array, made.objects = array, _objects(array)
        return made

    def __len__(self) -> int:
        return len(self._texts if self.objects is None else self.objects)

    def __iter__(self) -> Iterator[JsonBytes]:
        return iter(self._split())

    def __getitem__(self, place: int) -> JsonBytes:
        return self._split()[place]

    def _split(self) -> Sequence[JsonBytes]:
        if len(self._texts) < len(self):
            self._texts = _array(self._array)
        return self._texts


_Split = Callable[[memoryview], Documents]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One status response of a job: its undecoded documents, and its other fields."""

    #: All top-level fields except `data`, decoded. Fields that cannot be decoded are left out.
    head: dict[str, object]
    documents: Documents


@dataclass(frozen=True, slots=True)
class Head:
    """The fields at the beginning of a status response."""

    #: The top-level fields before `data`; all fields except `data` if the whole body was read.
    fields: dict[str, object]
    #: Whether `data` has no element, is null or is absent.
    empty: bool


def loads(body: JsonBytes) -> object:
    """Return the value of a JSON text.

    A byte order mark is skipped; invalid UTF-8 and lone surrogates become U+FFFD; NaN and Infinity become None; a
    number that Python cannot represent becomes an infinite float. Raises MalformedReply for text that is not JSON or is
    nested too deeply for a Python value.
    """
    view = _without_bom(body)
    with contextlib.suppress(*DECODE_ERRORS):
        return msgspec.json.decode(view)
    try:
        value: object = json.loads(repair(view), parse_int=_parse_integer)
    except ValueError as e:
        raise _malformed_error(body, str(e)) from None
    except RecursionError:
        raise _malformed_error(body, "it is nested too deeply") from None
    return value


def repair(body: JsonBytes) -> bytes:
    """Return the JSON text with the defects repaired that strict parsers refuse.

    Invalid UTF-8 and lone surrogate escapes become U+FFFD, NaN and Infinity become null, a control character inside a
    string becomes its escape, and a backslash of an invalid escape becomes an escaped backslash. The text is otherwise
    unchanged; without a defect it is equal to `body` (except for a byte order mark).
    """
    text = bytes(_without_bom(body))
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    return _REPAIRABLE.sub(_repair_token, text)


def is_json(text: JsonBytes) -> bool:
    """Return whether this is exactly one valid JSON value, of any depth; text that is not UTF-8 may be accepted."""
    try:
        msgspec.json.decode(text, type=Raw)
    except RecursionError:
        return json_scanner.is_json(memoryview(text))
    except msgspec.DecodeError:
        return False
    return True


def split_object(raw: JsonBytes) -> dict[str, Raw]:
    """Return the top-level fields of one JSON object, undecoded; of equal keys the last one is used.

    Raises MalformedReply if the text is not an object or is truncated. If msgspec refuses the text, the values of the
    fields are not validated: use `is_json`.
    """
    view = _without_bom(raw)
    with contextlib.suppress(*DECODE_ERRORS):
        return _object(view)
    try:
        return {_decode_name(view[start:end]): Raw(view[at:to]) for start, end, at, to in json_scanner.fields(view)}
    except (json_scanner.Truncated, json_scanner.Malformed) as e:
        raise _malformed_error(raw, str(e)) from None


def split_array(raw: JsonBytes) -> list[Raw]:
    """Return the elements of one JSON array, undecoded; raises as `split_object`."""
    view = _without_bom(raw)
    with contextlib.suppress(*DECODE_ERRORS):
        return _array(view)
    try:
        return [Raw(view[start:end]) for start, end in json_scanner.elements(view)]
    except (json_scanner.Truncated, json_scanner.Malformed) as e:
        raise _malformed_error(raw, str(e)) from None


def read_chunk(body: JsonBytes) -> Chunk:
    """Split a status response into its head and its documents.

    Raises MalformedReply if the body is truncated or not an object, or if `data` is not a list. If `data` is null or
    absent, there are no documents.
    """
    view = _without_bom(body)
    with contextlib.suppress(*DECODE_ERRORS, json_scanner.Truncated, json_scanner.Malformed):
        return _data_last(view, Documents.of_objects)
    with contextlib.suppress(*DECODE_ERRORS, json_scanner.Truncated, json_scanner.Malformed):
        return _data_last(view, _by_text(_array))
    with contextlib.suppress(*DECODE_ERRORS):
        return _chunk(_object(view), _by_text(_array))
    with contextlib.suppress(*DECODE_ERRORS, json_scanner.Truncated, json_scanner.Malformed):
        return _data_last(view, _by_text(_array_by_mask))
    return _chunk(split_object(view), _by_text(split_array))


def read_head(body: JsonBytes) -> Head | None:
    """Return the head of a status response from its first bytes, or None if more bytes are needed.

    The head is known when `status` and the first character of the value of `data`, in this order, are in the bytes.
    Otherwise the whole body is needed. The result is also None for a body that is not a status response: `read_chunk`
    of the whole body raises the error.
    """
    head = None
    with contextlib.suppress(json_scanner.Truncated, json_scanner.Malformed):
        # Copied, because a view that a traceback keeps alive would prevent a bytearray from being resized.
        head = _prefix(_without_bom(bytes(body[:MAX_HEAD_BYTES])))
    if head is None and bytes(body[-64:]).rstrip().endswith(b"}"):
        with contextlib.suppress(MalformedReply):
            chunk = read_chunk(bytes(body))
            head = Head(chunk.head, not chunk.documents)
    return head


def excerpt(body: JsonBytes, characters: int = 120) -> str:
    """Return the first characters of a text for an error message, with unprintable ones escaped."""
    begins = bytes(memoryview(body)[: 4 * characters]).decode(errors="replace")[:characters]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in begins)


def _prefix(view: memoryview) -> Head | None:
    fields, at = _before_data(view)
    if at < 0 or "status" not in fields:
        return None
    if view[at] == ord("["):
        return Head(fields, empty=view[json_scanner.past_space(view, at + 1)] == ord("]"))
    if bytes(view[at : json_scanner.value_end(view, at)]) == b"null":
        return Head(fields, empty=True)
    return None


def _chunk(fields: dict[str, Raw], cut: _Split) -> Chunk:
    data = memoryview(fields.pop("data", _EMPTY_ARRAY))
    return Chunk(_values(fields), Documents(()) if data[:5] == _NULL else cut(data))


def _data_last(view: memoryview, cut: _Split) -> Chunk:
    """Return the chunk if `data` is the last field, the usual order: only `data` is scanned after the head."""
    fields, at = _before_data(view)
    tail = bytes(view[-64:])
    end = len(view) - len(tail) + len(tail.rstrip()) - 1
    if at < 0 or view[end] != ord("}"):
        raise json_scanner.Malformed
    return Chunk(fields, cut(view[at:end]))


def _by_text(cut: Callable[[memoryview], list[Raw]]) -> _Split:
    return lambda array: Documents(cut(array))


def _array_by_mask(view: memoryview) -> list[Raw]:
    """Return the elements of an array that msgspec refuses, at the speed of msgspec, by splitting a masked copy.

    The copy has the same length and brackets as the text, but no surrogates, control characters, NaN or Infinity, so
    its elements have the same offsets.
    """
    masked = bytes(view).translate(_CONTROLS_TO_BLANKS).replace(b"NaN", b"1e0").replace(b"Infinity", b"1e000000")
    elements, at = [], json_scanner.first_member(view, "[")
    for element in _array(_SURROGATE.sub(rb"\\u0000", masked)):
        end = at + memoryview(element).nbytes
        elements.append(Raw(view[at:end]))
        at = json_scanner.next_member(view, end, "]")
    return elements


def _before_data(view: memoryview) -> tuple[dict[str, object], int]:
    """Return the decoded fields before `data`, and the start of the value of `data`, or -1 without `data`."""
    return _decode_prefix_at_once(bytes(view[:MAX_PREFIX_BYTES])) or _decode_prefix_by_field(view)


def _decode_prefix_at_once(begin: bytes) -> tuple[dict[str, object], int] | None:
    """Return the same by decoding the text before the first `"data"` at once, or None if that is not possible.

    If the word is part of a value, the text before it is invalid JSON and is refused.
    """
    name = begin.find(b'"data"')
    value = _COLON.match(begin, name + 6)
    if name < 0 or value is None or value.end() == len(begin):
        return None
    front = begin[:name].rstrip(_SPACE)
    follows = front.endswith(b",")
    try:
        fields = _fields((front[:-1] if follows else front) + b"}")
    except DECODE_ERRORS:
        return None
    return None if "data" in fields or bool(fields) != follows else (fields, value.end())


def _decode_prefix_by_field(view: memoryview) -> tuple[dict[str, object], int]:
    fields: dict[str, Raw] = {}
    at = json_scanner.first_member(view, "{")
    while at >= 0:
        start, end, at = json_scanner.key(view, at)
        name = _decode_name(view[start:end])
        if name == "data":
            return _values(fields), at
        end = json_scanner.value_end(view, at)
        fields[name] = Raw(view[at:end])
        at = json_scanner.next_member(view, end, "}")
    return _values(fields), -1


def _values(fields: dict[str, Raw]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, raw in fields.items():
        with contextlib.suppress(MalformedReply):
            values[name] = loads(raw)
    return values


def _decode_name(text: memoryview) -> str:
    return str(loads(text))


def _repair_token(found: re.Match[bytes]) -> bytes:
    text = found[0]
    return _ESCAPE.sub(_repair_escape, text) if text[:1] == b'"' else b"null"


def _repair_escape(found: re.Match[bytes]) -> bytes:
    if found["good"]:
        return found[0]
    if found["lone"]:
        return rb"\ufffd"
    return b"".join(b"\\u%04x" % c if c < 0x20 else b"\\\\" if c == ord("\\") else bytes((c,)) for c in found[0])


def _parse_integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return -math.inf if digits[0] == "-" else math.inf


def _without_bom(body: JsonBytes) -> memoryview:
    view = memoryview(body)
    return view[3:] if view[:3] == _BOM else view


def _malformed_error(body: JsonBytes, why: str) -> MalformedReply:
    return MalformedReply(
        f"The service sent JSON that cannot be read: {why}. It begins with: {excerpt(body) or '(nothing)'}", hint=_HINT
    )
