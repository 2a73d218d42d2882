"""File types that are converted, and their detection by name, content type and first bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class FileType:
    """One kind of file that POST /v2/parse takes."""

    #: Its name, which is also what the converter calls it.
    name: str
    extensions: tuple[str, ...]
    #: The first one is what such a file is called in a document's metadata.
    types: tuple[str, ...]


_OPEN_XML = "application/vnd.openxmlformats-officedocument"

HTML = FileType("html", (".html", ".htm"), ("text/html", "application/xhtml+xml"))
PDF = FileType("pdf", (".pdf",), ("application/pdf", "application/x-pdf"))
#: The kinds of POST /v2/parse, in the order in which the contract names them.
KINDS = (
    HTML,
    PDF,
    FileType("docx", (".docx",), (f"{_OPEN_XML}.wordprocessingml.document",)),
    FileType("doc", (".doc",), ("application/msword",)),
    FileType("odt", (".odt",), ("application/vnd.oasis.opendocument.text",)),
    FileType("rtf", (".rtf",), ("application/rtf", "text/rtf")),
    FileType("xlsx", (".xlsx",), (f"{_OPEN_XML}.spreadsheetml.sheet",)),
    FileType("xls", (".xls",), ("application/vnd.ms-excel",)),
)
EXTENSIONS = tuple(extension for kind in KINDS for extension in kind.extensions)
#: Kinds beyond those that a web server may send and that the same converter reads.
_MORE_TYPES = (
    "application/vnd.oasis.opendocument.spreadsheet",
    "application/vnd.oasis.opendocument.presentation",
    f"{_OPEN_XML}.presentationml.presentation",
    "application/vnd.ms-word.document.macroenabled.12",
    "application/vnd.ms-excel.sheet.macroenabled.12",
    "application/vnd.ms-powerpoint",
    "application/epub+zip",
)
#: Media types of files that are converted to HTML.
OFFICE_TYPES = frozenset(one for kind in KINDS[2:] for one in kind.types) | frozenset(_MORE_TYPES)

#: Readers accept a PDF whose header stands within so many bytes.
_PDF_HEAD = 1024
_LOOKS_LIKE_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|h1|div|p|a\s|table|!--)", re.IGNORECASE)
_OLE, _ZIP, _RTF = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04", b"{\\rtf"
#: Bytes at a zip file's end in which its directory names its parts.
_DIRECTORY = 256 << 10


def type_of_name(name: str) -> FileType | None:
    """Return the kind that a file's extension names; None for one that is not converted."""
    extension = PurePosixPath(name.lower()).suffix
    return next((kind for kind in KINDS if extension in kind.extensions), None)


def is_pdf(body: bytes) -> bool:
    """Return whether the bytes are a PDF."""
    return b"%PDF-" in body[:_PDF_HEAD]


def is_office(body: bytes) -> bool:
    """Return whether the bytes are the kind of container that office documents come in."""
    if body.startswith((_OLE, _RTF)):
        return True
    if not body.startswith(_ZIP):
        return False
    return body[30:38] == b"mimetype" or b"[Content_Types].xml" in body[:_PDF_HEAD] + body[-_DIRECTORY:]


def is_html(body: bytes) -> bool:
    """Return whether the bytes begin as HTML does."""
    return _LOOKS_LIKE_HTML.match(body[:_PDF_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n\x0c")) is not None


def listed() -> list[dict[str, object]]:
    """Return the kinds as GET /v2/parse/formats lists them."""
    return [
        {
            "format": kind.name,
            "kind": "document",
            "extensions": list(kind.extensions),
            "mimeTypes": list(kind.types),
            "available": True,
        }
        for kind in KINDS
    ]
