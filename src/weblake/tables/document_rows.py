"""Raw documents in, Arrow batches of the `documents` table out: the hot path. Imports: errors, fields, schemas, wire.

A document is parsed no further than to tell which one it is; only when the caller keeps it are its fields decoded, each
on its own. Open objects and unknown fields are never decoded at all: their JSON text lands as it came. A document that
the fast parser refuses takes a slow path of its own, and the others beside it do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
import pyarrow as pa
from msgspec import Raw

from weblake import wire
from weblake.errors import MalformedReply
from weblake.tables import fields, schemas

_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_anything = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document that can be a row, not decoded yet. It keeps the chunk alive that it was cut from."""

    raw: wire.JsonBytes
    fields: Mapping[str, Raw]
    #: None where metadata is absent, null or no object.
    metadata: Mapping[str, Raw] | None
    #: metadata.scrapeId, .sourceURL and .url, each None where it is no string.
    scrape_id: str | None
    source_url: str | None
    url: str | None
    #: Whether something had to be mended before it could be stored.
    repaired: bool = False

    @property
    def digest(self) -> bytes:
        """16 bytes of the SHA-256 of the JSON text as it came; computed at each call."""
        return hashlib.sha256(self.raw).digest()[:16]

    @property
    def identity(self) -> tuple[str | None, str | None, str | None, bytes]:
        """Which document this is: scrape_id, source_url, url, digest."""
        return self.scrape_id, self.source_url, self.url, self.digest


class DocumentBatches:
    """Turns the raw documents of one load into record batches of exactly `schemas.DOCUMENTS`.

    For each document: `parse` it, see whether it is wanted, `append` it. After each chunk, `flush` the batch.
    """

    def __init__(self, load_id: str, job_id: str, job_kind: str, loaded_at: datetime, *, position: int = 0) -> None:
        #: The position that the next document gets: how many were appended, where the first one got 0.
        self.position = position
        #: For each entry that cannot be a row, one short reason.
        self.malformed: list[str] = []
        #: JSON bytes of what was appended and not yet flushed. One batch holds less than 2 GB of each column.
        self.pending_bytes = 0
        self._entries = 0
        self._same = {"load_id": load_id, "job_id": job_id, "job_kind": job_kind, "loaded_at": loaded_at}
        self._rows: list[dict[str, object]] = []

    def parse(self, raw: wire.JsonBytes) -> Parsed | None:
        """Returns the document, or None where the entry is no JSON object: then `malformed` has one reason more."""
        self._entries += 1
        try:
            return parse(raw)
        except MalformedReply:
            self.malformed.append(f"entry {self._entries} is no JSON object: {wire.excerpt(raw, 60)}")
            return None

    def append(self, document: Parsed) -> int:
        """Decodes the document into the next row and returns its position."""
        try:
            row = _row(document)
        except UnicodeDecodeError:
            row = _row(_parse_odd(document.raw))
        position = self.position
        row["position"] = position
        row.update(self._same)
        self._rows.append(row)
        self.pending_bytes += memoryview(document.raw).nbytes
        self.position = position + 1
        return position

    def flush(self) -> pa.RecordBatch:
        """Returns everything appended since the last call as one batch, which may have no row."""
        rows, self._rows, self.pending_bytes = self._rows, [], 0
        return schemas.record_batch(schemas.DOCUMENTS, rows)


def parse(raw: wire.JsonBytes) -> Parsed:
    """Returns the document in this JSON text; raises MalformedReply where it is no JSON object."""
    try:
        return _parsed(raw, _fields_of(raw), repaired=False)
    except wire.REFUSALS:
        return _parse_odd(raw)


def _parse_odd(raw: wire.JsonBytes) -> Parsed:
    mended = wire.mend(raw)
    split = wire.split_object(mended)
    if not all(wire.is_json(value) for value in split.values()):
        raise MalformedReply("A document is no JSON.")
    return _parsed(raw, split, repaired=mended != bytes(raw))


def _parsed(raw: wire.JsonBytes, split: dict[str, Raw], *, repaired: bool) -> Parsed:
    found = split.get("metadata")
    metadata = None
    if found is not None:
        try:
            metadata = wire.split_object(found)
        except MalformedReply:  # no object: it stands in `extra`
            metadata = None
    known = metadata or {}
    names = (_name(known.get("scrapeId")), _name(known.get("sourceURL")), _name(known.get("url")))
    return Parsed(raw, split, metadata, *names, repaired)


def _name(raw: Raw | None) -> str | None:
    try:
        return None if raw is None else fields.text(raw)
    except fields.WRONG:
        return None


def _row(document: Parsed) -> dict[str, object]:
    row: dict[str, object] = {"repaired": document.repaired}
    extra: dict[str, Raw] = {}
    for name, raw in document.fields.items():
        reader = fields.FIELDS.get(name)
        if reader is None:
            if name != "metadata" or (document.metadata is None and not fields.is_null(raw)):
                extra[name] = raw
            continue
        fit = fields.Fit()
        try:
            row[reader[0]] = reader[1](raw, fit)
        except fields.WRONG:
            fit.whole = False
        if not fit.whole:
            extra[name] = raw
    if document.metadata is not None:
        _read_metadata(document.metadata, row)
    if extra:
        row["extra"] = "{" + ",".join(f"{_quoted(name)}:{fields.verbatim(raw)}" for name, raw in extra.items()) + "}"
    return row


def _read_metadata(metadata: Mapping[str, Raw], row: dict[str, object]) -> None:
    texts: dict[str, str | None] = {}
    for key, raw in metadata.items():
        try:
            value = _anything(raw)
        except (msgspec.DecodeError, RecursionError):
            value = _odd_value(raw)
        texts[key] = value if value is None or type(value) is str else fields.verbatim(raw)
        promoted = fields.PROMOTED.get(key)
        if promoted is not None:
            row[promoted[0]] = promoted[1](value)
    row["metadata"] = texts


def _odd_value(raw: Raw) -> object:
    """A value with a number or a depth that msgspec refuses; something that is no JSON type where nothing reads it."""
    try:
        return wire.loads(raw)
    except MalformedReply:
        pass
    try:
        return [_name(item) for item in wire.split_array(raw)]  # too deep for a value: a list's strings can be told
    except MalformedReply:
        return ...


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
