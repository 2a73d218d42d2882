"""Every response of the service is validated against the packaged contract, over a real socket."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from contract_validation import load, validate
from jsonschema import Draft202012Validator

from weblake_service.page_failure import PageFailure

A, B = "http://site.test/a", "http://site.test/b"
NO_JOB = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="session")
def api() -> dict[str, Any]:
    return load()


CALLED: list[tuple[str, str, object, int]] = [
    ("POST", "/v2/scrape", {"url": A}, 200),
    ("POST", "/v2/scrape", {"url": B}, 500),
    ("POST", "/v2/scrape", {"url": A, "timeout": 1}, 400),
    ("POST", "/v2/scrape", {"url": A, "minAge": 999_999_999}, 404),
    ("POST", "/v2/scrape", {"url": A, "formats": ["summary"]}, 503),
    ("POST", "/v2/scrape", {"url": A, "zeroDataRetention": True}, 403),
    ("GET", "/v2/scrape/{scrape}", None, 200),
    ("GET", f"/v2/scrape/{NO_JOB}", None, 404),
    ("GET", "/v2/scrape/x", None, 400),
    ("POST", "/v2/batch/scrape", {"urls": [A, "ftp://x"], "webhook": "http://receiver.test/"}, 200),
    ("POST", "/v2/batch/scrape", {"urls": []}, 400),
    ("POST", "/v2/batch/scrape", {"urls": [A], "appendToId": NO_JOB}, 404),
    ("GET", "/v2/batch/scrape/{batch}", None, 200),
    ("GET", "/v2/batch/scrape/{batch}?skip=1&limit=1", None, 200),
    ("GET", f"/v2/batch/scrape/{NO_JOB}", None, 404),
    ("GET", "/v2/batch/scrape/x", None, 400),
    ("GET", "/v2/batch/scrape/{batch}/errors", None, 200),
    ("DELETE", "/v2/batch/scrape/{batch}", None, 409),
    ("DELETE", "/v2/batch/scrape/{running}", None, 200),
    ("GET", "/v2/batch/scrape/{running}", None, 200),
    ("POST", "/v2/crawl", {"url": A, "scrapeOptions": {"formats": ["markdown"]}}, 200),
    ("GET", "/v2/crawl/active", None, 200),
    ("GET", "/v2/crawl/{crawl}", None, 200),
    ("GET", "/v2/crawl/{crawl}/errors", None, 200),
    ("DELETE", "/v2/crawl/{held}", None, 200),
    ("POST", "/v2/map", {"url": A}, 200),
    ("POST", "/v2/search", {"query": "site", "scrapeOptions": {"formats": ["markdown"]}}, 200),
    ("POST", "/v2/search", {"query": " "}, 400),
    ("GET", "/v2/team/activity?limit=3", None, 200),
    ("GET", "/v2/team/activity?limit=0", None, 400),
    ("GET", "/v2/team/credit-usage", None, 200),
    ("GET", "/v2/team/credit-usage/historical?byApiKey=true", None, 200),
    ("GET", "/v2/team/token-usage", None, 200),
    ("GET", "/v2/team/token-usage/historical", None, 200),
    ("GET", "/v2/team/queue-status", None, 200),
    ("GET", "/v2/concurrency-check", None, 200),
]


def test_every_response_conforms_to_the_contract(bench: Any, api: dict[str, Any]) -> None:
    held, bad = "http://held.test/", "http://held.test/bad"
    bench.web.failures = {
        B: PageFailure("SCRAPE_SITE_ERROR", "It is down."),
        bad: PageFailure("SCRAPE_TIMEOUT", "Slow."),
    }
    bench.web.held.add(held)
    ids = {
        "batch": bench.batch(A, bad),
        "crawl": bench.crawl(A),
        "running": bench.batch(held),
        "held": bench.crawl(held),
    }
    ids["scrape"] = bench.wait_until_ended(ids["batch"])["data"][0]["metadata"]["scrapeId"]
    bench.wait_until_ended(ids["crawl"], "crawl")
    seen = set()
    for method, path, body, status in CALLED:
        path = path.format(**ids)
        reply = bench.http.request(method, path, json=body)
        assert reply.status_code == status, f"{method} {path}: {reply.text}"
        seen.add(validate(api, method, urlsplit(path).path, status, reply.json()))
    parsed = bench.http.post("/v2/parse", files={"file": ("a.html", b"<p>x</p>")})
    seen.add(validate(api, "POST", "/v2/parse", 200, parsed.json()))
    unauthorised = bench.http.get("/v2/team/activity", headers={"Authorization": "Bearer no"})
    validate(api, "GET", "/v2/team/activity", 401, unauthorised.json())
    ours = {f"{method.upper()} {path}" for path in api["paths"] for method in api["paths"][path]}
    needs_more = ("browser", "interact", "preview", "extract", "agent")
    assert seen == {one for one in ours if not any(word in one for word in needs_more)}


def test_calls_without_a_session_or_model_return_an_error_body(bench: Any, api: dict[str, Any]) -> None:
    for path, methods in api["paths"].items():
        if not any(word in path for word in ("browser", "interact", "preview", "extract", "agent")):
            continue
        for method in methods:
            if (method, path) == ("post", "/v2/browser"):
                continue  # all of its fields are optional: it would start a browser
            reply = bench.http.request(method.upper(), re.sub(r"\{\w+\}", NO_JOB, path))
            if (method, path) == ("get", "/v2/browser"):
                # The list is empty, for which no browser is needed.
                assert reply.json() == {"success": True, "sessions": []}
                continue
            assert reply.status_code in (400, 404, 503)
            schema = {"$ref": "#/components/schemas/ErrorBody", "components": api["components"]}
            Draft202012Validator(schema).validate(reply.json())
