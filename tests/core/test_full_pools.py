"""What a request does whose queue has no free place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from stream_server import stream_server

from weblake.api.steps import NoResponse, Request, Response
from weblake.credentials import ApiKey, BaseUrl
from weblake.http import transport as transports

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


def test_polls_and_other_calls_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel or a start would wait until ten thousand polls are answered."""
    monkeypatch.setattr(transports, "MAX_OTHERS", 1)
    monkeypatch.setattr(transports, "MAX_POLLS", 1)

    async def story() -> None:
        async with running() as (service, base):
            transport = transports.AsyncHttpTransport(base, KEY)
            held = [asyncio.create_task(transport.send(poll("/held")))]
            await service.held.acquire()
            assert ended_in_the_queue(await transport.send(poll("/x", 0.1)))
            assert isinstance(await transport.send(Request("GET", "/x", deadline_s=10.0)), Response)
            held.append(asyncio.create_task(transport.send(Request("GET", "/held", deadline_s=10.0))))
            await service.held.acquire()
            assert ended_in_the_queue(await transport.send(Request("GET", "/x", deadline_s=0.1)))
            service.release.set()
            assert all(isinstance(reply, Response) for reply in await asyncio.gather(*held))
            assert isinstance(await transport.send(poll("/x")), Response)

    asyncio.run(story())


def test_a_response_may_take_longer_than_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "CONNECT_S", 0.4)

    async def story() -> None:
        async with running() as (service, base):
            transport = transports.AsyncHttpTransport(base, KEY)
            asyncio.get_running_loop().call_later(0.5, service.release.set)
            assert isinstance(await transport.send(Request("GET", "/held", deadline_s=10.0)), Response)

    asyncio.run(story())


def test_a_cancelled_request_releases_its_place_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "MAX_POLLS", 2)

    async def story() -> None:
        async with running() as (_, base):
            transport = transports.AsyncHttpTransport(base, KEY)
            for number in range(100):
                tasks = [asyncio.create_task(transport.send(poll("/x"))) for _ in range(3)]
                for _ in range(number % 25):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            replies = await asyncio.gather(*(transport.send(poll("/x")) for _ in range(4)))
            assert all(isinstance(reply, Response) for reply in replies)

    asyncio.run(story())
