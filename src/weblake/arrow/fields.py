"""Readers that convert each field of a document to the value of its column.

For a field of the wrong type the reader raises one of TYPE_ERRORS, and the caller keeps the JSON text in another
column. A struct keeps the parts that fit and reports through `Fit` that the value had more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial

import msgspec
from msgspec import Raw

from weblake.api import response_json
from weblake.errors import MalformedReply

#: The errors that a reader raises for a value of the wrong type.
TYPE_ERRORS = (msgspec.ValidationError, RecursionError, MalformedReply)

#: Return the string that a JSON text encodes, or None for null.
text: Callable[[response_json.JsonBytes], str | None] = msgspec.json.Decoder(str | None).decode
_texts: Callable[[response_json.JsonBytes], list[str] | None] = msgspec.json.Decoder(list[str] | None).decode


class Fit:
    """Output of a reader: whether the column value holds everything that the JSON value held."""

    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = True


#: Converts one JSON value to the Python value of its column; raises one of TYPE_ERRORS for another type.
Reader = Callable[[Raw, Fit], object]
Spec = Mapping[str, tuple[str, Reader]]


def is_null(raw: Raw) -> bool:
    """Return whether this JSON text is null."""
    return bytes(memoryview(raw)[:5]) == b"null"


def verbatim(raw: Raw) -> str:
    """Return the JSON text unchanged; raises UnicodeDecodeError if it is not UTF-8."""
    return str(raw, "utf-8")


def _read_text(raw: Raw, fit: Fit) -> str | None:
    return text(raw)


def _read_texts(raw: Raw, fit: Fit) -> list[str] | None:
    return _texts(raw)


def _read_json(raw: Raw, fit: Fit) -> str | None:
    return None if is_null(raw) else verbatim(raw)


def _read_text_or_json(raw: Raw, fit: Fit) -> str | None:
    try:
        return text(raw)
    except TYPE_ERRORS:
        return verbatim(raw)


def _read_object_json(raw: Raw, fit: Fit) -> str | None:
    found = _read_json(raw, fit)
    if found is not None and not found.startswith("{"):
        raise MalformedReply("Not an object.")
    return found


def _read_time(raw: Raw, fit: Fit) -> datetime | None:
    found = text(raw)
    if found is None:
        return None
    try:
        time = datetime.fromisoformat(found)
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        fit.complete = False
        return None


def _struct(spec: Spec) -> Reader:
    def read(raw: Raw, fit: Fit) -> dict[str, object] | None:
        return None if is_null(raw) else _read_struct(raw, spec, fit)

    return read


def _structs(spec: Spec) -> Reader:
    def read(raw: Raw, fit: Fit) -> list[dict[str, object]] | None:
        return None if is_null(raw) else [_read_struct(item, spec, fit) for item in response_json.split_array(raw)]

    return read


def _read_struct(raw: Raw, spec: Spec, fit: Fit) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, part in response_json.split_object(raw).items():
        reader = spec.get(name)
        if reader is None:
            fit.complete = False
            continue
        try:
            values[reader[0]] = reader[1](part, fit)
        except TYPE_ERRORS:
            fit.complete = False
    return values


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _as_first_text(value: object) -> str | None:
    if isinstance(value, list):
        return next((item for item in value if isinstance(item, str)), None)
    return _as_text(value)


def _as_texts(value: object) -> list[str] | None:
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def _as_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_int(value: object, bits: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    whole = round(value)  # an int may be too large for a float
    return whole if -(1 << bits - 1) <= whole < 1 << bits - 1 else None


def _as_status(value: object) -> int | None:
    if type(value) is int and 0 <= value < 1000:  # the usual case
        return value
    return None if isinstance(value, float) and not value.is_integer() else _as_int(value, 32)


_SCRAPE: Spec = {"url": ("url", _read_text), "html": ("html", _read_text)}
_JAVASCRIPT_RETURN: Spec = {"type": ("type", _read_text), "value": ("value", _read_json)}
_ACTIONS: Spec = {
    "screenshots": ("screenshots", _read_texts),
    "scrapes": ("scrapes", _structs(_SCRAPE)),
    "javascriptReturns": ("javascript_returns", _structs(_JAVASCRIPT_RETURN)),
    "pdfs": ("pdfs", _read_texts),
}
_CHANGE_TRACKING: Spec = {
    "previousScrapeAt": ("previous_scrape_at", _read_time),
    "changeStatus": ("change_status", _read_text),
    "visibility": ("visibility", _read_text),
    "diff": ("diff", _read_text_or_json),
    "json": ("json", _read_text_or_json),
}

#: The top-level fields that have a column: name of the column, and the reader.
FIELDS: Spec = {
    "markdown": ("markdown", _read_text),
    "summary": ("summary", _read_text),
    "html": ("html", _read_text),
    "rawHtml": ("raw_html", _read_text),
    "screenshot": ("screenshot", _read_text),
    "audio": ("audio", _read_text),
    "video": ("video", _read_text),
    "answer": ("answer", _read_text),
    "highlights": ("highlights", _read_text),
    "warning": ("warning", _read_text),
    "links": ("links", _read_texts),
    "images": ("images", _read_texts),
    "json": ("json", _read_json),
    "branding": ("branding", _read_object_json),
    "actions": ("actions", _struct(_ACTIONS)),
    "changeTracking": ("change_tracking", _struct(_CHANGE_TRACKING)),
}

#: The columns of long texts and of lists of texts, which Arrow reads faster, many at once (document_columns.py).
TEXT_COLUMNS = {
    name: column for name, (column, read) in FIELDS.items() if read in (_read_text, _read_texts) and name != "warning"
}

#: The metadata keys that have a column in addition to their entry in the map.
PROMOTED: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "url": ("url", _as_text),
    "sourceURL": ("source_url", _as_text),
    "scrapeId": ("scrape_id", _as_text),
    "statusCode": ("status_code", _as_status),
    "title": ("title", _as_first_text),
    "description": ("description", _as_first_text),
    "language": ("language", _as_first_text),
    "keywords": ("keywords", _as_first_text),
    "contentType": ("content_type", _as_first_text),
    "ogLocaleAlternate": ("og_locale_alternate", _as_texts),
    "error": ("error", _as_text),
    "concurrencyLimited": ("concurrency_limited", _as_bool),
    "concurrencyQueueDurationMs": ("concurrency_queue_duration_ms", partial(_as_int, bits=64)),
}
