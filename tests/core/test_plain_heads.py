"""A head in its plainest form is understood as h11 understands it, and whatever is not plain is left to h11."""

from __future__ import annotations

import h11
import httpcore
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weblake import plain_heads
from weblake.credentials import ApiKey, Unshown
from weblake.http11 import Conversation

KEY = "of-a-test/canary+0=1"

Fields = list[tuple[bytes, bytes]]


def asked(headers: Fields, method: str = "GET", content: bytes | None = None) -> httpcore.Request:
    named = [(b"host", b"test"), *headers]
    return httpcore.Request(method, "http://test/v2/crawl/x?skip=1", headers=named, content=content)


def sent_by_h11(request: httpcore.Request) -> bytes | None:
    said = h11.Connection(h11.CLIENT)
    try:
        head = said.send(h11.Request(method=request.method, target=request.url.target, headers=request.headers))
        return (head or b"") + (said.send(h11.EndOfMessage()) or b"")
    except h11.LocalProtocolError:
        return None


NAMES = st.sampled_from([b"accept", b"Content-Length", b"transfer-encoding", b"Connection", b"x-a", b"Expect", b"Host"])
NAMES |= st.binary(max_size=4)
VALUES = st.sampled_from(
    [b"close", b"keep-alive", b"Keep-Alive", b"chunked", b"2", b"02", b"+2", b"2, 2", b"a \t b", b""]
)
VALUES |= st.sampled_from([b" x", b"x ", b"a\r\nb: c", b"a\x00", b"\xe9", b"1" * 16]) | st.binary(max_size=4)


@settings(max_examples=500)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=3))
def test_a_plain_request_is_what_h11_would_send(fields: Fields) -> None:
    request = asked(fields)
    plain = plain_heads.request(request)
    assert plain is None or plain == sent_by_h11(request)


@pytest.mark.parametrize(
    ("request_", "plain"),
    [
        (asked([(b"accept", b"application/json"), (b"user-agent", b"weblake/1 (x; y)")]), True),
        (asked([], method="POST"), False),
        (asked([], method="DELETE"), False),
        (asked([(b"content-length", b"2")], content=b"hi"), False),
        (asked([(b"transfer-encoding", b"chunked")]), False),
        (asked([(b"Connection", b"close")]), False),
        (asked([(b"host", b"other")]), False),
    ],
    ids=["plain", "post", "delete", "body", "chunked", "close", "two hosts"],
)
def test_only_a_get_without_a_body_is_plain(request_: httpcore.Request, plain: bool) -> None:
    assert (plain_heads.request(request_) is not None) == plain


GOOD = b"HTTP/1.1 200 OK\r\n"
LINES = [GOOD, b"HTTP/1.1 200 \r\n", b"HTTP/1.1 200\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 404 No\r\n"]
LINES += [
    b"HTTP/1.1 204 No\r\n",
    b"HTTP/1.1 103 Early\r\n",
    b"HTTP/1.1  200 OK\r\n",
    b"HTTP/1.1 200 OK\n",
    b"HTTP/1.1 2000\r\n",
]
SEPARATORS = st.sampled_from([b": ", b":", b":\t ", b" : "])
ENDS = st.sampled_from([b"\r\n", b" \t\r\n", b"\n", b"\r\n ", b"\r\r\n"])
PLAIN_FIELDS = st.sampled_from([b"connection: keep-alive\r\n", b"x-a:b \r\n", b"X-B: c\td\r\n"])
WRITTEN = st.lists(PLAIN_FIELDS | st.tuples(NAMES, SEPARATORS, VALUES, ENDS).map(b"".join), max_size=3).map(b"".join)


@settings(max_examples=1000)
@given(st.just(GOOD) | st.sampled_from(LINES), WRITTEN, st.booleans(), WRITTEN, st.sampled_from([b"\r\n", b"\n", b""]))
@example(GOOD, b"Connection: keep-alive\r\n", True, b"", b"\r\n")
@example(GOOD, b"Content-Length: 2\r\n", True, b"", b"\r\n")
@example(GOOD, b"Transfer-Encoding: chunked\r\n", True, b"", b"\r\n")
@example(GOOD, b"Connection: close\r\n", True, b"", b"\r\n")
def test_a_plain_head_is_what_h11_reads(line: bytes, before: bytes, length: bool, after: bytes, end: bytes) -> None:
    written = line + before + (b"Content-Length: 2\r\n" if length else b"") + after + end + b"hi"
    plain = plain_heads.reply(written)
    if plain is None:
        return
    said = h11.Connection(h11.CLIENT)
    said.send(h11.Request(method="GET", target="/", headers=[(b"host", b"test")]))
    said.send(h11.EndOfMessage())
    said.receive_data(written[: plain.begins] + b"x" * min(plain.length, 1 << 20))
    head = said.next_event()
    assert isinstance(head, h11.Response)
    assert (head.status_code, head.http_version) == (200, b"1.1")
    assert head.headers.raw_items() == plain.headers
    given = 0
    while isinstance(event := said.next_event(), h11.Data):
        given += len(event.data)
    if plain.length > 1 << 20:
        assert event is h11.NEED_DATA
        return
    assert isinstance(event, h11.EndOfMessage)
    assert given == plain.length
    assert (said.our_state, said.their_state) == (h11.DONE, h11.DONE), "the connection stays open"


def test_what_services_send_is_plain() -> None:
    head = b"HTTP/1.1 200 OK\r\ndate: Mon, 23 Nov 2026 15:00:00 GMT\r\nserver: nginx\r\nConnection: keep-alive\r\n"
    head += b"content-type: application/json; charset=utf-8\r\nContent-Length: 12\r\nx-empty:\r\n\r\n"
    found = plain_heads.reply(head + b"{")
    assert found is not None
    assert (found.length, found.begins) == (12, len(head))
    assert found.headers[2:] == [
        (b"Connection", b"keep-alive"),
        (b"content-type", b"application/json; charset=utf-8"),
        (b"Content-Length", b"12"),
        (b"x-empty", b""),
    ]
    assert all(plain_heads.reply(head[:end]) is None for end in range(len(head)))


@pytest.mark.parametrize("more", [[], [(b"connection", b"close")]], ids=["plain", "by h11"])
def test_what_is_sent_shows_no_key_whoever_holds_it(more: Fields) -> None:
    """Some tracebacks show the locals of their frames, and of these are those that write it, and what is left of it."""
    parts = [*Conversation().outgoing(asked([(b"authorization", ApiKey(KEY).header()), *more]))]
    assert KEY.encode() in b"".join(parts)
    for part in parts:
        assert KEY not in repr((part, part[1:], part[5:][3:99]))
    assert isinstance(Unshown(b"ab")[0], int)
