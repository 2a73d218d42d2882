"""An HTTP client that the caller gives: its authentication, its redirects and its lack of a total deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from weblake.credentials import ApiKey, BaseUrl
from weblake.http.transport import AsyncHttpTransport, HttpTransport
from weblake.steps import NoResponse, Request, Response

BASE, KEY = BaseUrl.parse("https://service.test"), ApiKey("test-key")


class Parts(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body of many parts."""

    def __iter__(self) -> Iterator[bytes]:
        yield from [b"x"] * 9

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


class Service:
    """Answers each request with a redirect, whose body has several parts."""

    def __init__(self) -> None:
        self.seen: list[httpx.Request] = []

    def respond(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        return httpx.Response(302, headers={"location": "https://elsewhere.test/"}, stream=Parts())

    def send(self, kind: type, request: Request) -> Response | NoResponse:
        """Send a request with a client that has its own authentication and follows redirects."""
        client = kind(transport=httpx.MockTransport(self.respond), auth=("user", "password"), follow_redirects=True)
        if kind is httpx.Client:
            return HttpTransport(BASE, KEY, http_client=client).send(request)
        return asyncio.run(AsyncHttpTransport(BASE, KEY, http_client=client).send(request))


@pytest.mark.parametrize("kind", [httpx.Client, httpx.AsyncClient])
def test_neither_its_authentication_nor_its_redirects_are_used(kind: type) -> None:
    service = Service()
    reply = service.send(kind, Request("GET", "/v2/x"))
    assert isinstance(reply, Response)
    assert (reply.status, bytes(reply.body)) == (302, b"x" * 9)
    assert [request.url.host for request in service.seen] == ["service.test"]
    assert service.seen[0].headers.get_list("authorization") == ["Bearer test-key"]


def test_a_body_that_arrives_after_the_deadline_is_not_read_on() -> None:
    reply = Service().send(httpx.Client, Request("GET", "/v2/x", deadline_s=0.0))
    assert isinstance(reply, NoResponse)
    assert (reply.sent, reply.final) == (True, False)
