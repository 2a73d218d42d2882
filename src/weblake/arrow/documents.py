"""Parses one raw document as far as its identity requires.

A document that the fast parser refuses takes a slow path, which does not affect other documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from weblake.api import response_json
from weblake.errors import MalformedReply

_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_values_of = msgspec.json.Decoder(dict[str, object]).decode
_decode_any = msgspec.json.Decoder().decode


class Parsed(msgspec.Struct, gc=False):  # created in a tenth of the time of a dataclass
    """A parsed document. It keeps the chunk in memory that holds its JSON text."""

    #: The documents of its chunk, and its index among them.
    texts: response_json.Documents
    place: int
    #: The top-level fields, undecoded.
    fields: Mapping[str, Raw]
    #: The values in metadata; None if absent, null or not an object. A value that cannot be decoded is `...`.
    metadata: Mapping[str, object] | None
    #: metadata.scrapeId, .sourceURL and .url, each None if it is not a string, and the id also if it is empty.
    scrape_id: str | None
    source_url: str | None
    url: str | None
    #: Whether the JSON text had to be repaired before it could be stored.
    repaired: bool = False

    @property
    def raw(self) -> response_json.JsonBytes:
        """The original JSON text."""
        return self.texts[self.place]

    @property
    def digest(self) -> bytes:
        """The first 16 bytes of the SHA-256 of the original JSON text; computed at each access."""
        return hashlib.sha256(self.raw).digest()[:16]


def parse(texts: response_json.Documents, place: int) -> Parsed:
    """Return the document at an index of a chunk; raises MalformedReply if it is not a JSON object."""
    try:
        split = _fields_of(texts[place]) if texts.objects is None else texts.objects[place]
        return _build(texts, place, split, repaired=False)
    except response_json.DECODE_ERRORS:
        return parse_irregular(texts, place)


def parse_irregular(texts: response_json.Documents, place: int) -> Parsed:
    """Return the document with invalid UTF-8 replaced, or as the standard library reads it; raises as `parse`."""
    text = bytes(texts[place]).decode(errors="replace").encode()
    try:
        split = _fields_of(text)
    except response_json.DECODE_ERRORS:
        split = response_json.split_object(response_json.repair(text))
    return _build(texts, place, split, repaired=True)


def _build(texts: response_json.Documents, place: int, split: dict[str, Raw], *, repaired: bool) -> Parsed:
    found = split.get("metadata")
    metadata = None if found is None else _metadata(found)
    if not metadata:
        return Parsed(texts, place, split, metadata, None, None, None, repaired)
    get = metadata.get
    scrape_id, source_url, url = get("scrapeId"), get("sourceURL"), get("url")
    return Parsed(
        texts,
        place,
        split,
        metadata,
        scrape_id if type(scrape_id) is str and scrape_id else None,
        source_url if type(source_url) is str else None,
        url if type(url) is str else None,
        repaired,
    )


def _metadata(raw: Raw) -> Mapping[str, object] | None:
    try:
        return _values_of(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        split = response_json.split_object(raw)
    except MalformedReply:  # not an object: its JSON text is stored in `extra`
        return None
    return {key: _value(part) for key, part in split.items()}  # one value is unusual: decode each separately


def _value(raw: Raw) -> object:
    try:
        return _decode_any(raw)
    except (msgspec.DecodeError, RecursionError):
        return ...
