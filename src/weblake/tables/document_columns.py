"""The columns of many documents at once: the hot path. Imports: documents, fields, schemas, texts, wire.

What one document costs beyond its decoding is a place in some lists. Open objects and unknown fields are never decoded
at all: their JSON text lands as it came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import TypeAlias

import msgspec
from msgspec import Raw

from weblake import wire
from weblake.tables import fields, schemas, texts
from weblake.tables.documents import Parsed

_METADATA = "metadata"
_KNOWN = {*fields.FIELDS, _METADATA}
#: The columns whose values stay as JSON until there is a batch of them, and those among them that any string fits.
LEFT = {column: read for column, read in fields.FIELDS.values() if read in fields.AT_ONCE}
TEXTS = {column: read for column, read in LEFT.items() if read is fields.as_it_is}
_PLAIN = {str, type(None)}
#: Such columns, as JSON.
Left: TypeAlias = Mapping[str, Sequence[Raw | None]]


def columns(documents: Sequence[Parsed], leave: Collection[str] = LEFT) -> tuple[dict[str, schemas.Values], Left]:
    """Returns what the documents say, by column, and those of the columns in `leave`, which `left_columns` makes.

    Any other column is null. Raises UnicodeDecodeError where a document holds bytes that are no UTF-8.
    """
    made: dict[str, schemas.Values] = {"repaired": [document.repaired for document in documents]}
    misfits: dict[int, set[str]] = {}
    there = set[str]().union(*(document.fields for document in documents))
    for name in there & fields.FIELDS.keys():
        column, read = fields.FIELDS[name]
        read = read if column in leave else fields.AT_ONCE.get(read, read)
        made[column] = _read(name, read, documents, misfits)
    left = {name: [raw if isinstance(raw, Raw) else None for raw in made.pop(name)] for name in leave if name in made}
    made |= _metadata(documents)
    if misfits or not there <= _KNOWN or any(document.metadata is None for document in documents):
        made["extra"] = [_extra(document, misfits.get(row, ())) for row, document in enumerate(documents)]
    return made, left


def left_columns(left: Left) -> Mapping[str, schemas.Values]:
    """Makes these columns, mostly while other threads run.

    Raises UnicodeDecodeError for what is no UTF-8, and one of fields.WRONG for a list of something else than strings.
    """
    made = texts.columns(left, schemas.DOCUMENTS)
    if made is not None:
        return made
    found: dict[str, schemas.Values] = {}
    for name, raws in left.items():
        read, fit = fields.AT_ONCE[LEFT[name]], fields.Fit()
        found[name] = [None if raw is None else read(raw, fit) for raw in raws]
    return found


def _read(name: str, read: fields.Reader, documents: Sequence[Parsed], misfits: dict[int, set[str]]) -> list[object]:
    """One field of all; where a column cannot say all that it says, its name is put among the misfits of its row."""
    fit = fields.Fit()
    with suppress(*fields.WRONG):  # as nearly always: all of them fit
        raws = [document.fields.get(name) for document in documents]
        values = [None if raw is None else read(raw, fit) for raw in raws]
        if fit.whole:
            return values
    values, fit = [], fields.Fit()
    for row, document in enumerate(documents):
        raw = document.fields.get(name)
        value: object = None
        if raw is not None:
            try:
                value = read(raw, fit)
            except fields.WRONG:
                fit.whole = False
            if not fit.whole:
                misfits.setdefault(row, set()).add(name)
                fit = fields.Fit()
        values.append(value)
    return values


def _metadata(documents: Sequence[Parsed]) -> dict[str, schemas.Values]:
    """The map of all keys, and the columns of those that have one."""
    made: dict[str, schemas.Values] = {}
    known = [document.metadata or {} for document in documents]
    there = set[str]().union(*known)
    for key, (column, read) in fields.PROMOTED.items():
        if key in there:
            try:
                values = [*map(itemgetter(key), known)]
            except KeyError:
                values = [values.get(key) for values in known]
            plain = read in fields.OF_TEXT and {*map(type, values)} <= _PLAIN
            made[column] = values if plain else [*map(read, values)]
    made[_METADATA] = [None if document.metadata is None else _verbatim(document) for document in documents]
    return made


def _verbatim(document: Parsed) -> Mapping[str, object]:
    """Strings as they are, anything else as the JSON text that came."""
    found: dict[str, str] = {}
    raws: Mapping[str, Raw] | None = None
    assert document.metadata is not None
    for key, value in document.metadata.items():
        kind = type(value)
        if kind is str or value is None:
            continue
        if kind is int and value:  # a zero may have had a sign
            found[key] = str(value)
        elif kind is bool:
            found[key] = "true" if value else "false"
        else:
            raws = raws or wire.split_object(document.fields[_METADATA])
            found[key] = fields.verbatim(raws[key])
    return {**document.metadata, **found}


def _extra(document: Parsed, misfits: Collection[str]) -> str | None:
    """The fields without a column, and those that their column cannot express, in the order in which they came."""
    left: set[str] = set()
    if misfits or not document.fields.keys() <= _KNOWN:
        left = {*misfits, *(document.fields.keys() - _KNOWN)}
    if document.metadata is None and not fields.is_null(document.fields.get(_METADATA, Raw(b"null"))):
        left.add(_METADATA)
    if not left:
        return None
    kept = ((name, raw) for name, raw in document.fields.items() if name in left)
    return "{" + ",".join(f"{_quoted(name)}:{fields.verbatim(raw)}" for name, raw in kept) + "}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
