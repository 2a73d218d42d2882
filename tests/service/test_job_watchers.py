"""Websockets on jobs, as the watchers of the public SDKs open them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from weblake_service.jobs import job_status

A, B, C = (f"http://site.test/{name}" for name in "abc")
#: As the SDK for Python sends its key, and as the one for JavaScript.
KEYS: list[dict[str, Any]] = [
    {"additional_headers": {"Authorization": "Bearer test-key"}},
    {"subprotocols": ["test-key"]},
]


def watch(bench: Any, path: str, **key: Any) -> ClientConnection:
    return connect(f"{bench.service.url.replace('http', 'ws')}/v2/{path}", max_size=None, proxy=None, **key)


def urls(documents: list[Mapping[str, Any]]) -> list[str]:
    return [document["metadata"]["sourceURL"] for document in documents]


@pytest.mark.parametrize("key", KEYS, ids=["header", "subprotocol"])
def test_a_watcher_gets_each_document_once_and_the_end(bench: Any, key: dict[str, Any]) -> None:
    bench.web.held.update([B, C])
    job = bench.batch(A, B, C)
    bench.until(lambda: bench.status(job)["completed"] == 1)
    with watch(bench, f"batch/scrape/{job}", **key) as socket:
        first = json.loads(socket.recv(30))
        assert (first["type"], first["data"]["status"], urls(first["data"]["data"])) == ("catchup", "scraping", [A])
        assert first["data"]["next"].startswith(bench.service.url)
        for url in (B, C):
            bench.web.held.discard(url)
            message = json.loads(socket.recv(30))
            assert (message["type"], urls([message["data"]])) == ("document", [url])
        last = json.loads(socket.recv(30))
        assert (last["type"], last["data"]["status"], last["data"]["creditsUsed"]) == ("done", "completed", 3)
        assert urls(last["data"]["data"]) == ([A, B, C] if "subprotocols" in key else [])
        assert list(socket) == []
        assert (socket.close_code, socket.subprotocol) == (1000, key.get("subprotocols", [None])[0])


def test_an_ended_job_is_sent_whole(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client stops at a final status, so that comes with the last documents."""
    monkeypatch.setattr(job_status, "CHUNK_DOCUMENTS", 2)
    job = bench.batch(A, B, C)
    bench.wait_until_ended(job)
    with watch(bench, f"batch/scrape/{job}", **KEYS[0]) as socket:
        messages = [json.loads(text) for text in socket]
    assert [message["type"] for message in messages] == ["document", "document", "catchup", "done"]
    found = [message["data"] for message in messages[:2]] + messages[2]["data"]["data"]
    assert sorted(urls(found)) == [A, B, C]
    assert messages[2]["data"]["status"] == "completed"


def test_a_cancelled_job_ends_the_watch(bench: Any) -> None:
    bench.web.held.add(A)
    job = bench.crawl(A)
    with watch(bench, f"crawl/{job}", **KEYS[0]) as socket:
        assert json.loads(socket.recv(30))["data"]["status"] == "scraping"
        bench.http.delete(f"/v2/crawl/{job}")
        last = json.loads(socket.recv(30))
        assert (last["type"], last["data"]["status"]) == ("catchup", "cancelled")
        assert list(socket) == []


@pytest.mark.parametrize(
    "key", [{}, {"subprotocols": ["wrong"]}, {"additional_headers": {"Authorization": "Bearer wrong"}}]
)
def test_a_watch_needs_the_key(bench: Any, key: dict[str, Any]) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        watch(bench, f"batch/scrape/{bench.batch(A)}", **key)


@pytest.mark.parametrize("path", ["crawl/{job}", "batch/scrape/00000000-0000-4000-8000-000000000000", "crawl/x"])
def test_an_unknown_job_is_an_error_message(bench: Any, path: str) -> None:
    with watch(bench, path.format(job=bench.batch(A)), **KEYS[0]) as socket:
        assert json.loads(socket.recv(30)) == {"type": "error", "data": None, "error": "Job not found"}
