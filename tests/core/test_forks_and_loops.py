"""Tests of one client in forked processes, in many threads, and after its event loop has ended."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
from catalogue import proves

from weblake import AsyncClient, Client
from weblake.http import transport
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

JOBS = [f"0b8f3c52-6f0d-4a41-9d1c-{n:012x}" for n in range(64)]


def answer(asked: LoopbackRequest) -> LoopbackResponse:
    """Answer each status read with the number of its job."""
    job = asked.path.rpartition("/")[2]
    body = {"status": "scraping", "total": JOBS.index(job), "completed": 0, "data": [], "id": job}
    return LoopbackResponse(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def service() -> Iterator[LoopbackServer]:
    with LoopbackServer(answer) as server:
        yield server


def _asks(client: Client, job: int, told: Connection) -> None:
    told.send(client.get_crawl(JOBS[job]).total)
    client.close()


def test_p11_a_forked_child_sends_on_its_own(service: LoopbackServer) -> None:
    with Client(service.url, "test-key") as client:
        assert client.get_crawl(JOBS[1]).total == 1
        context = multiprocessing.get_context("fork")
        for job in (2, 3):
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_asks, args=(client, job, theirs))
            child.start()
            assert (ours.recv() if ours.poll(30) else None) == job
            child.join(30)
            assert child.exitcode == 0
        assert client.get_crawl(JOBS[4]).total == 4


@pytest.mark.system
def test_p11_many_threads_share_a_client(service: LoopbackServer) -> None:
    """Each gets its own answers."""
    gate, wrong = threading.Barrier(32), list[object]()

    def reads(first: int) -> None:
        gate.wait(30)
        for n in range(20):
            job = (first + n) % len(JOBS)
            found = client.get_crawl(JOBS[job])
            if found.total != job or found.raw["id"] != JOBS[job]:
                wrong.append((job, found.total))

    with Client(service.url, "test-key") as client:
        threads = [threading.Thread(target=reads, args=(n,)) for n in range(gate.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)


@proves(
    "P11",
    at="src/weblake/http/transport.py",
    line="        loop = asyncio.get_running_loop()",
    becomes="        loop = self.__dict__.setdefault('loop', asyncio.get_running_loop())",
)
def test_p11_an_async_client_outlives_the_loop_on_which_it_was_used(
    service: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_OTHERS", 2)  # so that requests wait for each other on both loops
    client = AsyncClient(service.url, "test-key")

    async def story() -> list[object]:
        return [each.total for each in await asyncio.gather(*(client.get_crawl(job) for job in JOBS))]

    assert asyncio.run(story()) == list(range(len(JOBS)))
    assert asyncio.run(story()) == list(range(len(JOBS)))


@pytest.mark.system
def test_event_loops_of_two_threads_share_an_async_client(service: LoopbackServer) -> None:
    """Requests that waited for a connection were sent on the other loop's, and then hung."""
    client = AsyncClient(service.url, "test-key")
    gate, found = threading.Barrier(2), list[list[object]]()

    async def story() -> None:
        async with asyncio.timeout(60):
            for _ in range(3):
                await asyncio.to_thread(gate.wait, 60)  # each round begins on both loops
                found.append([each.total for each in await asyncio.gather(*(client.get_crawl(job) for job in JOBS))])

    threads = [threading.Thread(target=lambda: asyncio.run(story())) for _ in range(gate.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert found == [list(range(len(JOBS)))] * 6
