"""Tests of the responses that the transports read and refuse, and of what they tell about a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from catalogue import proves
from stream_server import stream_server

from weblake.api.steps import NoResponse, Request, Response
from weblake.credentials import ApiKey, BaseUrl
from weblake.http import failures
from weblake.http import transport as transports

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
LONG = b"0123456789" * 250_000
LONG_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2500000\r\n\r\n" + LONG
OTHER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"
READ = Request("GET", "/x", deadline_s=10)
START = Request("POST", "/x", body=b"", deadline_s=10, paid=True)

Send = Callable[[Request], Awaitable[Response | NoResponse]]


class Service:
    """Answers each request with a text, and keeps the connection open until the client closes it."""

    def __init__(self, text: bytes, *, piece: int = 1 << 20) -> None:
        self.text, self.piece = text, piece
        self.seen: list[bytes] = []
        self.ended = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            for start in range(0, len(self.text), self.piece):
                writer.write(self.text[start : start + self.piece])
                await writer.drain()
                if self.piece < 10:
                    await asyncio.sleep(0)
            if self.text not in BROKEN.values():
                assert await reader.read() == b"", "another request came over the same connection"
        finally:
            self.ended.release()


@pytest.fixture(params=["blocking", "awaited"])
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def sender(way: str, port: int) -> Send:
    base, key = BaseUrl.parse(f"http://127.0.0.1:{port}"), ApiKey("test-key")
    if way == "awaited":
        return transports.AsyncHttpTransport(base, key).send
    blocking = transports.HttpTransport(base, key)
    return lambda request: asyncio.to_thread(blocking.send, request)


def bodies(way: str, service: Service, *requests: Request) -> list[bytes | NoResponse]:
    """The bodies of the replies to requests that are sent one after the other."""

    async def story() -> list[bytes | NoResponse]:
        async with stream_server(service.serve) as port:
            send = sender(way, port)
            replies = [await send(request) for request in requests]
            return [bytes(reply.body) if isinstance(reply, Response) else reply for reply in replies]

    return asyncio.run(story())


WHOLE = {
    "a length": (GOOD, b"hi"),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1;x=y\r\ni\r\n0\r\n\r\n", b"hi"),
    "a long body": (LONG_REPLY, LONG),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
}


@pytest.mark.parametrize("name", WHOLE)
def test_another_response_behind_a_response_is_not_read(way: str, name: str) -> None:
    """It would be taken for the response to the next request, which may be a start."""
    text, body = WHOLE[name]
    service = Service(text + OTHER)
    assert bodies(way, service, READ, START, READ) == [body] * 3
    assert [request.split()[0] for request in service.seen] == [b"GET", b"POST", b"GET"]


@proves(
    "P11",
    at="src/weblake/http/transport.py",
    line="async with httpx.AsyncHTTPTransport(verify=self._ssl_context(), proxy=self._proxy) as transport:",
    becomes="if transport := self.__dict__.setdefault('kept', httpx.AsyncHTTPTransport(verify=self._ssl_context())):",
    case="awaited",
)
def test_p11_each_request_has_a_connection_of_its_own_which_ends_with_it(way: str) -> None:
    enough = Request("GET", "/x", deadline_s=10, stop_when=lambda body: len(body) > 0)

    async def story() -> None:
        service = Service(LONG_REPLY)
        async with stream_server(service.serve) as port:
            send = sender(way, port)
            for request in (READ, START, enough):
                assert isinstance(await send(request), Response)
                await asyncio.wait_for(service.ended.acquire(), 10)

    asyncio.run(story())


BROKEN = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a short body": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
    "a long body, one byte short": b"HTTP/1.1 200 OK\r\ncontent-length: 2500001\r\n\r\n" + LONG,
    "half a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhi",
    "no last chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
    "a long header": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 180_000 + b"\r\ncontent-length: 2\r\n\r\nhi",
}


@proves(
    "H8",
    at="src/weblake/http/transport.py",
    line="return self._no_response(error, request, sent=False if waiting else was_sent(error))",
    becomes="return body.response(200, 0)",
    case="awaited-no last chunk",
)
@pytest.mark.parametrize("name", BROKEN)
def test_h8_an_incomplete_response_is_an_error(way: str, name: str) -> None:
    service = Service(BROKEN[name])
    (found,) = bodies(way, service, START)
    assert isinstance(found, NoResponse)
    assert (found.sent, found.final) == (True, False)


def test_no_cookie_of_a_response_is_in_the_next_request(way: str) -> None:
    service = Service(b"HTTP/1.1 200 OK\r\nset-cookie: session=1; path=/\r\ncontent-length: 2\r\n\r\nhi")
    bodies(way, service, READ, READ)
    assert [b"cookie" in request.lower() for request in service.seen] == [False, False]


def test_a_misuse_of_the_http_library_is_not_a_network_error() -> None:
    for misuse in (httpx.StreamConsumed(), httpx.CookieConflict("two")):
        assert not isinstance(misuse, failures.FAILURES)


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
    found = transport._no_response(error, Request("GET", "/x", deadline_s=deadline_s), sent=failures.was_sent(error))
    assert found.reason == f"no complete answer from http://127.0.0.1:1 within {limit}"
    assert found.sent is sent


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
