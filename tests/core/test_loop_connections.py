"""One connection of an event loop: which replies leave it for the next request, and which do not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager

import httpcore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weblake import loop_connections
from weblake.loop_connections import LoopConnection
from weblake.loop_lines import Line

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class Service:
    """Answers the n-th request of each connection with the n-th text, and closes where it has no more."""

    def __init__(self, *texts: bytes, piece: int = 1 << 20) -> None:
        self.texts, self.piece = texts, piece
        self.connections = 0
        self.seen: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            for text in self.texts:
                self.seen.append(await reader.readuntil(b"\r\n\r\n"))
                for start in range(0, len(text), self.piece):
                    writer.write(text[start : start + self.piece])
                    await writer.drain()
                    if self.piece < 10:
                        await asyncio.sleep(0)
        writer.close()


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[str]:
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    server.close()


def asked(url: str, **more: object) -> httpcore.Request:
    limits = {"timeout": {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}}
    return httpcore.Request("GET", url, headers=[(b"host", b"test")], extensions=limits, **more)  # type: ignore[arg-type]


async def got(connection: httpcore.AsyncConnectionInterface, url: str) -> tuple[int, bytes]:
    async with aclosing(await connection.handle_async_request(asked(url))) as response:
        return response.status, b"".join([part async for part in response.aiter_stream()])


def opened(url: str) -> LoopConnection:
    return LoopConnection(httpcore.URL(url).origin, None)


def told(story: Coroutine[object, object, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(30):
            await story

    asyncio.run(within())


REUSED = {
    "a length": GOOD,
    "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
    "hints before it": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + GOOD,
}
LEFT = {
    "a close": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
    "something behind it": GOOD + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother",
}


@pytest.mark.parametrize("piece", [1, 1 << 20], ids=["byte by byte", "at once"])
@pytest.mark.parametrize("text", REUSED.values(), ids=REUSED)
def test_a_reply_that_was_read_leaves_the_connection_for_the_next(text: bytes, piece: int) -> None:
    async def story() -> None:
        async with served(service := Service(text, text, text, piece=piece)) as url:
            connection = opened(url)
            for _ in range(3):
                assert await got(connection, url) == (200, b"hi")
            assert service.connections == 1
            assert service.seen[0] == b"GET /x HTTP/1.1\r\nhost: test\r\n\r\n"
            await connection.aclose()

    told(story())


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_another_reply_ends_it(text: bytes) -> None:
    """What stands behind a reply would be taken for the answer to somebody else's request."""

    async def story() -> None:
        async with served(Service(text, GOOD)) as url:
            connection = opened(url)
            assert await got(connection, url) == (200, b"hi")
            assert (connection.is_idle(), connection.is_closed()) == (False, True)

    told(story())


def test_a_reply_that_was_left_in_the_middle_ends_it() -> None:
    async def story() -> None:
        async with served(Service(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi")) as url:
            connection = opened(url)
            async with aclosing(await connection.handle_async_request(asked(url))) as response:
                assert await anext(response.aiter_stream()) == b"hi"
            assert connection.is_closed()

    told(story())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (loop_connections.MOST_HEAD + 70_000),
    ],
)
def test_what_is_no_whole_reply_is_a_protocol_error_and_the_end(text: bytes) -> None:
    async def story() -> None:
        async with served(Service(text)) as url:
            connection = opened(url)
            with pytest.raises((httpcore.RemoteProtocolError, httpcore.ReadError)):
                await got(connection, url)
            assert (connection.is_idle(), connection.is_closed()) == (False, True)

    told(story())


def test_a_header_that_cannot_be_sent_is_our_own_error() -> None:
    async def story() -> None:
        async with served(Service(GOOD)) as url:
            request = asked(url)
            request.headers.append((b"x", b"a\r\nb"))
            with pytest.raises(httpcore.LocalProtocolError):
                await opened(url).handle_async_request(request)

    told(story())


def test_an_idle_connection_expires_with_time_and_with_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with served(Service(GOOD, GOOD)) as url:
            connection = opened(url)
            assert not connection.is_available()
            await got(connection, url)
            assert connection.is_available()
            assert not connection.has_expired()
            monkeypatch.setattr(loop_connections, "KEEP_S", -1.0)
            await got(connection, url)
            assert connection.has_expired()
            await connection.aclose()
            assert not connection.is_available()

    told(story())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["whole", "left", "cancelled"]), max_size=12), st.integers(1, 3))
def test_a_line_lends_as_many_as_it_may_whatever_becomes_of_them(ends: list[str], most: int) -> None:
    async def story() -> None:
        async with served(Service(*[GOOD] * 99)) as url:
            line = Line(most, lambda: opened(url), keep=True)

            async def one(end: str) -> None:
                connection = await line.lent()
                try:
                    assert len(line._lent) <= most
                    response = await connection.handle_async_request(asked(url))
                    if end == "whole":
                        assert [part async for part in response.aiter_stream()] == [b"hi"]
                    if end == "cancelled":
                        raise asyncio.CancelledError
                    await response.aclose()
                finally:
                    await line.back(connection)

            await asyncio.gather(*map(one, ends), return_exceptions=True)
            assert line._lent == set()
            assert len(line._free) <= most
            await asyncio.gather(*(one("whole") for _ in range(2 * most)))
            await line.aclose()

    told(story())
