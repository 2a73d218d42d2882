"""Converts many documents to columns at once; the performance of a landing depends on this module.

Beyond its decoding, a document costs one entry in some lists. Free-form objects and unknown fields are not decoded:
their JSON text is stored unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from typing import TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Raw

from weblake.api import response_json
from weblake.arrow import arrays, fields, pages, schemas, texts
from weblake.arrow.documents import Parsed

_METADATA = "metadata"
_KNOWN_FIELDS = {*fields.FIELDS, _METADATA}
#: Field name to (column, reader) of the columns whose values stay JSON text until the whole batch is decoded.
_DEFERRED_FIELDS = {
    name: (column, read) for name, (column, read) in fields.FIELDS.items() if read in fields.DEFERRED_READERS
}
_DEFERRED_READERS = dict(_DEFERRED_FIELDS.values())
_UNCONVERTED_TYPES = {str, type(None)}
#: The JSON texts of such columns, by column.
Deferred: TypeAlias = Mapping[str, Sequence[Raw | None]]


def columns(documents: Sequence[Parsed]) -> tuple[dict[str, arrays.Values], Deferred]:
    """Return the decoded columns of the documents, and the JSON texts from which `deferred_columns` makes the others.

    Columns in neither result are null. Raises UnicodeDecodeError if a document holds bytes that are not UTF-8.
    """
    there = _field_names(documents)
    left = {
        _DEFERRED_FIELDS[name][0]: [document.fields.get(name) for document in documents]
        for name in _DEFERRED_FIELDS.keys() & there
    }
    return _columns(documents, there, fields.FIELDS.keys() - _DEFERRED_FIELDS.keys()), left


def deferred_columns(left: Deferred) -> Mapping[str, arrays.Values]:
    """Return the columns of these JSON texts; most of the work runs without the interpreter lock.

    Raises UnicodeDecodeError for bytes that are not UTF-8, and one of fields.TYPE_ERRORS for a value that does not fit
    its column.
    """
    made = texts.columns(left, schemas.DOCUMENTS)
    if made is not None:
        return made
    fit = fields.Fit()
    return {
        name: [None if raw is None else _DEFERRED_READERS[name](raw, fit) for raw in raws]
        for name, raws in left.items()
    }


def all_columns(documents: Sequence[Parsed]) -> dict[str, arrays.Values]:
    """Return all columns of documents that may have fields that do not fit their columns; these go to `extra`."""
    return _columns(documents, _field_names(documents), fields.FIELDS.keys())


def _field_names(documents: Sequence[Parsed]) -> Set[str]:
    """Return the names of all fields that at least one document has."""
    return set[str]().union(*(document.fields for document in documents))


def _columns(documents: Sequence[Parsed], there: Set[str], names: Set[str]) -> dict[str, arrays.Values]:
    made: dict[str, arrays.Values] = {
        "repaired": [document.repaired for document in documents],
        "page_key": [pages.key_of(document.source_url, document.url) for document in documents],
    }
    misfits: dict[int, set[str]] = {}
    for name in there & names:
        column, read = fields.FIELDS[name]
        made[column] = _read(name, read, documents, misfits)
    made |= _metadata(documents)
    if misfits or not there <= _KNOWN_FIELDS or any(document.metadata is None for document in documents):
        made["extra"] = [_extra(document, misfits.get(row, ())) for row, document in enumerate(documents)]
    return made


def _read(name: str, read: fields.Reader, documents: Sequence[Parsed], misfits: dict[int, set[str]]) -> list[object]:
    """Return the values of one field; if a column cannot hold a value completely, the field is added to `misfits`."""
    fit = fields.Fit()
    with suppress(*fields.TYPE_ERRORS):  # the usual case: all values fit
        raws = [document.fields.get(name) for document in documents]
        values = [None if raw is None else read(raw, fit) for raw in raws]
        if fit.complete:
            return values
    values, fit = [], fields.Fit()
    for row, document in enumerate(documents):
        raw = document.fields.get(name)
        value: object = None
        if raw is not None:
            try:
                value = read(raw, fit)
            except fields.TYPE_ERRORS:
                fit.complete = False
            if not fit.complete:
                misfits.setdefault(row, set()).add(name)
                fit = fields.Fit()
        values.append(value)
    return values


def _metadata(documents: Sequence[Parsed]) -> dict[str, arrays.Values]:
    """Return the map column of all metadata keys, and the columns of the keys that have one."""
    made: dict[str, arrays.Values] = {_METADATA: _maps(documents)}
    known = [document.metadata or {} for document in documents]
    for key in set[str]().union(*known) & fields.PROMOTED.keys():
        column, read = fields.PROMOTED[key]
        made[column] = [read(value.get(key)) for value in known]
    return made


def _maps(documents: Sequence[Parsed]) -> pa.Array:
    """Return maps of strings, with the JSON text of other values."""
    shapes: list[arrays.Shape | None] = []
    items: list[str | None] = []
    #: Positions and keys of the values that are not strings, by the keys and value types of a document.
    places: dict[tuple[arrays.Shape, tuple[type, ...]], list[tuple[int, str]]] = {}
    for document in documents:
        if document.metadata is None:
            shapes.append(None)
            continue
        values = document.metadata.values()
        alike = tuple(document.metadata), tuple(map(type, values))
        odd = places.get(alike)
        if odd is None:
            pairs = enumerate(zip(*alike, strict=True))
            odd = places[alike] = [(at, key) for at, (key, kind) in pairs if kind not in _UNCONVERTED_TYPES]
        shapes.append(alike[0])
        begins = len(items)
        items += values  # type: ignore[arg-type]  # all are strings or None after the loop below
        raws: Mapping[str, Raw] = {}
        for at, key in odd:
            value: object = items[begins + at]
            if type(value) is int and value:  # not for 0, which may be -0 in the JSON text
                items[begins + at] = str(value)
            elif type(value) is bool:
                items[begins + at] = "true" if value else "false"
            else:
                raws = raws or response_json.split_object(document.fields[_METADATA])
                items[begins + at] = fields.verbatim(raws[key])
    kind = schemas.DOCUMENTS.field(_METADATA).type
    return arrays.map_array(kind, shapes, items)


def _extra(document: Parsed, misfits: Collection[str]) -> str | None:
    """Return the JSON of the fields without a column and those that do not fit their column, in original order."""
    left: set[str] = set()
    if misfits or not document.fields.keys() <= _KNOWN_FIELDS:
        left = {*misfits, *(document.fields.keys() - _KNOWN_FIELDS)}
    if document.metadata is None and not fields.is_null(document.fields.get(_METADATA, Raw(b"null"))):
        left.add(_METADATA)
    if not left:
        return None
    kept = ((msgspec.json.encode(name), raw) for name, raw in document.fields.items() if name in left)
    return "{" + ",".join(f"{name.decode()}:{fields.verbatim(raw)}" for name, raw in kept) + "}"
