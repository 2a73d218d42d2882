"""Decodes untrusted JSON: for any bytes that the service sends, the only error is MalformedReply.

Valid JSON is decoded by msgspec. A response that msgspec refuses as a whole is split into its members, each of which is
then read alone, by msgspec or by the standard library, so that one bad document does not affect the other documents of
its chunk. Parts of JSON are `msgspec.Raw`: views of the response body, which must not change.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from weblake.errors import MalformedReply

#: Types of JSON text. A Raw is also a buffer: bytes(raw) copies it, memoryview(raw) does not.
JsonBytes = bytes | bytearray | memoryview | Raw

#: Maximum bytes of a response in which a head is searched. For a longer head the response is read to its end.
MAX_HEAD_BYTES = 64 << 10

#: All errors that msgspec raises for a text that it refuses.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_fields = msgspec.json.Decoder(dict[str, object]).decode
_HINT = "Try again; if it stays so, check that the base URL names the service, and that no proxy or login page answers."
_BOM = b"\xef\xbb\xbf"
_EMPTY_ARRAY = memoryview(b"[]")
_SPACE = b" \t\n\r"
_DATA = re.compile(rb'"data"[ \t\n\r]*+:[ \t\n\r]*+')
#: The beginning of a value of `data`: without an element, or with one.
_DATA_VALUE = re.compile(rb"(\[[ \t\n\r]*+\]|null[ \t\n\r]*+[,}])|\[[ \t\n\r]*+[^ \t\n\r]")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # possessive: no backtracking, so no memory per escape
_TOKEN = re.compile(_STRING + rb'|[\[\]{},"]', re.DOTALL)
_NAME = re.compile(rb"[ \t\n\r]*+(" + _STRING + rb")[ \t\n\r]*+:", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _integer(digits: str) -> int | None:
    with contextlib.suppress(ValueError):  # more digits than Python converts
        return int(digits)
    return None


_lenient = json.JSONDecoder(strict=False, parse_float=_finite, parse_int=_integer, parse_constant=lambda _: None).decode


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


@dataclass(frozen=True, slots=True)
class Chunk:
    """One status response of a job: its undecoded documents, and its other fields."""

    #: All top-level fields except `data`, decoded.
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

    A byte order mark is skipped; invalid UTF-8 and lone surrogates become U+FFFD; NaN, Infinity and a number that
    Python cannot represent become None. Raises MalformedReply for text that is not JSON or is nested too deeply for a
    Python value.
    """
    view = _without_bom(body)
    with contextlib.suppress(*DECODE_ERRORS):
        return msgspec.json.decode(view)
    return msgspec.json.decode(repair(view))


def repair(body: JsonBytes) -> bytes:
    """Return what the standard library reads of a JSON text, as JSON that strict parsers accept; raises as `loads`.

    Invalid UTF-8 and lone surrogates become U+FFFD; NaN, Infinity and numbers that Python cannot represent become null.
    """
    try:
        value = _lenient(bytes(_without_bom(body)).decode(errors="replace"))
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except ValueError as e:
        raise _malformed_error(body, str(e)) from None
    except RecursionError:
        raise _malformed_error(body, "it is nested too deeply") from None
    return _SURROGATE.sub("\ufffd", text).encode()


def split_object(raw: JsonBytes) -> dict[str, Raw]:
    """Return the top-level fields of one JSON object, undecoded; of equal keys the last one is used.

    Raises MalformedReply if the text is not an object or is truncated. If msgspec refuses the text, the values of the
    fields are not validated: `loads` of each raises the error.
    """
    view = _without_bom(raw)
    with contextlib.suppress(*DECODE_ERRORS):
        return _object(view)
    fields = {}
    for member in _members(view, "{"):
        name = _NAME.match(member)
        if name is None:
            raise _malformed_error(raw, "a field has no name")
        fields[str(loads(name[1]))] = Raw(bytes(member[name.end() :]).strip(_SPACE))
    return fields


def split_array(raw: JsonBytes) -> list[Raw]:
    """Return the elements of one JSON array, undecoded; raises as `split_object`."""
    view = _without_bom(raw)
    with contextlib.suppress(*DECODE_ERRORS):
        return _array(view)
    return [Raw(bytes(member).strip(_SPACE)) for member in _members(view, "[")]


