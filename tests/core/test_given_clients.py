"""An HTTP client that the caller gives: its authentication, its redirects and its lack of a total deadline."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from catalogue import proves

from weblake import AsyncClient, Client
from weblake.api import operations
from weblake.api.steps import NoResponse, Request, Response
from weblake.credentials import ApiKey, BaseUrl
from weblake.errors import OutcomeUnknown, RetryLater, WeblakeError
from weblake.http import transport
from weblake.http.transport import AsyncHttpTransport, HttpTransport

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


def broken_by(alert: str) -> httpx.ReadError:
    """A connection that the peer ended with a TLS alert."""
    cause = ssl.SSLError(1, f"[SSL: {alert}]")
    cause.reason = alert
    error = httpx.ReadError(str(cause))
    error.__cause__ = cause
    return error


BROKEN: dict[str, Exception] = {
    "the service fails in the middle": broken_by("TLSV1_ALERT_INTERNAL_ERROR"),
    "no answer": httpx.ReadTimeout("x"),
    "an error that names a number": httpx.ReadError("reset after 407 bytes"),
    "a reset while it is sent": httpx.WriteError("reset"),
    "a redirect to nowhere": httpx.InvalidURL("http://[/"),
    "a response that is no HTTP": httpx.RemoteProtocolError("x"),
}


@pytest.mark.parametrize("kind", [httpx.Client, httpx.AsyncClient])
@pytest.mark.parametrize("name", BROKEN)
def test_the_outcome_of_a_start_whose_connection_breaks_is_unknown_and_it_is_sent_once(name: str, kind: type) -> None:
    with pytest.raises(OutcomeUnknown):
        started_with(kind, sent := list[str](), BROKEN[name])
    assert len(sent) == 1


def test_a_request_that_the_library_refuses_is_not_sent_again() -> None:
    sent = list[str]()
    with pytest.raises(WeblakeError) as caught:
        started_with(httpx.Client, sent, httpx.LocalProtocolError("Illegal header value"), read=True)
    assert not isinstance(caught.value, RetryLater)
    assert len(sent) == 1


def started_with(kind: type, sent: list[str], error: Exception, *, read: bool = False) -> None:
    """Start a batch, or read the credits, with a client whose connections break with this error."""

    def breaks(request: httpx.Request) -> httpx.Response:
        sent.append(request.method)
        raise error

    client = kind(transport=httpx.MockTransport(breaks))
    if kind is httpx.Client:
        blocking = Client("https://service.test", "test-key", http_client=client)
        blocking.credit_usage() if read else blocking.start_batch_scrape(["https://site.test/"])
    else:
        awaited = AsyncClient("https://service.test", "test-key", http_client=client)
        asyncio.run(awaited.run(awaited.retry.call(operations.start_batch_scrape(["https://site.test/"]))))


def test_a_failure_without_a_text_of_its_own_is_told_in_the_words_of_its_cause() -> None:
    def fails(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("") from OSError("Connection reset by peer")

    client = httpx.Client(transport=httpx.MockTransport(fails))
    reply = HttpTransport(BASE, KEY, http_client=client).send(Request("GET", "/v2/x"))
    assert isinstance(reply, NoResponse)
    assert reply.reason == "https://service.test: Connection reset by peer"


@pytest.mark.parametrize(("deadline_s", "connect_s"), [(120.0, 10.0), (5.0, 4.5)])
def test_each_wait_of_the_client_is_limited_and_a_connection_ends_before_the_deadline(
    deadline_s: float, connect_s: float
) -> None:
    """What has no connection at the deadline was not sent."""
    limits = list[dict[str, float | None]]()

    def respond(request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"])
        return httpx.Response(200, json={})

    request = Request("GET", "/v2/x", deadline_s=deadline_s)
    with httpx.Client(transport=httpx.MockTransport(respond)) as client:
        HttpTransport(BASE, KEY, http_client=client).send(request)
    awaited = httpx.AsyncClient(transport=httpx.MockTransport(respond))
    asyncio.run(AsyncHttpTransport(BASE, KEY, http_client=awaited).send(request))
    assert [each["connect"] for each in limits] == [connect_s, connect_s]
    assert [limits[0][name] for name in ("read", "write", "pool")] == [deadline_s] * 3


@proves(
    "H14",
    at="src/weblake/http/transport.py",
    line="            if self.has_passed:",
    becomes="            if False:",
)
def test_h14_a_start_is_not_sent_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up has no timeout; a start that is sent afterwards would be searched for too early."""
    real, end, over = socket.getaddrinfo, transport._Deadline._end, threading.Event()

    def ended(deadline: transport._Deadline) -> None:
        end(deadline)
        over.set()

    def lookup(host: str, port: int, *args: object, **kwargs: object) -> object:
        if host == "localhost":
            assert over.wait(20)
        return real("127.0.0.1", port, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(transport._Deadline, "_end", ended)
    with socket.create_server(("127.0.0.1", 0)) as listener, httpx.Client() as client:
        base = BaseUrl.parse(f"http://localhost:{listener.getsockname()[1]}")
        start = Request("POST", "/v2/x", body=b"{}", deadline_s=0.1, paid=True)
        reply = HttpTransport(base, KEY, http_client=client).send(start)
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(20)
            assert peer.recv(1 << 16) == b""
    assert isinstance(reply, NoResponse)
    assert not reply.sent
