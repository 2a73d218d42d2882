"""Fault injection as seen by a client on a real socket."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from weblake.errors import InvalidOption
from weblake_service import server
from weblake_service.faults import read_file

A = "http://site.test/a"
PATH = "/v2/team/queue-status"


def raw(bench: Any, path: str = PATH, *, seconds: float = 60) -> bytes:
    """Return all bytes that arrive before the service closes the connection."""
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


def test_a_status_has_a_body_and_headers(bench: Any) -> None:
    effect = {"status": 429, "retry_after": 7, "headers": {"X-Extra": "1"}, "body": {"error": "slow down"}}
    bench.service.faults({"match": {"path": "queue-status"}, "times": 2, "effect": effect})
    for _ in range(2):
        reply = bench.http.get(PATH)
        assert (reply.status_code, reply.json()) == (429, {"error": "slow down"})
        assert (reply.headers["retry-after"], reply.headers["x-extra"]) == ("7", "1")
        assert reply.headers["weblake-idempotency"] == "replay"
    assert bench.http.get(PATH).status_code == 200


def test_a_status_has_a_default_body_or_html(bench: Any) -> None:
    bench.service.faults({"effect": {"status": 503}}, {"effect": {"status": 502, "body": "<html>"}})
    assert bench.http.get(PATH).json()["success"] is False
    assert bench.http.get(PATH).text == "<html>"
    assert bench.http.get(PATH).status_code == 200


def test_a_connection_dropped_before_the_request_has_not_handled_it(bench: Any) -> None:
    bench.service.faults({"match": {"method": "POST"}, "effect": {"drop_before": True}})
    with pytest.raises(httpx.TransportError):
        bench.http.post("/v2/batch/scrape", json={"urls": [A]})
    assert bench.service.counts() == {}
    assert bench.service.requests()[-1]["status"] is None
    bench.batch(A)


def test_a_connection_dropped_after_the_request_has_handled_it(bench: Any) -> None:
    bench.service.faults({"match": {"path": "^/v2/crawl$"}, "effect": {"drop_after": True}})
    with pytest.raises(httpx.TransportError):
        bench.http.post("/v2/crawl", json={"url": A})
    (entry,) = bench.http.get("/v2/team/activity").json()["data"]
    assert bench.wait_until_ended(entry["id"], "crawl")["completed"] == 1


def test_a_body_is_truncated(bench: Any) -> None:
    bench.service.faults({"effect": {"truncate": 10}})
    head, _, body = raw(bench).partition(b"\r\n\r\n")
    assert len(body) == 10
    assert int(dict(line.split(b": ") for line in head.lower().splitlines()[1:])[b"content-length"]) > 10
    bench.service.faults({"effect": {"truncate": 0}})
    with pytest.raises(httpx.RemoteProtocolError):
        bench.http.get(PATH)
    bench.service.faults({"effect": {"truncate": 10**6}})
    assert bench.http.get(PATH).json()["success"] is True


def test_a_body_is_replaced_by_garbage(bench: Any) -> None:
    bench.service.faults({"effect": {"garbage": True}})
    reply = bench.http.get(PATH)
    assert reply.status_code == 200
    with pytest.raises(ValueError):
        json.loads(reply.content)
    assert int(reply.headers["content-length"]) == len(reply.content)


def test_latency_delays_the_response(bench: Any) -> None:
    bench.service.faults({"effect": {"latency_ms": 150}})
    begun = time.monotonic()
    assert bench.http.get(PATH).status_code == 200
    assert time.monotonic() - begun >= 0.15


def test_a_stalled_request_does_not_delay_the_shutdown(make_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_GRACE_S", 60)  # the time for which other running requests would be waited for
    bench = make_bench()
    bench.service.faults({"times": None, "effect": {"stall": True}})
    with pytest.raises(httpx.ReadTimeout):
        bench.http.get(PATH, timeout=0.2)
    parts = urlsplit(bench.service.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as waiting:
        waiting.sendall(f"GET {PATH} HTTP/1.1\r\nHost: {parts.netloc}\r\n".encode())
        waiting.sendall(f"Authorization: Bearer {bench.service.key}\r\n\r\n".encode())
        bench.until(lambda: len(bench.service.requests()) == 2)
        begun = time.monotonic()
        bench.service.stop()
        assert time.monotonic() - begun < 30
        assert waiting.recv(100) == b""


def test_rules_match_by_count_method_and_query(bench: Any) -> None:
    bench.service.faults(
        {"match": {"method": "get", "path": r"activity\?limit=3", "nth": 2}, "times": 2, "effect": {"status": 500}}
    )
    statuses = [bench.http.get("/v2/team/activity?limit=3").status_code for _ in range(5)]
    assert statuses == [200, 500, 500, 200, 200]
    assert bench.http.get("/v2/team/activity?limit=4").status_code == 200


def test_the_first_matching_rule_applies(bench: Any) -> None:
    bench.service.faults({"match": {"nth": 2}, "effect": {"status": 501}}, {"times": 2, "effect": {"status": 502}})
    assert [bench.http.get(PATH).status_code for _ in range(4)] == [502, 501, 502, 200]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"effect": {"stauts": 500}}, "known are .*`status`"),
        ({"match": {"pfad": ""}, "effect": {"status": 500}}, "known are .*`path`"),
        ({"effect": {"status": 500}, "often": 3}, "known are .*`times`"),
        ({"effect": {"status": 500, "fail_page": True}}, "do not go together"),
        ({"effect": {"bad_signature": True, "lose_page": True}}, "do not go together"),
        ({"effect": {}}, "names nothing"),
        ({"effect": {"status": 101}}, ">= 200 - at `.*status`"),
        ({"effect": {"status": 500, "headers": {"A": "b\r\nC: d"}}}, "cannot be sent"),
        ({"effect": {"foreign_next": "http://[x"}}, "an address such as"),
        ({"effect": {"status": 500}, "probability": 2}, "<= 1.0 - at `.*probability`"),
        ({"match": {"event": "completed"}, "effect": {"status": 500}}, "about none"),
        ({"match": {"method": "GET"}, "effect": {"fail_page": True}}, "about none"),
        ({"effect": {"chunk_documents": 0}}, ">= 1 - at `.*chunk_documents`"),
        ({"effect": {"status": "many"}}, "Expected `int"),
        (7, "a rule is an object"),
    ],
)
def test_an_invalid_rule_is_refused_with_the_reason(bench: Any, rule: object, said: str) -> None:
    reply = bench.http.post("/_weblake/faults", json=rule) if isinstance(rule, dict) else None
    listed = bench.http.put("/_weblake/faults", json={"rules": [{"effect": {"status": 500}}, rule]})
    assert listed.status_code == 400
    assert "rule 2" in listed.json()["error"]
    for one in (reply, listed):
        if one is not None:
            assert one.status_code == 400
            assert re.search(said, one.json()["error"]), one.json()["error"]
    assert bench.http.get("/_weblake/faults").json() == {"rules": []}, "no rule of an invalid list applies"


def test_the_rule_names_of_other_emulators_are_accepted(bench: Any) -> None:
    bench.service.faults({"effect": {"drop": True}}, {"effect": {"malformed_json": True}})
    assert raw(bench) == b""
    with pytest.raises(ValueError):
        bench.http.get(PATH).json()


def test_a_code_without_a_status_is_a_500(bench: Any) -> None:
    bench.service.faults({"effect": {"code": "SCRAPE_TIMEOUT"}}, {"effect": {"code": "X", "status": 408}})
    assert (bench.http.get(PATH).status_code, bench.http.get(PATH).json()["code"]) == (500, "X")


def test_a_job_is_matched_by_kind_and_by_id(bench: Any) -> None:
    batch, other, crawl = bench.batch(A), bench.batch(A), bench.crawl(A)
    bench.service.faults(
        {"match": {"job": "crawl"}, "times": None, "effect": {"status": 501}},
        {"match": {"job": other}, "times": None, "effect": {"status": 502}},
    )
    paths = [f"batch/scrape/{batch}", f"batch/scrape/{other}", f"crawl/{crawl}", f"crawl/{crawl}/errors"]
    assert [bench.http.get(f"/v2/{path}").status_code for path in paths] == [200, 502, 501, 501]
    assert bench.http.post("/v2/crawl", json={"url": A}).status_code == 501
    assert bench.http.get(PATH).status_code == 200


def test_the_seed_determines_which_requests_fail(bench: Any) -> None:
    def struck(seed: int) -> list[int]:
        bench.service.faults({"times": None, "probability": 0.3, "seed": seed, "effect": {"status": 503}})
        return [number for number in range(60) if bench.http.get(PATH).status_code == 503]

    first = struck(7)
    assert struck(7) == first
    assert struck(8) != first
    assert 5 < len(first) < 35


def test_the_request_log_names_the_matching_rule(bench: Any) -> None:
    bench.service.faults({"match": {"nth": 2}, "effect": {"status": 503}})
    bench.http.get(PATH)
    bench.http.get(PATH)
    (rule,) = bench.http.get("/_weblake/faults").json()["rules"]
    assert [entry["fault"] for entry in bench.service.requests()] == [None, rule["id"]]


def test_rules_are_read_from_toml_and_json_files(tmp_path: Path) -> None:
    toml = tmp_path / "faults.toml"
    toml.write_text(
        '[[rules]]\ntimes = 3\nmatch = {path = "/v2/crawl$"}\neffect = {status = 429, retry_after = 1}\n'
        "[[rules]]\nprobability = 0.5\nseed = 3\neffect = {malformed_json = true}\n"
    )
    first, second = read_file(toml)
    assert (first.times, first.match.path, first.effect.status, first.effect.retry_after) == (3, "/v2/crawl$", 429, 1)
    assert (second.probability, second.seed, second.effect.garbage) == (0.5, 3, True)
    listed = tmp_path / "faults.json"
    listed.write_text('[{"effect": {"drop": true}}]')
    assert read_file(listed)[0].effect.drop_before


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "[[rules", "cannot be used"),
        ("a.json", "{", "cannot be used"),
        ("a.json", '[{"effect": {"stauts": 1}}]', "rule 1.*known are"),
        ("a.toml", "x = 1", "a list of rules was expected"),
        ("a.toml", None, "cannot be read: No such file"),
    ],
)
def test_an_invalid_rules_file_is_reported(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidOption, match=said):
        read_file(tmp_path / name)
