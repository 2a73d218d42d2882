"""S6: malformed ids in paths are refused before any look-up."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from catalogue import proves

AWAY = [
    *("..", "../../etc/passwd", "%2e%2e", "%2e%2e%2fx", "..%5cx", "CON", "x" * 300, "a\0b", "a\nb", "\u2024\u2024/x"),
    *("{0}/..", "{0}/../x", "{0}\n", " {0}", "{{{0}}}", "urn:uuid:{0}", "{0}' OR '1'='1", "{0};", "{0}0", "{0}\u0660"),
]
PATHS = ["/v2/batch/scrape/{}", "/v2/crawl/{}", "/v2/scrape/{}", "/v2/batch/scrape/{}/errors", "/v2/crawl/{}/errors"]


@proves(
    "S6",
    at="src/weblake_service/responses.py",
    line="if parsed is None or str(parsed) != text.lower():",
    becomes="if parsed is None:",
    case="/v2/batch/scrape/{}",
)
@pytest.mark.parametrize("path", PATHS)
def test_s6_a_job_id_must_be_a_uuid(bench: Any, path: str) -> None:
    job = bench.batch("http://site.test/a")
    bench.wait_until_ended(job)
    for away in (*(one.format(job) for one in AWAY), job.replace("-", "")):
        for method in ("GET", "DELETE"):
            reply = bench.http.request(method, path.format(quote(away, safe="")))
            assert reply.status_code in (400, 404, 405), (method, away, reply.text)
            assert reply.json()["success"] is False
            assert "data" not in reply.json()
    assert bench.status(job)["completed"] == 1
    assert bench.status(job.upper())["completed"] == 1
