"""One connection, of an event loop or of threads: which replies leave it for the next request, and which do not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, closing

import httpcore
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_server import stream_server

from weblake import aio, http11
from weblake.deadlines import ending
from weblake.loop_connections import LoopConnection
from weblake.loop_lines import Line
from weblake.thread_connections import ThreadConnection
from weblake.thread_lines import ThreadLine

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


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


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[str]:
    async with stream_server(service.serve) as port:
        yield f"http://127.0.0.1:{port}/x"


def asked(url: str, **more: object) -> httpcore.Request:
    limits = {"timeout": {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}}
    return httpcore.Request("GET", url, headers=[(b"host", b"test")], extensions=limits, **more)  # type: ignore[arg-type]


class Loop:
    """A connection of an event loop."""

    def __init__(self, url: str) -> None:
        self.inner = LoopConnection(httpcore.URL(url).origin, None)

    async def got(self, request: httpcore.Request, parts: int | None = None) -> tuple[int, bytes]:
        async with aclosing(await self.inner.handle_async_request(request)) as response:
            found = []
            async for part in response.aiter_stream():
                found.append(part)
                if len(found) == parts:
                    break
            return response.status, b"".join(found)

    async def close(self) -> None:
        await self.inner.aclose()


class Thread:
    """A connection that each request uses from another thread."""

    def __init__(self, url: str) -> None:
        self.inner = ThreadConnection(httpcore.URL(url).origin, None)

    async def got(self, request: httpcore.Request, parts: int | None = None) -> tuple[int, bytes]:
        def ask() -> tuple[int, bytes]:
            with ending(time.monotonic() + 20), closing(self.inner.handle_request(request)) as response:
                found = []
                for part in response.iter_stream():
                    found.append(part)
                    if len(found) == parts:
                        break
                return response.status, b"".join(found)

        return await asyncio.to_thread(ask)

    async def close(self) -> None:
        self.inner.close()


Open = Callable[[str], Loop | Thread]


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - a kernel tells nobody
        await asyncio.sleep(0.001)


@pytest.fixture(params=[Loop, Thread], ids=["loop", "thread"])
def opened(request: pytest.FixtureRequest) -> Open:
    found: Open = request.param
    return found


def told(story: Coroutine[object, object, None]) -> None:
    async def within() -> None:
        async with aio.timeout(30):
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


LONG = b"0123456789" * 250_000  # some reads of the most bytes that are asked for
REUSED["a long body"] = b"HTTP/1.1 200 OK\r\ncontent-length: 2500000\r\n\r\n" + LONG
LEFT["something behind a long body"] = REUSED["a long body"] + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother"
LEFT["a close after a long body"] = REUSED["a long body"].replace(b"OK", b"OK\r\nconnection: close", 1)


def body_of(text: bytes) -> bytes:
    return LONG if LONG in text else b"hi"


@pytest.mark.parametrize("piece", [1, 1000, 1 << 20], ids=["byte by byte", "by pieces", "at once"])
@pytest.mark.parametrize("text", REUSED.values(), ids=REUSED)
def test_a_reply_that_was_read_leaves_the_connection_for_the_next(opened: Open, text: bytes, piece: int) -> None:
    async def story() -> None:
        async with served(service := Service(text, text, text, piece=max(piece, len(text) // 2000))) as url:
            connection = opened(url)
            for _ in range(3):
                assert await connection.got(asked(url)) == (200, body_of(text))
            assert service.connections == 1
            assert service.seen[0] == b"GET /x HTTP/1.1\r\nhost: test\r\n\r\n"
            await connection.close()

    told(story())


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_another_reply_ends_it(opened: Open, text: bytes) -> None:
    """What stands behind a reply would be taken for the answer to somebody else's request."""

    async def story() -> None:
        async with served(Service(text, GOOD)) as url:
            connection = opened(url)
            assert await connection.got(asked(url)) == (200, body_of(text))
            # Bytes that the kernel still has are seen when somebody wants the connection again.
            await until(lambda: connection.inner.is_closed() or connection.inner.has_expired())
            await connection.close()

    told(story())


