"""One raw document, parsed as far as it must be to tell which one it is.

A document that the fast parser refuses takes a slow path of its own, and the others beside it do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from weblake.api import response_json
from weblake.errors import MalformedReply
from weblake.tables import fields

_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode
_values_of = msgspec.json.Decoder(dict[str, object]).decode
_anything = msgspec.json.Decoder().decode


class Parsed(msgspec.Struct, gc=False):  # made in a tenth of a dataclass's time, and there are many
    """A document that can be a row. It keeps the chunk alive that it was cut from."""

    #: Where its JSON text is, and at which place.
    texts: response_json.Documents
    place: int
    #: The top-level fields, undecoded.
    fields: Mapping[str, Raw]
    #: The values in metadata; None where it is absent, null or no object. One that is no JSON type has no value.
    metadata: Mapping[str, object] | None
    #: metadata.scrapeId, .sourceURL and .url, each None where it is no string.
    scrape_id: str | None
    source_url: str | None
    url: str | None
    #: Whether something had to be mended before it could be stored.
    repaired: bool = False

    @property
    def raw(self) -> response_json.JsonBytes:
        """Its JSON text as it came."""
        return self.texts[self.place]

    @property
    def size(self) -> int:
        """Bytes of JSON in all its fields."""
        return sum(map(len, self.fields.values()))

    @property
    def digest(self) -> bytes:
        """16 bytes of the SHA-256 of the JSON text as it came; computed at each call."""
        return hashlib.sha256(self.raw).digest()[:16]

    @property
    def identity(self) -> tuple[str | None, str | None, str | None, bytes]:
        """Which document this is: scrape_id, source_url, url, digest."""
        return self.scrape_id, self.source_url, self.url, self.digest


def parse(texts: response_json.Documents, place: int) -> Parsed:
    """Returns the document at this place of a chunk; raises MalformedReply where it is no JSON object."""
    try:
        split = _fields_of(texts[place]) if texts.objects is None else texts.objects[place]
        return _parsed(texts, place, split, repaired=False)
    except response_json.REFUSALS:
        return parse_odd(texts, place)


def parse_odd(texts: response_json.Documents, place: int) -> Parsed:
    """The same, with everything mended that a strict reader refuses."""
    raw = texts[place]
    mended = response_json.mend(raw)
    split = response_json.split_object(mended)
    if not all(response_json.is_json(value) for value in split.values()):
        raise MalformedReply("A document is no JSON.")
    return _parsed(texts, place, split, repaired=mended != bytes(raw))


def _parsed(texts: response_json.Documents, place: int, split: dict[str, Raw], *, repaired: bool) -> Parsed:
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
        scrape_id if type(scrape_id) is str else None,
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
    except MalformedReply:  # no object: it stands in `extra`
        return None
    return {key: _value(part) for key, part in split.items()}  # one of them is odd: the others are as good as ever


def _value(raw: Raw) -> object:
    try:
        return _anything(raw)
    except (msgspec.DecodeError, RecursionError):
        return _odd_value(raw)


def _odd_value(raw: Raw) -> object:
    """A value with a number or a depth that msgspec refuses; something that is no JSON type where nothing reads it."""
    try:
        return response_json.loads(raw)
    except MalformedReply:
        pass
    try:
        return [
            _string(item) for item in response_json.split_array(raw)
        ]  # too deep for a value: a list's strings can be told
    except MalformedReply:
        return ...


def _string(raw: Raw) -> str | None:
    try:
        return fields.text(raw)
    except fields.WRONG:
        return None
