"""The fault menu, as a client on a real socket sees it."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

A = "http://site.test/a"
PATH = "/v2/team/queue-status"


def raw(bench: Any, path: str = PATH, *, seconds: float = 10) -> bytes:
    """All bytes that come back before the service closes the connection."""
    parts = urlsplit(bench.service.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=seconds) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {bench.service.key}\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        got = b""
        try:
            while part := connection.recv(65536):
                got += part
        except ConnectionResetError:
            pass
    return got


def test_a_status_with_everything(bench: Any) -> None:
    effect = {"status": 429, "retry_after": 7, "headers": {"X-Extra": "1"}, "body": {"error": "slow down"}}
    bench.service.faults({"match": {"path": "queue-status"}, "times": 2, "effect": effect})
    for _ in range(2):
        reply = bench.http.get(PATH)
        assert (reply.status_code, reply.json()) == (429, {"error": "slow down"})
        assert (reply.headers["retry-after"], reply.headers["x-extra"]) == ("7", "1")
        assert reply.headers["weblake-idempotency"] == "replay"
    assert bench.http.get(PATH).status_code == 200


def test_a_status_without_a_body_of_its_own_and_one_of_html(bench: Any) -> None:
    bench.service.faults({"effect": {"status": 503}}, {"effect": {"status": 502, "body": "<html>"}})
    assert bench.http.get(PATH).json()["success"] is False
    assert bench.http.get(PATH).text == "<html>"
    assert bench.http.get(PATH).status_code == 200


def test_the_request_is_not_handled_when_the_connection_drops_before(bench: Any) -> None:
    bench.service.faults({"match": {"method": "POST"}, "effect": {"drop_before": True}})
    with pytest.raises(httpx.TransportError):
        bench.http.post("/v2/batch/scrape", json={"urls": [A]})
    assert bench.service.counts() == {}
    assert bench.service.requests()[-1]["status"] is None
    bench.batch(A)


def test_not_one_byte_comes_back_when_the_connection_drops(bench: Any) -> None:
    bench.service.faults({"times": 2, "effect": {"drop_before": True}})
    assert raw(bench) == b""
    assert raw(bench) == b""
    assert raw(bench).startswith(b"HTTP/1.1 200")


def test_the_request_is_handled_when_the_connection_drops_after(bench: Any) -> None:
    bench.service.faults({"match": {"path": "^/v2/crawl$"}, "effect": {"drop_after": True}})
    with pytest.raises(httpx.TransportError):
        bench.http.post("/v2/crawl", json={"url": A})
    (entry,) = bench.http.get("/v2/team/activity").json()["data"]
    assert bench.ended(entry["id"], "crawl")["completed"] == 1


def test_a_body_cut_short(bench: Any) -> None:
    bench.service.faults({"effect": {"truncate": 10}})
    head, _, body = raw(bench).partition(b"\r\n\r\n")
    assert len(body) == 10
    assert int(dict(line.split(b": ") for line in head.lower().splitlines()[1:])[b"content-length"]) > 10
    bench.service.faults({"effect": {"truncate": 0}})
    with pytest.raises(httpx.RemoteProtocolError):
        bench.http.get(PATH)
    bench.service.faults({"effect": {"truncate": 10**6}})
    assert bench.http.get(PATH).json()["success"] is True


def test_a_body_of_garbage(bench: Any) -> None:
    bench.service.faults({"effect": {"garbage": True}})
    reply = bench.http.get(PATH)
    assert reply.status_code == 200
    with pytest.raises(ValueError):
        json.loads(reply.content)
    assert int(reply.headers["content-length"]) == len(reply.content)


def test_latency_comes_before_the_answer(bench: Any) -> None:
    bench.service.faults({"effect": {"latency_ms": 150}})
    begun = time.monotonic()
    assert bench.http.get(PATH).status_code == 200
    assert time.monotonic() - begun >= 0.15


def test_a_stall_never_answers_and_does_not_hold_up_the_end(bench: Any) -> None:
    bench.service.faults({"times": None, "effect": {"stall": True}})
    with pytest.raises(httpx.ReadTimeout):
        bench.http.get(PATH, timeout=0.2)
    parts = urlsplit(bench.service.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as waiting:
        waiting.sendall(f"GET {PATH} HTTP/1.1\r\nHost: {parts.netloc}\r\n".encode())
        waiting.sendall(f"Authorization: Bearer {bench.service.key}\r\n\r\n".encode())
        bench.until(lambda: len(bench.service.requests()) == 2)
        begun = time.monotonic()
        bench.service.stop()
        assert time.monotonic() - begun < 3
        assert waiting.recv(100) == b""


def test_nth_times_method_and_the_query(bench: Any) -> None:
    bench.service.faults(
        {"match": {"method": "get", "path": r"activity\?limit=3", "nth": 2}, "times": 2, "effect": {"status": 500}}
    )
    statuses = [bench.http.get("/v2/team/activity?limit=3").status_code for _ in range(5)]
    assert statuses == [200, 500, 500, 200, 200]
    assert bench.http.get("/v2/team/activity?limit=4").status_code == 200


def test_the_first_rule_that_strikes_decides(bench: Any) -> None:
    bench.service.faults({"match": {"nth": 2}, "effect": {"status": 501}}, {"times": 2, "effect": {"status": 502}})
    assert [bench.http.get(PATH).status_code for _ in range(4)] == [502, 501, 502, 200]


def test_the_admin_routes_set_show_and_drop_the_rules(bench: Any) -> None:
    rule = {"match": {"path": "queue"}, "times": None, "effect": {"status": 418}}
    shown = bench.http.put("/_weblake/faults", json={"rules": [rule]}).json()["rules"]
    assert shown[0]["effect"] == {"status": 418}
    assert bench.http.get(PATH).status_code == 418
    (rule_now,) = bench.http.get("/_weblake/faults").json()["rules"]
    assert (rule_now["seen"], rule_now["hit"]) == (1, 1)
    assert bench.http.delete("/_weblake/faults").json() == {"rules": []}
    assert bench.http.get(PATH).status_code == 200


@pytest.mark.parametrize(
    "rules",
    [
        {"rules": [{"effect": {"stauts": 500}}]},
        {"rules": [{"match": {"path": "("}, "effect": {}}]},
        {"rules": [{}]},
        {"rules": 5},
        {},
        {"rules": [{"match": {"nth": 0}, "effect": {}}]},
        {"rules": [{"effect": {"latency_ms": -1}}]},
    ],
)
def test_rules_that_cannot_be_read_are_refused(bench: Any, rules: dict[str, object]) -> None:
    assert bench.http.put("/_weblake/faults", json=rules).status_code == 400
    assert bench.http.get(PATH).status_code == 200
