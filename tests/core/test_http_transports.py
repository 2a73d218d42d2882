"""Tests of which responses leave a connection reusable: blocking, over aiohttp, and over the connection pool."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp.helpers import calculate_timeout_when
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from name_lookups import finds
from stream_server import stream_server

from weblake.credentials import ApiKey, BaseUrl
from weblake.http import aiohttp_transport, failures, pools
from weblake.http import transport as transports
from weblake.http.aiohttp_transport import MAX_FIELD
from weblake.http.bodies import BodyRefused, BoundedBody
from weblake.http.pools import AsyncPoolTransport
from weblake.http.response_end import ResponseEnd
from weblake.steps import NoResponse, Request, Response

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
LONG = b"0123456789" * 250_000
LONG_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2500000\r\n\r\n" + LONG
OTHER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"
READ = Request("GET", "/x", deadline_s=10)

Send = Callable[[Request], Awaitable[Response | NoResponse]]


class Service:
    """Answers the n-th request of each connection with the n-th text, and closes where it has no more."""

    def __init__(self, *texts: bytes, piece: int = 1 << 20) -> None:
        self.texts, self.piece = texts, piece
        self.connections = 0
        self.seen: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for text in self.texts:
            self.seen.append(await reader.readuntil(b"\r\n\r\n"))
            for start in range(0, len(text), self.piece):
                writer.write(text[start : start + self.piece])
                await writer.drain()
                if self.piece < 10:
                    await asyncio.sleep(0)


@pytest.fixture(params=["blocking", "aiohttp", "pool"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pool":
        monkeypatch.setattr(transports, "_async_transport", lambda *_: AsyncPoolTransport)
    name: str = request.param
    return name


@asynccontextmanager
async def sending(way: str, service: Service) -> AsyncIterator[Send]:
    async with stream_server(service.serve) as port:
        base = BaseUrl.parse(f"http://127.0.0.1:{port}")
        if way == "blocking":
            blocking = transports.HttpTransport(base, ApiKey("test-key"))
            try:
                yield lambda request: asyncio.to_thread(blocking.send, request)
            finally:
                blocking.close()
        else:
            awaited = transports.AsyncHttpTransport(base, ApiKey("test-key"))
            try:
                yield awaited.send
            finally:
                await awaited.aclose()


def bodies(way: str, service: Service, *requests: Request) -> list[bytes | NoResponse]:
    """The bodies of the replies to requests that are sent one after the other."""

    async def story() -> list[bytes | NoResponse]:
        async with sending(way, service) as send:
            replies = [await sent(send, request) for request in requests]
            return [bytes(reply.body) if isinstance(reply, Response) else reply for reply in replies]

    return asyncio.run(story())


async def sent(send: Send, request: Request) -> Response | NoResponse:
    """The answer; a request that never left is sent again, as every caller does."""
    answer = await send(request)
    return await send(request) if isinstance(answer, NoResponse) and not answer.sent else answer


REUSED = {
    "a length": (GOOD, b"hi"),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1;x=y\r\ni\r\n0\r\n\r\n", b"hi"),
    "trailers": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx: y\r\n\r\n", b"hi"),
    "hints before it": (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + GOOD, b"hi"),
    "a long body": (LONG_REPLY, LONG),
    "an empty body": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
    "a long header": (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 90_000 + b"\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "nothing new": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", b""),
}


@pytest.mark.parametrize("piece", [1, 1000, 1 << 20], ids=["byte by byte", "by pieces", "at once"])
@pytest.mark.parametrize("name", REUSED)
def test_a_response_that_was_read_leaves_the_connection_for_the_next(way: str, name: str, piece: int) -> None:
    text, body = REUSED[name]
    service = Service(text, text, text, piece=max(piece, len(text) // 2000))
    assert bodies(way, service, READ, READ, READ) == [body] * 3
    assert service.connections == 1


LEFT = {
    "a close": (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    "another response behind it": (GOOD + OTHER, b"hi"),
    "the same response behind it": (GOOD + GOOD, b"hi"),
    "another response behind chunks": (REUSED["chunks"][0] + OTHER, b"hi"),
    "the same response behind chunks": (REUSED["chunks"][0] * 2, b"hi"),
    "another response behind nothing": (REUSED["nothing"][0] + OTHER, b""),
    "another response behind a long body": (LONG_REPLY + OTHER, LONG),
    "another response behind a folded length": (b"HTTP/1.1 200 OK\r\ncontent-length:\r\n 2\r\n\r\nhi" + OTHER, b"hi"),
    "another response behind folded chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding:\r\n chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n" + OTHER,
        b"hi",
    ),
}


#: Heads that servers and proxies write differently: header names in any case, and a length beside the chunks.
HEADS = {
    "lower case": b"transfer-encoding: chunked\r\n",
    "title case": b"Transfer-Encoding: Chunked\r\n",
    "a length": b"content-length: 2\r\n",
    "a length in title case": b"Content-Length: 2\r\n",
    "both": b"content-length: 7\r\ntransfer-encoding: chunked\r\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_the_end_of_a_response_is_found_with_any_head(name: str) -> None:
    text = b"HTTP/1.1 200 OK\r\n" + HEADS[name] + b"\r\n"
    text += b"2\r\nhi\r\n0\r\n\r\n" if b"chunked" in text.lower() else b"hi"
    end = ResponseEnd()
    for _ in range(2):
        end.expect_response()
        end.feed(text)
        assert not end.exceeded
    end.feed(b"x")
    assert end.exceeded


@pytest.mark.parametrize("name", LEFT)
def test_another_response_ends_the_connection(way: str, name: str) -> None:
    """Bytes after a response would be read as the response to the next request."""
    text, body = LEFT[name]
    service = Service(text, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast")
    # A new connection answers with the first text again.
    assert bodies(way, service, READ, READ) == [body, body]
    assert service.connections == 2


@pytest.mark.parametrize("way", ["blocking", "pool"], indirect=True)
def test_another_response_behind_a_repeated_length_ends_the_connection(way: str) -> None:
    """h11 reads such a length; aiohttp refuses the response."""
    service = Service(b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nhi" + OTHER, GOOD)
    assert bodies(way, service, READ, READ) == [b"hi", b"hi"]
    assert service.connections == 2


@pytest.mark.parametrize("text", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", LONG_REPLY], ids=["short", "long"])
def test_an_aborted_response_closes_the_connection(way: str, text: bytes) -> None:
    enough = Request("GET", "/x", deadline_s=10, stop_when=lambda body: len(body) > 0)
    service = Service(text, GOOD)
    bodies(way, service, enough, enough)
    assert service.connections == 2


BROKEN = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a short body": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
    "a long body, one byte short": b"HTTP/1.1 200 OK\r\ncontent-length: 2500001\r\n\r\n" + LONG,
    "half a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhi",
    "no last chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
    "a long header": b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_FIELD + 70_000) + b"\r\ncontent-length: 2\r\n\r\nhi",
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_incomplete_response_is_an_error(way: str, name: str) -> None:
    service = Service(BROKEN[name])
    (found,) = bodies(way, service, Request("POST", "/x", body=b"", deadline_s=10))
    assert isinstance(found, NoResponse)
    assert (found.sent, found.final) == (True, False)


@pytest.mark.parametrize("way", ["blocking", "pool"], indirect=True)
def test_a_connection_made_while_the_pool_is_closed_ends_with_its_response(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that has failed leaves its next request behind, and its client is closed."""
    ended = asyncio.Event()
    kept = list[object]()  # the connection, so that no garbage collection closes it

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GOOD)
        assert await reader.read() == b""
        ended.set()

    async def story() -> None:
        async with stream_server(serve) as port:
            base = BaseUrl.parse(f"http://127.0.0.1:{port}")
            if way == "blocking":
                blocking = transports.HttpTransport(base, ApiKey("test-key"))
                connect = pools.DeadlineBackend.connect_tcp

                def closing(*args: Any, **options: Any) -> Any:
                    made = connect(*args, **options)
                    kept.append(made)
                    blocking.close()
                    return made

                monkeypatch.setattr(pools.DeadlineBackend, "connect_tcp", closing)
                reply = await asyncio.to_thread(blocking.send, READ)
            else:
                awaited = transports.AsyncHttpTransport(base, ApiKey("test-key"))
                connect_async = pools._AsyncBackend.connect_tcp

                async def closing_async(*args: Any, **options: Any) -> Any:
                    made = await connect_async(*args, **options)
                    kept.append(made)
                    await awaited.aclose()
                    return made

                monkeypatch.setattr(pools._AsyncBackend, "connect_tcp", closing_async)
                reply = await awaited.send(READ)
            assert isinstance(reply, Response)
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(story())


