"""The blocking and the asynchronous transport with hosts that are unreachable or never finish a response."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from catalogue import proves
from landing_commands import KEY
from scripted_service import Connection, Play, ScriptedService, drip, head, reply

import weblake
from weblake.api import operation, operations
from weblake.api.steps import NoResponse, Request, Response
from weblake.credentials import ApiKey, BaseUrl
from weblake.http import transport

Ask = Callable[[str, Request], Response | NoResponse]
BODY = b'{"success": true, "n": 12345678901234567890}'
READ = Request("GET", "/v2/x", deadline_s=0.2)


def by_thread(url: str, request: Request) -> Response | NoResponse:
    return transport.HttpTransport(BaseUrl.parse(url), ApiKey(KEY)).send(request)


def by_loop(url: str, request: Request) -> Response | NoResponse:
    return asyncio.run(transport.AsyncHttpTransport(BaseUrl.parse(url), ApiKey(KEY)).send(request))


@pytest.fixture(params=[by_thread, by_loop], ids=["thread", "loop"])
def ask(request: pytest.FixtureRequest) -> Ask:
    scripted_lookups: Ask = request.param
    return scripted_lookups


def then(first: bytes, play: Play) -> Play:
    def played(line: Connection) -> bool:
        line.send(first)
        return play(line)

    return played


PACKED = gzip.compress(BODY)
#: Valid responses that take a few seconds: every byte arrives long before a read would time out.
SLOW = {
    "a head": drip(head(length=len(BODY)) + BODY),
    "a body": then(head(length=len(BODY)), drip(BODY)),
    "chunks": then(head(transfer_encoding="chunked"), drip(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "gzip": then(head(length=len(PACKED), content_encoding="gzip"), drip(PACKED)),
}


@proves(
    "H11",
    at="src/weblake/http/transport.py",
    line="self._timer.start()",
    becomes="pass",
    case="thread-a head",
)
@proves(
    "H11",
    at="src/weblake/http/transport.py",
    line="asyncio.timeout(request.deadline_s), self._slot(request):",
    becomes="asyncio.timeout(None), self._slot(request):",
    case="loop-a body",
)
@pytest.mark.parametrize("play", SLOW.values(), ids=SLOW)
def test_h11_a_request_ends_by_its_deadline_although_bytes_keep_arriving(
    service: ScriptedService, play: Play, ask: Ask
) -> None:
    service.on("GET /v2/x", play)
    begun = time.monotonic()
    got = ask(service.url, READ)
    assert isinstance(got, NoResponse), (
        f"a response after {time.monotonic() - begun:.1f} s; the deadline was {READ.deadline_s:g} s"
    )
    assert (got.sent, got.final) == (True, False)
    assert "within 0.2 s" in got.reason


def scripted_lookups(monkeypatch: pytest.MonkeyPatch, *answers: list[str] | Exception) -> None:
    """Script the results of lookups of service.localhost, one after the other; the last one for ever."""
    real, script = socket.getaddrinfo, list(answers)

    def lookup(host: str | bytes, port: int, *args: object, **kwargs: object) -> object:
        if (host.decode() if isinstance(host, bytes) else host) != "service.localhost":
            return real(host, port, *args, **kwargs)  # type: ignore[arg-type]
        answer = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


NO_SUCH_HOST = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_ANSWER = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NOBODY_LISTENS = ["127.0.0.9"]


@proves(
    "H14",
    at="src/weblake/http/failures.py",
    line="    httpx.ConnectError,",
    becomes="",
    case="awaited",
)
@proves(
    "H14",
    at="src/weblake/http/transport.py",
    line="sent = was_sent(error)",
    becomes="sent = True",
    case="blocking",
)
@pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])
def test_h14_a_start_that_was_not_sent_is_retried_until_the_service_is_up(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    monkeypatch.setattr(operation, "START_DEADLINE_S", 20.0)
    scripted_lookups(monkeypatch, NO_SUCH_HOST, NO_ANSWER, NOBODY_LISTENS, ["127.0.0.1"])
    service.on("POST /v2/batch/scrape", reply({"success": True, "id": "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11"}))
    url = f"http://service.localhost:{service.port}"

    async def started() -> str | None:
        async with weblake.AsyncClient(url, KEY) as client:
            return (await client.start_batch_scrape(["https://site.test/"])).id

    if awaited:
        job_id = asyncio.run(started())
    else:
        with weblake.Client(url, KEY) as client:
            job_id = client.start_batch_scrape(["https://site.test/"]).id
    assert job_id == "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11"
    assert [seen.name for seen in service.seen] == ["POST /v2/batch/scrape"]


@pytest.mark.parametrize("lookup", [NO_SUCH_HOST, NO_ANSWER, NOBODY_LISTENS], ids=["no host", "no answer", "nobody"])
def test_h14_an_unreachable_host_was_sent_nothing(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, lookup: list[str] | Exception, ask: Ask
) -> None:
    scripted_lookups(monkeypatch, lookup)
    got = ask(f"http://service.localhost:{service.port}", operations.credit_usage().request)
    assert isinstance(got, NoResponse)
    assert (got.sent, got.final) == (False, False)
    assert service.url.rpartition(":")[2] in got.reason


def test_h14_a_hanging_name_lookup_ends_at_the_deadline(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let lookups of the system's resolver, which has no timeout, hang until the test is over.

    On an event loop only, and `asyncio.run` waits for the lookup: a limit that docs/site/tasks/network.md names.
    """
    over, real = threading.Event(), socket.getaddrinfo

    def lookup(host: str | bytes, port: int, *args: object, **kwargs: object) -> object:
        if (host.decode() if isinstance(host, bytes) else host) == "service.localhost":
            over.wait(20)
            raise NO_ANSWER
        return real(host, port, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(transport, "CONNECT_SHARE", 0.1)  # else a busy machine finds both limits passed at once
    base = BaseUrl.parse(f"http://service.localhost:{service.port}")

    async def ask() -> tuple[Response | NoResponse, float]:
        begun = time.monotonic()
        try:
            got = await transport.AsyncHttpTransport(base, ApiKey(KEY)).send(Request("GET", "/v2/x", deadline_s=5.0))
            return got, time.monotonic() - begun
        finally:
            over.set()

    got, took = asyncio.run(ask())
    assert isinstance(got, NoResponse)
    assert not got.sent
    assert took < 5


@pytest.fixture
def unresponsive_addresses(service: ScriptedService) -> Iterator[list[str]]:
    """Yield addresses, on the service's port, that accept no connection because their backlog is full."""
    addresses = [f"127.0.0.{n}" for n in range(20, 40)]
    with ExitStack() as held:
        for address in addresses:
            listener = held.enter_context(socket.create_server((address, service.port), backlog=0))
            for _ in range(4):
                waiting = held.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
        yield addresses


@proves(
    "H14",
    at="src/weblake/http/failures.py",
    line="    httpx.ConnectTimeout,",
    becomes="",
)
def test_h14_unresponsive_addresses_take_the_timeout_of_one_connection(
    service: ScriptedService, unresponsive_addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_S", 0.8)
    scripted_lookups(monkeypatch, unresponsive_addresses)
    begun = time.monotonic()
    got = by_loop(f"http://service.localhost:{service.port}", Request("GET", "/v2/x", deadline_s=20))
    assert isinstance(got, NoResponse)
    assert not got.sent
    assert time.monotonic() - begun < 8  # all twenty would take 16


@pytest.mark.system
def test_h14_after_an_unresponsive_address_the_next_one_is_tried(
    service: ScriptedService, unresponsive_addresses: list[str], monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setattr(transport, "CONNECT_S", 3.0)
    scripted_lookups(monkeypatch, [unresponsive_addresses[0], "127.0.0.1"])
    service.on("GET /v2/x", reply(BODY))
    got = ask(f"http://service.localhost:{service.port}", Request("GET", "/v2/x", deadline_s=20))
    assert isinstance(got, Response), got
    assert got.body == BODY
