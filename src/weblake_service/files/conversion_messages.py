"""Messages between the service and its converter processes.

A message is its length and that of the bytes behind it, JSON, and those bytes: the file on the way in, nothing on the
way out.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

#: Lengths of the JSON and of the bytes behind it.
HEAD = struct.Struct(">IQ")
#: Bytes of a result at most; a document that holds more text is refused.
MOST_RESULT = 96 << 20


class ConversionTask(msgspec.Struct, omit_defaults=True):
    """What is to be made of a file."""

    #: `pdf`, `office`, or of HTML `page`, `attributes` or `media`; what kind of office file it is shows in its bytes.
    kind: str
    #: The kind that the file's name says, for files whose bytes do not.
    named: str = ""
    #: Pages of a PDF that are read at most.
    max_pages: int | None = None
    #: Whether HTML is wanted besides the markdown, where the markdown comes first.
    html: bool = False
    #: Whether pictures inside an office file are wanted as data: URLs.
    pictures: bool = False
    #: Of HTML: what its server calls it, what its relative addresses are resolved against, and what is wanted of it.
    content_type: str = ""
    base: str = ""
    options: dict[str, Any] = {}


class ConversionResult(msgspec.Struct, omit_defaults=True):
    """What became of it: the HTML of a text document, the markdown of a PDF or a spreadsheet, or why neither."""

    #: A whole HTML document.
    html: str = ""
    #: The markdown of a PDF, page by page, or of a spreadsheet in one piece; None where it is to be made of the HTML.
    pages: list[str] | None = None
    #: Of HTML: what was wanted of it.
    document: dict[str, Any] = {}
    #: Of a PDF: how many pages it has.
    total_pages: int = 0
    #: The addresses that it links to, in document order, each once; of a PDF or of HTML.
    links: list[str] = []
    #: Pages without text that a reader can see something on, from 1.
    scanned: list[int] = []
    #: What the file says of itself: title, author and so on.
    metadata: dict[str, str] = {}
    warning: str = ""
    #: Why it was not converted: `encrypted`, `broken`, `unsupported`, `large`, `refused`; empty where it was.
    problem: str = ""
    detail: str = ""
    #: Of what was refused: the failure's code and status.
    code: str = ""
    status: int = 0
    #: The process's memory at its highest, in bytes.
    peak: int = 0


def pack(message: ConversionTask | ConversionResult, body_length: int = 0) -> bytes:
    """Return a message without the bytes behind it."""
    encoded = msgspec.json.encode(message)
    return HEAD.pack(len(encoded), body_length) + encoded