def test_a_start_has_a_connection_of_its_own(way: str) -> None:
    service = Service(GOOD, GOOD, GOOD)
    start = Request("POST", "/x", body=b"", deadline_s=10, new_connection=True)
    assert bodies(way, service, READ, start, start, READ) == [b"hi"] * 4
    assert service.connections == 3


@pytest.mark.parametrize("name", [name for name in LEFT if "behind" in name])
def test_a_paid_call_after_another_response_was_sent_once_or_not_at_all(way: str, name: str) -> None:
    """It is not repeatable: a caller sends it again only if nothing was sent."""
    text, body = LEFT[name]
    service = Service(text)
    assert bodies(way, service, READ, Request("POST", "/x", body=b"", deadline_s=10)) == [body, body]
    assert [request.split()[0] for request in service.seen] == [b"GET", b"POST"]


def test_no_cookie_of_a_response_is_in_the_next_request(way: str) -> None:
    text = b"HTTP/1.1 200 OK\r\nset-cookie: session=1; path=/\r\ncontent-length: 2\r\n\r\nhi"
    service = Service(text, text)
    bodies(way, service, READ, READ)
    assert [b"cookie" in request.lower() for request in service.seen] == [False, False]


def test_all_addresses_of_a_host_are_tried_in_their_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_transport, "look_up", finds("2001:db8::1", "192.0.2.1"))
    resolved = asyncio.run(aiohttp_transport._Resolver().resolve("service.example", 443))
    assert [(each["host"], each["family"]) for each in resolved] == [
        ("2001:db8::1", socket.AF_INET6),
        ("192.0.2.1", socket.AF_INET),
    ]


