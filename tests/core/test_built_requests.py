"""Tests of the request that a transport sends: as httpx makes it, with the transport's own headers."""

from __future__ import annotations

import pytest

from weblake.api.steps import Request
from weblake.credentials import ApiKey, BaseUrl
from weblake.http.transport import HttpTransport

BASES = ["https://api.service.test", "http://127.0.0.1:8080/team/a/", "https://[::1]:9/x", "https://s.test/a.b/~c/%7e"]


@pytest.mark.parametrize("base", BASES)
def test_a_query_follows_the_path_below_the_base(base: str) -> None:
    transport = HttpTransport(BaseUrl.parse(base), ApiKey("test-key"))
    built = transport._build(Request("GET", "/v2/crawl/x", query=(("skip", "100"), ("a", "b &c"))), {})
    assert str(built.url) == f"{base.rstrip('/')}/v2/crawl/x?skip=100&a=b+%26c"
    assert built.headers["authorization"] == "Bearer test-key"


def test_headers_of_one_request_are_not_in_the_next() -> None:
    transport = HttpTransport(BaseUrl.parse(BASES[0]), ApiKey("test-key"))
    first = Request("POST", "/v2/crawl", body=b"{}", headers=(("x-idempotency-key", "k"), ("accept", "x")))
    assert transport._build(first, {}).headers["x-idempotency-key"] == "k"
    second = transport._build(Request("GET", "/v2/crawl/x"), {}).headers
    assert "x-idempotency-key" not in second
    assert second["accept"] == "application/json"


def test_no_request_replaces_the_key() -> None:
    transport = HttpTransport(BaseUrl.parse(BASES[0]), ApiKey("test-key"))
    built = transport._build(Request("GET", "/v2/x", headers=(("authorization", "Basic x"),)), {})
    assert built.headers.get_list("authorization") == ["Bearer test-key"]


def test_the_headers_of_a_callers_client_replace_none_of_ours() -> None:
    transport = HttpTransport(BaseUrl.parse(BASES[0]), ApiKey("test-key"))
    client = {"accept": "text/html", "user-agent": "mine", "x-team": "a", "authorization": "Basic x"}
    request = Request("GET", "/v2/x", headers=(("user-agent", "of the request"),))
    headers = transport._build(request, {}, client).headers
    assert (headers["accept"], headers["user-agent"], headers["x-team"]) == ("application/json", "of the request", "a")
    assert headers.get_list("authorization") == ["Bearer test-key"]
