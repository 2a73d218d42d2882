"""Messages between the service and its converter processes.

A message has a header with two lengths, JSON, and binary data: the file in a task, nothing in a result.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

#: Lengths of the JSON and of the binary data.
HEADER = struct.Struct(">IQ")
#: Maximum bytes of a result; a document with more text is refused.
MAX_RESULT_BYTES = 96 << 20


class ConversionTask(msgspec.Struct, omit_defaults=True):
    """The parameters of a conversion."""

    #: `pdf`, `office` (its bytes tell which), `text`, `html`, `attributes`, `media`, `robots`, `paths` or `sitemap`.
    kind: str
    #: The kind according to the file's name, for files whose bytes are ambiguous; for `robots`, the question.
    named: str = ""
    #: Maximum number of PDF pages that are read.
    max_pages: int | None = None
    #: Whether HTML is needed in addition to the markdown, for files that are converted to markdown first.
    html: bool = False
    #: Whether images inside an office file are included as data: URLs.
    pictures: bool = False
    #: For HTML: its Content-Type, the base of its relative URLs, and the requested output.
    content_type: str = ""
    base: str = ""
    options: dict[str, Any] = {}


class ConversionResult(msgspec.Struct, omit_defaults=True):
    """The HTML of a text document, the markdown of a PDF or a spreadsheet, or the reason of a failure."""

    #: A complete HTML document.
    html: str = ""
    #: The markdown of a PDF, by page, or of a spreadsheet as one item; None if it is to be made from the HTML.
    pages: list[str] | None = None
    #: For HTML: the requested output.
    document: dict[str, Any] = {}
    #: For a PDF: its number of pages.
    total_pages: int = 0
    #: For a PDF or HTML: the URLs of its links in document order, without duplicates.
    links: list[str] = []
    #: Numbers, from 1, of pages with visible content but without text.
    scanned: list[int] = []
    #: The file's own metadata: title, author and so on.
    metadata: dict[str, str] = {}
    warning: str = ""
    #: The reason of a failure: `encrypted`, `broken`, `unsupported`, `large`, `refused`; empty for none.
    problem: str = ""
    detail: str = ""
    #: For `refused`: the failure's code and status.
    code: str = ""
    status: int = 0
    #: The peak memory of the process, in bytes.
    peak: int = 0


def pack(message: ConversionTask | ConversionResult, body_length: int = 0) -> bytes:
    """Return the header and JSON of a message, without the binary data."""
    encoded = msgspec.json.encode(message)
    return HEADER.pack(len(encoded), body_length) + encoded