def test_a_compressed_body_is_decompressed(way: str) -> None:
    packed = gzip.compress(LONG)
    text = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(packed), packed)
    service = Service(text, text)
    assert bodies(way, service, READ, READ) == [LONG, LONG]
    assert service.connections == 1


PIECES = st.integers(1, 70_000)
BODIES = st.integers(0, 300_000).map(lambda size: (b"%d," % size * size)[:size])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(BODIES, st.booleans()), min_size=1, max_size=4), PIECES)
def test_a_body_is_the_same_with_any_framing_and_chunking(way: str, sent: list[tuple[bytes, bool]], piece: int) -> None:
    texts = [framed(body, chunked=chunked) for body, chunked in sent]
    service = Service(*texts, piece=max(piece, 300))
    assert bodies(way, service, *[READ] * len(sent)) == [body for body, _ in sent]
    assert service.connections == 1


def framed(body: bytes, *, chunked: bool) -> bytes:
    if not chunked:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), min_size=1, max_size=4), st.integers(1, 99))
def test_the_end_of_a_response_is_found_in_any_pieces(sent: list[tuple[bytes, bool]], piece: int) -> None:
    end = ResponseEnd()
    for body, chunked in sent:
        end.expect_response()
        text = framed(body, chunked=chunked)
        for at in range(0, len(text), piece):
            end.feed(text[at : at + piece])
        assert not end.exceeded
    end.feed(b"x")
    assert end.exceeded


