"""What a request does whose pool or queue has no free place. test_async_requests.py has the same with thousands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest
from name_lookups import finds
from stream_server import stream_server

from weblake.credentials import ApiKey, BaseUrl
from weblake.http import aiohttp_transport, pools
from weblake.http import transport as transports
from weblake.http.pools import AsyncPoolTransport
from weblake.steps import NoResponse, Request, Response

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
KEY = ApiKey("test-key")


class Service:
    """Answers each request but those to /held, which wait until `release` is set."""

    def __init__(self) -> None:
        self.held = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if b"/held" in await reader.readuntil(b"\r\n\r\n"):
                self.held.release()
                await self.release.wait()
            writer.write(GOOD)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Service, BaseUrl]]:
    service = Service()
    async with stream_server(service.serve) as port:
        try:
            yield service, BaseUrl.parse(f"http://127.0.0.1:{port}")
        finally:
            service.release.set()


def poll(path: str, deadline_s: float = 10.0) -> Request:
    return Request("GET", path, deadline_s=deadline_s, stop_when=lambda body: False)


def ended_in_the_queue(reply: Response | NoResponse) -> bool:
    return isinstance(reply, NoResponse) and not reply.sent and "within 0.1 s" in reply.reason


def test_a_blocking_request_without_a_connection_ends_by_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "MAX_CONNECTIONS", 1)

    async def story() -> None:
        async with running() as (service, base):
            transport = transports.HttpTransport(base, KEY)
            first = asyncio.create_task(asyncio.to_thread(transport.send, Request("GET", "/held", deadline_s=30.0)))
            await service.held.acquire()
            late = asyncio.create_task(asyncio.to_thread(transport.send, Request("GET", "/x", deadline_s=0.1)))
            done, _ = await asyncio.wait([late], timeout=15)
            service.release.set()
            assert isinstance(await first, Response)
            assert ended_in_the_queue(await late)
            assert done
            transport.close()

    asyncio.run(story())


@pytest.fixture(params=["aiohttp", "pool"])
def make(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., transports.AsyncHttpTransport]:
    if request.param == "pool":
        monkeypatch.setattr(transports, "_async_transport", lambda *_: AsyncPoolTransport)
    return transports.AsyncHttpTransport


def test_polls_other_calls_and_starts_do_not_wait_for_each_other(
    make: Callable[..., transports.AsyncHttpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel or a start would wait until ten thousand polls are answered."""
    monkeypatch.setattr(transports, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(transports, "MAX_POLLS", 1)

    async def story() -> None:
        async with running() as (service, base):
            transport = make(base, KEY)
            held = [asyncio.create_task(transport.send(poll("/held")))]
            await service.held.acquire()
            assert ended_in_the_queue(await transport.send(poll("/x", 0.1)))
            assert isinstance(await transport.send(Request("GET", "/x", deadline_s=10.0)), Response)
            held.append(asyncio.create_task(transport.send(Request("GET", "/held", deadline_s=10.0))))
            await service.held.acquire()
            assert ended_in_the_queue(await transport.send(Request("GET", "/x", deadline_s=0.1)))
            start = Request("POST", "/x", body=b"{}", deadline_s=10.0, new_connection=True)
            assert isinstance(await transport.send(start), Response)
            service.release.set()
            assert all(isinstance(reply, Response) for reply in await asyncio.gather(*held))
            assert isinstance(await transport.send(poll("/x")), Response)
            await transport.aclose()

    asyncio.run(story())


def test_a_response_may_take_longer_than_a_connection(
    make: Callable[..., transports.AsyncHttpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "CONNECT_S", 0.4)

    async def story() -> None:
        async with running() as (service, base):
            transport = make(base, KEY)
            asyncio.get_running_loop().call_later(0.5, service.release.set)
            assert isinstance(await transport.send(Request("GET", "/held", deadline_s=10.0)), Response)
            await transport.aclose()

    asyncio.run(story())


def test_a_lookup_that_hangs_has_sent_nothing(
    make: Callable[..., transports.AsyncHttpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "CONNECT_S", 0.1)
    for module in (pools, aiohttp_transport):
        monkeypatch.setattr(module, "look_up", lambda host, port: Future[list[str]]())
    start = Request("POST", "/x", body=b"{}", deadline_s=3.0, new_connection=True)

    async def story() -> Response | NoResponse:
        transport = make(BaseUrl.parse("http://service.example", insecure=True), KEY)
        try:
            return await transport.send(start)
        finally:
            await transport.aclose()

    reply = asyncio.run(story())
    assert isinstance(reply, NoResponse)
    assert (reply.sent, reply.final) == (False, False)


def test_each_connection_looks_its_host_up_again(
    make: Callable[..., transports.AsyncHttpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that has moved is found at once."""
    lookups = list[str]()

    def look_up(host: str, port: int) -> Future[list[str]]:
        lookups.append(host)
        return finds("127.0.0.1")(host, port)

    for module in (pools, aiohttp_transport):
        monkeypatch.setattr(module, "look_up", look_up)
    start = Request("POST", "/x", body=b"{}", deadline_s=10.0, new_connection=True)

    async def story() -> None:
        async with running() as (_, base):
            elsewhere = base.origin.replace("127.0.0.1", "service.example")
            transport = make(BaseUrl.parse(elsewhere, insecure=True), KEY)
            for _ in range(2):
                assert isinstance(await transport.send(start), Response)
            await transport.aclose()

    asyncio.run(story())
    assert lookups == ["service.example"] * 2
