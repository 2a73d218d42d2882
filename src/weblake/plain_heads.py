"""Heads of HTTP/1.1 messages in their plainest form, which nearly all of them have: one pattern reads one. Pure.

Whatever is not plain to the letter is None here, and h11's to read or to refuse (http11.py): nothing is understood
otherwise than h11 does, only sooner. Imports: secrets.
"""

from __future__ import annotations

from typing import NamedTuple

import httpcore

from weblake.compat import re
from weblake.credentials import Unshown

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_VALUE = rb"(?:[\x21-\x7e]++(?:[ \t]++[\x21-\x7e]++)*+)?"
#: What says how long a message is or what becomes of its connection, and a second host, are not ours to weigh.
_REQUEST = re.compile(
    rb"GET [\x21-\x7e]++ HTTP/1\.1\r\n(host: [\x21-\x7e]++\r\n"
    rb"(?:(?!host:|content-length:|transfer-encoding:|connection:|expect:|upgrade:)%b: %b\r\n)*+)\r\n"
    % (_NAME, _VALUE),
    re.IGNORECASE,
)
_REPLY = re.compile(rb"HTTP/1\.1 200 [\x21-\x7e \t]*+\r\n((?:%b:[ \t]*+%b[ \t]*+\r\n)++)\r\n" % (_NAME, _VALUE))
_FIELD = re.compile(rb"(%b):[ \t]*+(%b)[ \t]*+\r\n" % (_NAME, _VALUE))
#: Digits of a length that are believed.
_MOST_DIGITS = 15


class PlainReply(NamedTuple):
    """The head of a reply that was a success, and has a length."""

    headers: list[tuple[bytes, bytes]]
    #: Bytes of its body, and how many of what was read are before it.
    length: int
    begins: int


def request(asked: httpcore.Request) -> Unshown | None:
    """Returns a GET that has no body as it is sent; None for any other request, or where a header is not plain."""
    if asked.method != b"GET" or any(asked.stream):  # type: ignore[arg-type]
        return None
    head = Unshown(
        b"GET %b HTTP/1.1\r\n%b\r\n" % (asked.url.target, b"".join(b"%b: %b\r\n" % field for field in asked.headers))
    )
    found = _REQUEST.fullmatch(head)
    # As many fields as were asked for, and none that stands in another's value.
    return head if found is not None and _FIELD.findall(found[1]) == asked.headers else None


def reply(read: bytes) -> PlainReply | None:
    """Returns the head that these bytes begin with; None where it is not whole, or not plain."""
    found = _REPLY.match(read)
    if found is None:
        return None
    headers = _FIELD.findall(found[1])
    length = None
    for name, value in headers:
        match name.lower():
            case b"content-length" if length is None and value.isdigit() and len(value) <= _MOST_DIGITS:
                length = int(value)
            case b"connection" if value.lower() == b"keep-alive":
                pass
            case b"content-length" | b"connection" | b"transfer-encoding":
                return None
    return None if length is None else PlainReply(headers, length, found.end())
