"""Reads the properties of an office file (title, author, keywords); runs in a converter process."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from weblake_service.files.office_parts import ZIP_ERRORS

#: The parts with the properties, of Office Open XML and of OpenDocument.
_PARTS = ("docProps/core.xml", "meta.xml")
#: Maximum bytes of such a part.
_MAX_PART_BYTES = 1 << 20
#: Element names, without namespace, and their metadata keys.
_KEYS = {
    "title": "title",
    "description": "description",
    "subject": "subject",
    "keywords": "keywords",
    "keyword": "keywords",
    "language": "language",
    "creator": "author",
    "initial-creator": "author",
    "created": "creationDate",
    "creation-date": "creationDate",
    "modified": "modDate",
    "date": "modDate",
}
_RTF = re.compile(rb"\{\\(title|author|subject|keywords|doccomm) ([^{}]{1,2000})\}")
_RTF_KEYS = {"doccomm": "description"}
_RTF_ESCAPE = re.compile(r"\\'([0-9a-fA-F]{2})|\\u(-?\d{1,5}) ?(?:\\'[0-9a-fA-F]{2}|\?)?|\\([\\{}])|\\[a-z]+-?\d* ?")


def properties_of(body: bytes) -> dict[str, str]:
    """Return the properties by metadata key; an empty dict if none can be read."""
    if body.startswith(b"PK\x03\x04"):
        found = _zipped(body)
    elif body.startswith(b"{\\rtf"):
        found = _rich_text(body)
    else:
        return {}
    properties: dict[str, str] = {}
    for key, value in found:
        if value.strip():
            properties.setdefault(key, value.strip())
    return properties


def _zipped(body: bytes) -> Iterator[tuple[str, str]]:
    for root in _roots(body):
        for element in root.iter():
            name = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
            if name in _KEYS and element.text:
                yield _KEYS[name], element.text


def _roots(body: bytes) -> Iterator[Element]:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for part in _PARTS:
                if part in archive.NameToInfo:
                    with archive.open(part) as source:
                        content = source.read(_MAX_PART_BYTES + 1)
                    if len(content) <= _MAX_PART_BYTES:
                        yield fromstring(content)
    except (*ZIP_ERRORS, ParseError, DefusedXmlException):
        # The document itself is readable; broken metadata must not make it fail.
        return


def _rich_text(body: bytes) -> Iterator[tuple[str, str]]:
    for match in _RTF.finditer(body[:65536]):
        name = match[1].decode("ascii")
        yield _RTF_KEYS.get(name, name), _RTF_ESCAPE.sub(_unescape_rtf, match[2].decode("cp1252", "replace"))


def _unescape_rtf(match: re.Match[str]) -> str:
    if match[1]:
        return bytes.fromhex(match[1]).decode("cp1252", "replace")
    if match[2]:
        code = int(match[2]) & 0xFFFF
        return "" if 0xD800 <= code < 0xE000 else chr(code)
    return match[3] or ""