@pytest.mark.parametrize(
    "text", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", REUSED["a long body"]], ids=["short", "long"]
)
def test_a_reply_that_was_left_in_the_middle_ends_it(opened: Open, text: bytes) -> None:
    async def story() -> None:
        async with served(Service(text)) as url:
            connection = opened(url)
            _, body = await connection.got(asked(url), parts=1)
            assert body_of(text).startswith(body)
            assert connection.inner.is_closed()

    told(story())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2500001\r\n\r\n" + LONG,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (http11.MOST_HEAD + 70_000),
    ],
)
def test_what_is_no_whole_reply_is_a_protocol_error_and_the_end(opened: Open, text: bytes) -> None:
    async def story() -> None:
        async with served(Service(text)) as url:
            connection = opened(url)
            with pytest.raises((httpcore.RemoteProtocolError, httpcore.ReadError)):
                await connection.got(asked(url))
            assert (connection.inner.is_idle(), connection.inner.is_closed()) == (False, True)

    told(story())


def test_a_header_that_cannot_be_sent_is_our_own_error(opened: Open) -> None:
    async def story() -> None:
        async with served(Service(GOOD)) as url:
            request = asked(url)
            request.headers.append((b"x", b"a\r\nb"))
            connection = opened(url)
            with pytest.raises(httpcore.LocalProtocolError):
                await connection.got(request)
            await connection.close()

    told(story())


def test_an_idle_connection_expires_with_time_and_with_its_peer(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with served(Service(GOOD, GOOD, GOOD)) as url:
            connection = opened(url)
            assert not connection.inner.is_available()
            await connection.got(asked(url))
            assert connection.inner.is_available()
            assert not connection.inner.has_expired()
            monkeypatch.setattr(http11, "KEEP_S", -1.0)
            await connection.got(asked(url))
            assert connection.inner.has_expired()
            monkeypatch.undo()
            await connection.got(asked(url))  # the last that the service answers: it closes
            await until(connection.inner.has_expired)
            await connection.close()
            assert not connection.inner.is_available()

    told(story())


PIECES = st.integers(1, 70_000)
BODIES = st.integers(0, 300_000).map(lambda size: (b"%d," % size * size)[:size])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(BODIES, st.booleans()), min_size=1, max_size=4), PIECES)
def test_whatever_its_framing_and_its_pieces_a_body_is_what_was_sent(
    opened: Open, bodies: list[tuple[bytes, bool]], piece: int
) -> None:
    texts = [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + (b"%x\r\n%s\r\n" % (len(body), body) if body else b"")
        + b"0\r\n\r\n"
        if chunked
        else b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        for body, chunked in bodies
    ]

    async def story() -> None:
        async with served(service := Service(*texts, piece=max(piece, 300))) as url:
            connection = opened(url)
            for body, _ in bodies:
                assert await connection.got(asked(url)) == (200, body)
            assert service.connections == 1
            await connection.close()

    told(story())


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["whole", "left", "cancelled"]), max_size=12), st.integers(1, 3))
def test_a_line_lends_as_many_as_it_may_whatever_becomes_of_them(ends: list[str], most: int) -> None:
    async def story() -> None:
        async with served(Service(*[GOOD] * 99)) as url:
            line = Line(most, lambda: Loop(url).inner, keep=True)

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


def test_a_line_of_threads_lends_one_connection_to_one_request() -> None:
    """As many at once as it may, each connection again and again, and a place is free whatever became of a request."""

    def one(line: ThreadLine, url: str, number: int) -> bytes:
        with line.lent(20) as connection, ending(time.monotonic() + 20):
            with lock:
                assert connection not in lent
                lent.add(connection)
                most.append(len(lent))
            try:
                with closing(connection.handle_request(asked(url))) as response:
                    if number % 5 == 4:
                        return b"hi"  # left in the middle
                    return b"".join(response.iter_stream())
            finally:
                with lock:
                    lent.discard(connection)

    lock, lent, most = threading.Lock(), set[object](), list[int]()

    async def story() -> None:
        async with served(service := Service(*[GOOD] * 999)) as url:
            line = ThreadLine(3, lambda: Thread(url).inner, keep=True)
            with ThreadPoolExecutor(12) as pool:
                loop = asyncio.get_running_loop()
                found = await asyncio.gather(*(loop.run_in_executor(pool, one, line, url, n) for n in range(200)))
            assert set(found) == {b"hi"}
            assert max(most) <= 3
            assert service.connections <= 3 + 40  # forty were left in the middle
            assert line._lent == set()
            line.close()
            assert all(connection.is_closed() for connection in line._free)

    told(story())


def test_who_waits_too_long_for_a_turn_is_told_so() -> None:
    line = ThreadLine(1, lambda: Thread("http://127.0.0.1:9/").inner, keep=True)
    with line.lent(1), pytest.raises(httpcore.PoolTimeout), line.lent(0.01):
        pass
    with line.lent(0.01):
        pass