def test_a_misuse_of_the_http_library_is_not_a_network_error() -> None:
    assert not failures.is_failure(httpx.StreamConsumed())
    assert not failures.is_failure(httpx.CookieConflict("two"))
    for error in (httpx.ReadError("reset"), httpx.InvalidURL("odd"), aiohttp.ServerDisconnectedError(), OSError()):
        assert failures.is_failure(error), error


@pytest.mark.parametrize(
    ("error", "deadline_s", "limit", "sent"),
    [
        (httpx.ReadTimeout("x"), 30.0, "30 s", True),
        (httpx.ConnectTimeout("x"), 30.0, "10 s", False),
        (httpx.ConnectTimeout("x"), 0.5, "0.5 s", False),
        (TimeoutError(), 120.0, "120 s", True),
    ],
)
def test_a_timeout_names_the_limit_that_has_passed(error: Exception, deadline_s: float, limit: str, sent: bool) -> None:
    transport = transports.HttpTransport(BaseUrl.parse("http://127.0.0.1:1"), ApiKey("k"))
    found = transport._no_response(error, Request("GET", "/x", deadline_s=deadline_s))
    assert found.reason == f"no complete answer from http://127.0.0.1:1 within {limit}"
    assert found.sent is sent


def test_a_body_of_the_largest_size_is_read_and_one_byte_more_is_refused() -> None:
    for size, read in ((1 << 20, True), ((1 << 20) + 1, False)):
        body = BoundedBody([], Request("GET", "/x", max_body=1 << 20))
        with nullcontext() if read else pytest.raises(BodyRefused, match="larger than 1 MiB"):
            body.feed(b"x" * size)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("ConnectError", False),
        ("ConnectTimeout", False),
        ("PoolTimeout", False),
        ("ProxyError", False),
        ("UnsupportedProtocol", False),
        ("ReadError", True),
        ("ReadTimeout", True),
        ("WriteError", True),
        ("WriteTimeout", True),
        ("RemoteProtocolError", True),
        ("LocalProtocolError", True),
    ],
)
def test_what_failed_before_the_first_byte_has_sent_nothing(name: str, sent: bool) -> None:
    assert failures.was_sent(getattr(httpx, name)("it failed")) is sent


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (aiohttp.ConnectionTimeoutError(), False),
        (aiohttp.InvalidURL("http://["), False),
        (aiohttp.ServerTimeoutError(), True),
        (aiohttp.SocketTimeoutError(), True),
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientOSError(), True),
        (aiohttp.ClientPayloadError(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_error_of_aiohttp_counts_and_not_the_name_that_httpx_gives_it(error: Exception, sent: bool) -> None:
    for name in ("ConnectTimeout", "ReadError"):
        shown = getattr(httpx, name)("it failed")
        shown.__cause__ = error
        assert failures.was_sent(shown) is sent


@pytest.mark.parametrize("deadline_s", [1.0, 5.6, 6.0, 7.3, 9.0, 10.0, 11.0, 11.2, 120.0])
def test_the_timeout_of_a_connection_passes_before_the_deadline_although_aiohttp_rounds_it_up(
    deadline_s: float,
) -> None:
    """Else a start that was never sent would count as one whose outcome is unknown."""
    transport = transports.AsyncHttpTransport(BaseUrl.parse("http://127.0.0.1:1"), ApiKey("test-key"))
    timeouts = transport._timeouts(Request("POST", "/v2/crawl", deadline_s=deadline_s))
    threshold = aiohttp.ClientTimeout().ceil_threshold
    for name in ("connect", "pool"):
        timeout = timeouts[name]
        assert timeout is not None
        for begun in (100 + tenth / 10 for tenth in range(10)):
            passes = calculate_timeout_when(begun, timeout, threshold)
            assert 0 < passes - begun < deadline_s
        assert timeout >= min(transports.CONNECT_S, deadline_s * 0.8), "and no sooner than need be"
