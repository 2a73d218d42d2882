"""File types that are converted, and their detection by name, content type and first bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class FileType:
    """One file type that POST /v2/parse accepts."""

    #: Its name, which is also the converter's name for it.
    name: str
    extensions: tuple[str, ...]
    #: Content types; the first one is used in a document's metadata.
    types: tuple[str, ...]


_OPEN_XML = "application/vnd.openxmlformats-officedocument"

HTML = FileType("html", (".html", ".htm"), ("text/html", "application/xhtml+xml"))
PDF = FileType("pdf", (".pdf",), ("application/pdf", "application/x-pdf"))
#: The file types of POST /v2/parse, in the contract's order.
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
#: Further file types that web servers send and that the same converter reads.
_MORE_TYPES = (
    "application/vnd.oasis.opendocument.spreadsheet",
    "application/vnd.oasis.opendocument.presentation",
    f"{_OPEN_XML}.presentationml.presentation",
    "application/vnd.ms-word.document.macroenabled.12",
    "application/vnd.ms-excel.sheet.macroenabled.12",
    "application/vnd.ms-powerpoint",
    "application/epub+zip",
)
#: Content types of files that are converted to HTML.
OFFICE_TYPES = frozenset(one for kind in KINDS[2:] for one in kind.types) | frozenset(_MORE_TYPES)

#: PDF readers accept a file whose header is within so many bytes.
_PDF_HEAD = 1024
_LOOKS_LIKE_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|h1|div|p|a\s|table|!--)", re.IGNORECASE)
_OLE, _ZIP, _RTF = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04", b"{\\rtf"
#: Bytes at the end of a zip file that contain its central directory.
_DIRECTORY = 256 << 10


def type_of_name(name: str) -> FileType | None:
    """Return the file type of a file name's extension; None for one that is not converted."""
    extension = PurePosixPath(name.lower()).suffix
    return next((kind for kind in KINDS if extension in kind.extensions), None)


def is_pdf(body: bytes) -> bool:
    """Return whether the bytes are a PDF."""
    return b"%PDF-" in body[:_PDF_HEAD]


def is_office(body: bytes) -> bool:
    """Return whether the bytes are a container format of office documents."""
    if body.startswith((_OLE, _RTF)):
        return True
    if not body.startswith(_ZIP):
        return False
    return body[30:38] == b"mimetype" or b"[Content_Types].xml" in body[:_PDF_HEAD] + body[-_DIRECTORY:]


def is_html(body: bytes) -> bool:
    """Return whether the bytes begin like HTML."""
    return _LOOKS_LIKE_HTML.match(body[:_PDF_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n\x0c")) is not None


def list_types() -> list[dict[str, object]]:
    """Return the file types as GET /v2/parse/formats lists them."""
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
