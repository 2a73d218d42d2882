"""Webhooks that are refused when the job is started."""

from __future__ import annotations

from typing import Any

import pytest

A = "http://site.test/a"


BAD: list[tuple[object, str]] = [
    ({"url": "https://a.test/", "event": ["page"]}, "event"),
    ({"url": "https://a.test/", "events": ["pages"]}, "pages"),
    ({"events": ["page"]}, "url"),
    ({"url": "ftp://a.test/"}, "url"),
    ({"url": "https://a.test/", "headers": {"X-Service-Signature": "sha256=0"}}, "X-Service-Signature"),
    ({"url": "https://a.test/", "headers": {"Host": "b.test"}}, "Host"),
    ({"url": "https://a.test/", "headers": {"Transfer-Encoding": "chunked"}}, "Transfer-Encoding"),
    ({"url": "https://a.test/", "headers": {"Proxy-Authorization": "x"}}, "Proxy-Authorization"),
    ({"url": "https://a.test/", "headers": {"Content-Type": "text/plain"}}, "Content-Type"),
    ({"url": "https://a.test/", "headers": {"X-A\r\nHost": "b"}}, "not the name of a header"),
    ({"url": "https://a.test/", "headers": {"X-A": "1\r\nHost: b"}}, "no header can carry"),
    ({"url": "https://a.test/", "headers": {"X-A": "ü"}}, "no header can carry"),
    ({"url": "https://a.test/", "headers": {"X-A": 1}}, "X-A"),
    ({"url": "https://a.test/", "metadata": "x"}, "metadata"),
    ({"url": "https://a.test/", "metadata": {"x": "y" * 70_000}}, "larger than"),
    ("nonsense://", "scheme"),
    (7, "webhook"),
]
FORBIDDEN = [
    ("http://hooks.example.com/", "https://"),
    ("https://127.0.0.1/hook", "127.0.0.1"),
    ("https://localhost/hook", "localhost"),
    ("https://[::1]/hook", "::1"),
    ("https://10.0.0.7/hook", "10.0.0.7"),
    ("https://0x7f.1/", "webhook.url"),
]


@pytest.mark.parametrize("start", ["batch/scrape", "crawl"])
def test_invalid_webhooks_are_refused_at_the_start(bench: Any, start: str) -> None:
    for webhook, told in BAD:
        asked = {"webhook": webhook} | ({"urls": [A]} if start == "batch/scrape" else {"url": A})
        reply = bench.http.post(f"/v2/{start}", json=asked)
        assert (reply.status_code, reply.json()["code"]) == (400, "BAD_REQUEST"), webhook
        assert told in reply.json()["error"]
    assert bench.http.get("/v2/team/activity").json()["data"] == []


def test_private_receivers_are_refused(make_bench: Any) -> None:
    bench = make_bench(allow_private=False)
    for url, told in FORBIDDEN:
        reply = bench.http.post("/v2/batch/scrape", json={"urls": ["https://site.example.com/"], "webhook": url})
        assert (reply.status_code, told in reply.json()["error"]) == (400, True), reply.text