def read_chunk(body: JsonBytes) -> Chunk:
    """Split a status response into its head and its documents.

    Raises MalformedReply if the body is truncated or not an object, or if `data` is not a list. If `data` is null or
    absent, there are no documents.
    """
    view = _without_bom(body)
    found = _before_data(view)
    tail = bytes(view[-64:])
    end = len(view) - len(tail) + len(tail.rstrip(_SPACE)) - 1
    with contextlib.suppress(*DECODE_ERRORS):
        if found is not None and view[end] == ord("}"):  # `data` is the last field, as usual: it is scanned once
            return Chunk(found[0], Documents.of_objects(view[found[1] : end]))
    fields = split_object(view)
    data = memoryview(fields.pop("data", _EMPTY_ARRAY))
    values = {name: loads(raw) for name, raw in fields.items()}
    return Chunk(values, Documents(() if bytes(data[:64]).strip(_SPACE) == b"null" else split_array(data)))


def read_head(body: JsonBytes) -> Head | None:
    """Return the head of a status response from its first bytes, or None if more bytes are needed.

    The head is known when `status` and the first character of the value of `data`, in this order, are in the bytes.
    Otherwise the whole body is needed. The result is also None for a body that is not a status response: `read_chunk`
    of the whole body raises the error.
    """
    # Copied, because a view that a traceback keeps alive would prevent a bytearray from being resized.
    begin = _without_bom(bytes(body[:MAX_HEAD_BYTES]))
    found = _before_data(begin)
    head = None
    if found is not None and "status" in found[0]:
        value = _DATA_VALUE.match(begin, found[1])
        head = value and Head(found[0], empty=value[1] is not None)
    if head is None and bytes(body[-64:]).rstrip().endswith(b"}"):
        with contextlib.suppress(MalformedReply):
            chunk = read_chunk(bytes(body))
            head = Head(chunk.head, not chunk.documents)
    return head


def excerpt(body: JsonBytes, characters: int = 120) -> str:
    """Return the first characters of a text for an error message, with unprintable ones escaped."""
    begins = bytes(memoryview(body)[: 4 * characters]).decode(errors="replace")[:characters]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in begins)


def _before_data(view: memoryview) -> tuple[dict[str, object], int] | None:
    """Return the decoded fields before the first `"data":`, and the start of its value; None if that is not possible.

    If the name is part of a value, the text before it is invalid JSON and is refused.
    """
    begin = bytes(view[:MAX_HEAD_BYTES])
    data = _DATA.search(begin)
    if data is None:
        return None
    front = begin[: data.start()].rstrip(_SPACE)
    follows = front.endswith(b",")
    try:
        fields = _fields((front[:-1] if follows else front) + b"}")
    except DECODE_ERRORS:
        return None
    return (fields, data.end()) if bool(fields) == follows else None


def _members(view: memoryview, opening: str) -> Iterator[memoryview]:
    """Yield the text of each member of a text that is one array or object, of any depth; raises as `split_object`.

    Only strings, commas and brackets are looked at: a member may be no JSON.
    """
    depth = start = members = 0
    for found in _TOKEN.finditer(view):
        at, mark = found.start(), chr(view[found.start()])
        if mark == '"' and found.end() == at + 1:
            break  # a string without an end
        if depth == 0 and (mark != opening or bytes(view[:at]).strip(_SPACE)):
            raise _malformed_error(view, f"it does not begin with {opening}")
        if mark in "[{":
            depth += 1
            start = start or at + 1
        elif mark == "," and depth == 1:
            yield view[start:at]
            start, members = at + 1, members + 1
        elif mark in "]}":
            depth -= 1
            if depth == 0 and bytes(view[at + 1 :]).strip(_SPACE):
                raise _malformed_error(view, f"it goes on after its end at byte {at + 1}")
            if depth == 0:
                if members or bytes(view[start:at]).strip(_SPACE):
                    yield view[start:at]
                return
    raise _malformed_error(view, "it ends too early")


def _without_bom(body: JsonBytes) -> memoryview:
    view = memoryview(body)
    return view[3:] if view[:3] == _BOM else view


def _malformed_error(body: JsonBytes, why: str) -> MalformedReply:
    return MalformedReply(
        f"The service sent JSON that cannot be read: {why}. It begins with: {excerpt(body) or '(nothing)'}", hint=_HINT
    )
