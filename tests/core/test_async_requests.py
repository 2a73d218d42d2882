"""Tests of many concurrent requests of one AsyncClient: few at a time, and no queueing behind polls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from stream_server import stream_server

from weblake import AsyncClient, steps
from weblake.http.transport import MAX_POLLS
from weblake.jobs import polling
from weblake.jobs.polling import JobRef

pytestmark = pytest.mark.system

HEAD = {"success": True, "status": "scraping", "total": 9, "completed": 1, "creditsUsed": 1, "data": []}
MANY = 2000


class Service:
    """Answers every request after `delay_s`, or never; counts."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.silent = False
        self.body = json.dumps(HEAD).encode()
        self.under_way = self.most_under_way = 0
        self._came = asyncio.Event()

    async def has(self, many: int) -> None:
        """Waits until so many requests are under way."""
        async with asyncio.timeout(30):
            while self.under_way < many:
                self._came.clear()
                await self._came.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                self._came.set()
                try:
                    await asyncio.sleep(self.delay_s)
                    if self.silent:
                        await reader.read(1)
                        return
                finally:
                    self.under_way -= 1
                length = len(self.body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length + self.body)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def service() -> AsyncIterator[tuple[Service, AsyncClient]]:
    mine = Service()
    async with stream_server(mine.serve) as port, AsyncClient(f"http://127.0.0.1:{port}", "test-key") as client:
        yield mine, client


async def poll(client: AsyncClient) -> object:
    job = JobRef("batch_scrape", str(uuid4()))
    return (await client.run(polling.get_status(job, client.retry)))["status"]


def test_thousands_of_concurrent_polls_take_linear_time() -> None:
    async def story() -> None:
        async with service() as (mine, client):
            began = time.process_time()
            assert set(await asyncio.gather(*(poll(client) for _ in range(MANY)))) == {"scraping"}
            spent = time.process_time() - began
            assert mine.most_under_way <= MAX_POLLS
            # In the pool of one httpx client, one of a thousand took 22 ms, and one of three thousand more than 60.
            assert spent / MANY < 0.01, f"{spent / MANY * 1000:.1f} ms of CPU for one poll of {MANY}"

    asyncio.run(story())


def test_a_response_with_documents_is_aborted_after_its_head() -> None:
    async def story() -> None:
        async with service() as (mine, client):
            mine.body = json.dumps({**HEAD, "data": [{"markdown": "x" * 5_000_000}]}).encode()
            began = time.perf_counter()
            assert await poll(client) == "scraping"
            assert time.perf_counter() - began < 10

    asyncio.run(story())


def test_a_request_whose_deadline_passes_in_the_queue_was_not_sent() -> None:
    async def story() -> None:
        async with service() as (mine, client):
            mine.silent = True
            hung = [asyncio.create_task(poll(client)) for _ in range(MAX_POLLS)]
            await mine.has(MAX_POLLS)
            late = steps.Request("GET", "/v2/crawl/x", deadline_s=0.2, stop_when=lambda body: True)
            answer = await client.transport.send(late)
            assert isinstance(answer, steps.NoResponse)
            assert answer.sent is False
            assert "within 0.2 s" in answer.reason
            for task in hung:
                task.cancel()
            await asyncio.wait(hung)
            # Each of those connections was broken off in the middle: none of them may be lost to those who come.
            mine.silent = False
            assert set(await asyncio.gather(*(poll(client) for _ in range(2 * MAX_POLLS)))) == {"scraping"}

    asyncio.run(story())


def test_a_cancelled_request_releases_its_place_at_any_moment() -> None:
    async def story() -> None:
        async with service() as (mine, client):
            for number in range(300):
                tasks = [asyncio.create_task(poll(client)) for _ in range(3)]
                for _ in range(number % 25):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            assert set(await asyncio.gather(*(poll(client) for _ in range(2 * MAX_POLLS)))) == {"scraping"}
            assert mine.most_under_way <= MAX_POLLS

    asyncio.run(story())
