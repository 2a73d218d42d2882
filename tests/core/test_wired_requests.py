"""A request that is put together by hand is the one that httpx would have made; any other is left to httpx."""

from __future__ import annotations

import httpcore
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weblake.errors import InvalidOption
from weblake.http.transport import HttpTransport, _plain_target
from weblake.secrets import ApiKey, BaseUrl
from weblake.steps import Request

BASES = ["https://api.service.test", "http://127.0.0.1:8080/team/a/", "https://[::1]:9/x", "https://s.test/a.b/~c/%7e"]
words = st.text("abzAZ09_-.~%/ü &=+?#", max_size=6)
paths = st.lists(
    words | st.sampled_from(["v2", "crawl", "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11", ".."]), max_size=5
).map(lambda parts: "/" + "/".join(parts))
queries = st.lists(st.tuples(words, words), max_size=3).map(tuple)


def wires(transport: HttpTransport, request: Request) -> tuple[object, object]:
    """What is sent, and what httpx would have had sent."""
    built = transport._build(request)
    slow = httpcore.Request(built.method, str(built.url), headers=built.headers.raw, content=built.read() or None)
    fast = transport._wired(request)
    return shown(fast), shown(slow)


def shown(request: httpcore.Request) -> object:
    return request.method, bytes(request.url), request.url.origin, request.headers, b"".join(request.stream)  # type: ignore[arg-type]


@given(st.sampled_from(BASES), st.booleans(), paths, queries)
@settings(max_examples=500)
def test_it_is_the_request_that_httpx_makes(
    base: str, with_key: bool, path: str, query: tuple[tuple[str, str], ...]
) -> None:
    transport = HttpTransport(BaseUrl.parse(base), ApiKey("test-key") if with_key else None)
    try:
        fast, slow = wires(transport, Request("GET", path, query=query))
    except httpx.InvalidURL:
        return
    assert fast == slow


@pytest.mark.parametrize("base", BASES)
def test_a_poll_is_put_together_by_hand(base: str) -> None:
    poll = Request("GET", "/v2/batch/scrape/0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11", query=(("skip", "100"),))
    assert _plain_target(poll) == "/v2/batch/scrape/0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11?skip=100"
    fast, slow = wires(HttpTransport(BaseUrl.parse(base), ApiKey("test-key")), poll)
    assert fast == slow


@pytest.mark.parametrize(
    "request_",
    [
        Request("DELETE", "/v2/crawl/x"),
        Request("GET", "/v2/crawl/x", headers=(("x-a", "b"),)),
        Request("GET", "/v2/crawl/x", body=b"{}"),
        Request("GET", "/v2/crawl/../x"),
        Request("GET", "/v2/crawl/x", query=(("a", "b c"),)),
        Request("GET", "/v2/crawl/x", query=(("a", ""),)),
        Request("GET", "/v2/x\n"),
    ],
)
def test_any_other_is_left_to_httpx(request_: Request) -> None:
    assert _plain_target(request_) is None


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("path", ["@there.test/", "v2/x", "", ".there.test"])
def test_a_path_without_a_slash_goes_nowhere(base: str, path: str) -> None:
    with pytest.raises(InvalidOption):
        HttpTransport(BaseUrl.parse(base), None)._wired(Request("GET", path))


def test_what_a_request_brings_does_not_stay_for_the_next() -> None:
    transport = HttpTransport(BaseUrl.parse(BASES[0]), ApiKey("test-key"))
    transport._wired(Request("POST", "/v2/crawl", body=b"{}", headers=(("x-idempotency-key", "k"), ("accept", "x"))))
    fast, slow = wires(transport, Request("GET", "/v2/crawl/x"))
    assert fast == slow
    assert b"x-idempotency-key" not in dict(transport._wired(Request("GET", "/v2/crawl/x")).headers)
