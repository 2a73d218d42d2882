"""The next chunk, and at the end the error list, is requested before the current chunk has arrived completely."""

from __future__ import annotations

import threading
import time

import pytest
from landing_commands import Lake
from scripted_job import JOB, OTHER, Job, Page, page
from scripted_service import Connection, Play, ScriptedService, encoded, head, reply

from weblake.loads import download

#: More than one read of a socket returns, so that the head arrives without the documents.
LONG = "word " * 40_000
#: A duration so short that nothing else can have been requested meanwhile.
NEVER_S = 20.0


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat no response as too fast for prefetching, however fast this machine is."""
    monkeypatch.setattr(download, "QUICK_S", 0.0)


def held_back(service: ScriptedService, body: dict[str, object], until_asked: str, behind: int = -1000) -> Play:
    """Play a chunk whose remaining bytes are sent once something else has been requested."""
    data = encoded(body)
    data = head(200, length=len(data), content_type="application/json") + data

    def play(line: Connection) -> bool:
        line.send(data[:behind])
        ends = time.monotonic() + NEVER_S
        while not service.requests_for(until_asked) and time.monotonic() < ends and not line.gone(0.01):
            pass
        line.send(data[behind:] if service.requests_for(until_asked) else b"")
        return bool(service.requests_for(until_asked))

    return play


def long_pages(count: int) -> list[Page]:
    return [page(n, markdown=f"{n} {LONG}") for n in range(count)]


def asked_once(service: ScriptedService, *names: str) -> bool:
    return [len(service.requests_for(name)) for name in names] == [1] * len(names)


def test_each_chunk_is_requested_while_the_previous_one_arrives(service: ScriptedService, lake: Lake) -> None:
    documents = long_pages(6)
    job = Job(service, documents, cut=2)
    job.always(2, held_back(service, job.chunks[2], job.at(4)))
    job.always(4, held_back(service, job.chunks[4], f"{job.read}/errors"))
    lake.land(job=JOB, timeout=60).landed(documents)
    assert asked_once(service, job.at(2), job.at(4), f"{job.read}/errors")


@pytest.mark.parametrize("completed", [0, 10_000, "6", None])
def test_prefetching_does_not_rely_on_the_total(service: ScriptedService, lake: Lake, completed: object) -> None:
    documents = long_pages(6)
    job = Job(service, documents, cut=2)
    for chunk in job.chunks.values():
        chunk["completed"] = completed
    landed = lake.land(job=JOB, timeout=60)
    assert landed.json["stored"] == 6, landed.err
    assert asked_once(service, job.at(2), job.at(4), f"{job.read}/errors")


def test_at_most_two_pages_are_requested_at_a_time(service: ScriptedService, lake: Lake) -> None:
    documents = long_pages(7)
    job = Job(service, documents, cut=1)
    lock, now, most = threading.Lock(), 0, 0

    def counting(body: dict[str, object]) -> Play:
        data = encoded(body)

        def play(line: Connection) -> bool:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            line.send(head(200, length=len(data), content_type="application/json") + data[:-1000])
            gone = line.gone(0.1)
            with lock:
                now -= 1
            line.send(data[-1000:])
            return not gone

        return play

    for skip in range(1, 7):
        job.always(skip, counting(job.chunks[skip]))
    lake.land(job=JOB, timeout=60).landed(documents)
    assert most == 2  # of chunks


def test_a_next_after_the_documents_is_followed(service: ScriptedService, lake: Lake) -> None:
    documents = long_pages(6)
    job = Job(service, documents, cut=2)
    for chunk in job.chunks.values():
        chunk["next"] = chunk.pop("next")
    lake.land(job=JOB, timeout=60).landed(documents)
    assert asked_once(service, job.at(2), job.at(4), f"{job.read}/errors")


def test_a_failed_prefetch_is_requested_again(service: ScriptedService, lake: Lake) -> None:
    documents = long_pages(6)
    job = Job(service, documents, cut=2)
    job.first(2, reply({"success": False, "error": "busy"}, 503), reply(b'{"success": true, "status": "comp'))
    job.first(4, reply(b"", 502))
    service.first(f"{job.read}/errors", reply(b"", 500))
    lake.land(job=JOB, timeout=60).landed(documents)
    assert len(service.requests_for(job.at(2))) == 3


def test_fast_responses_are_not_prefetched(
    service: ScriptedService, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread would cost more than the wait; after a slow response among fast ones, prefetching resumes."""
    monkeypatch.setattr(download, "QUICK_S", 10.0)
    threads: list[object] = []
    begin = download.run_in_thread
    monkeypatch.setattr(download, "run_in_thread", lambda work: threads.append(work) or begin(work))
    documents = [page(n) for n in range(40)]
    lake.land(job=Job(service, documents, cut=2).job_id, timeout=60).landed(documents)
    assert len(threads) <= 4  # the first one or two chunks, and the error list
    monkeypatch.setattr(download, "QUICK_S", 0.0)
    other = Job(service, documents, cut=2, job_id=OTHER)
    lake.land(job=OTHER, timeout=60)
    assert asked_once(service, other.at(38), f"{other.read}/errors")
    assert len(threads) > 20
