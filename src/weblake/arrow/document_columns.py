"""Converts many documents to columns at once; the performance of a landing depends on this module.

Beyond its decoding, a document costs one entry in some lists. Free-form objects and unknown fields are not decoded:
their JSON text is stored unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import msgspec
import pyarrow as pa
from msgspec import Raw

from weblake.api import response_json
from weblake.arrow import arrays, fields, pages, schemas
from weblake.arrow.documents import Parsed

_METADATA = "metadata"
_KNOWN_FIELDS = {*fields.FIELDS, _METADATA}
#: Minimum average bytes of a text; shorter texts are decoded faster one by one.
MIN_MEAN_BYTES = 1 << 10
_UNCONVERTED_TYPES = {str, type(None)}


def columns(documents: Sequence[Parsed]) -> dict[str, arrays.Values]:
    """Return the columns of the documents; a column that is not in the result is null.

    A value that does not fit its column goes to the column `extra`. Raises UnicodeDecodeError if a document holds bytes
    that are not UTF-8.
    """
    there = set[str]().union(*(document.fields for document in documents))
    raws = {
        fields.TEXT_COLUMNS[name]: [document.fields.get(name) for document in documents]
        for name in fields.TEXT_COLUMNS.keys() & there
    }
    texts = text_columns(raws, schemas.DOCUMENTS)
    names = there & (fields.FIELDS.keys() if texts is None else fields.FIELDS.keys() - fields.TEXT_COLUMNS.keys())
    made: dict[str, arrays.Values] = {
        "repaired": [document.repaired for document in documents],
        "page_key": [pages.key_of(document.source_url, document.url) for document in documents],
    }
    misfits: dict[int, set[str]] = {}
    for name in names:
        column, read = fields.FIELDS[name]
        made[column] = _read(name, read, documents, misfits)
    made |= (texts or {}) | _metadata(documents)
    if misfits or not there <= _KNOWN_FIELDS or any(document.metadata is None for document in documents):
        made["extra"] = [_extra(document, misfits.get(row, ())) for row, document in enumerate(documents)]
    return made


def text_columns(
    values: Mapping[str, Sequence[response_json.JsonBytes | None]], schema: pa.Schema
) -> dict[str, pa.Array] | None:
    """Return these columns of the schema from JSON texts, which must be valid JSON except for their encoding.

    Arrow's JSON reader unescapes directly into a column, without the interpreter lock. As a Python string, the HTML of
    a page costs decoding, up to four times its bytes of memory, and encoding for Arrow.

    None becomes null. Return None instead of all columns if Arrow refuses one value (a lone surrogate, bytes that are
    not UTF-8, a value of another type than its column), or if the strings are too short to save time.
    """
    kinds = {name: schema.field(name).type for name in values}
    sizes = [
        memoryview(raw).nbytes
        for name, raws in values.items()
        if kinds[name] == pa.large_string()
        for raw in raws
        if raw is not None
    ]
    if not sizes or sum(sizes) < MIN_MEAN_BYTES * len(sizes):
        return None
    import pyarrow.json as reader  # importing costs a small job more than it saves

    separators = [b'{"%d":' % at if at == 0 else b',"%d":' % at for at in range(len(values))]
    parts: list[response_json.JsonBytes] = []
    for row in zip(*values.values(), strict=True):
        for separator, raw in zip(separators, row, strict=True):
            parts += (separator, b"null" if raw is None else raw)
        parts.append(b"}\n")
    lines = b"".join(parts)
    del parts
    try:
        read = reader.read_json(
            pa.BufferReader(lines),
            read_options=reader.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=reader.ParseOptions(
                explicit_schema=pa.schema([(str(at), kind) for at, kind in enumerate(kinds.values())])
            ),
        ).combine_chunks()
        read.validate(full=True)
    except pa.ArrowInvalid:
        return None
    made = {name: read.column(at).chunk(0) for at, name in enumerate(values)}
    # Lists of strings must not contain null, which Arrow accepts.
    return None if any(pa.types.is_list(kinds[name]) and made[name].values.null_count for name in made) else made


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
