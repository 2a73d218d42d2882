"""Invalid certificates and broken handshakes: the key is sent only to a verified server."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from landing_commands import KEY, Lake
from polling import until
from scripted_job import JOB, Job, pages
from scripted_service import ScriptedService, reply
from tls_lab import Authority

import weblake
from weblake.errors import AskPerson, RetryLater, ServiceUnreachable, WeblakeError
from weblake.jobs.retry import SINGLE


class SecureService(ScriptedService):
    """Serve a scripted service over TLS; the first handshakes end as `breaks` say."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.connections = 0
        self.breaks: list[Callable[[socket.socket], None]] = []
        super().__init__()
        self.url = f"https://localhost:{self.port}"

    def _serve(self, peer: socket.socket) -> None:
        self.connections += 1
        with peer, contextlib.suppress(OSError):
            if self.breaks:
                (self.breaks.pop(0) if len(self.breaks) > 1 else self.breaks[0])(peer)
            else:
                super()._serve(self._context.wrap_socket(peer, server_side=True))


#: Arguments of the server's certificate, and what weblake's error says about it.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"age": 9}, "certificate has expired"),
    "not yet valid": ({"age": -9}, "not yet valid"),
    "another host": ({"host": "other.test"}, "not valid for 'localhost'"),
    "an unknown authority": ({}, "unable to get local issuer"),
}


@pytest.fixture
def secure(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecureService]:
    """Serve with the certificate that the test names; the test's own authority is trusted."""
    kind = getattr(request, "param", "good")
    authority, unknown = Authority(tmp_path), Authority(tmp_path, "another authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    signer = unknown if kind == "an unknown authority" else authority
    made = SecureService(signer.server_context(**BAD.get(kind, ({}, ""))[0]))
    made.on("GET /v2/team/credit-usage", reply({"success": True, "data": {"remainingCredits": 7}}))
    made.on("POST /v2/batch/scrape", reply({"success": True, "id": JOB}))
    yield made
    made.stop()


def asked(url: str, door: str) -> WeblakeError | None:
    """Return the error of a read or of a start, or None."""
    try:
        if door == "awaited":

            async def read() -> None:
                async with weblake.AsyncClient(url, KEY) as client:
                    await client.credit_usage()

            asyncio.run(read())
            return None
        with weblake.Client(url, KEY) as client:
            client.start_batch_scrape(["https://site.test/"]) if door == "start" else client.credit_usage()
    except WeblakeError as error:
        return error
    return None


DOORS = ["blocking", "awaited", "start"]
#: What other tools offer to disable verification.
WAY_OUT = re.compile(
    r"verify *=|insecure|disabl|ignor|skip|turn\w* off|without (checking|verif)|unverified", re.IGNORECASE
)


@proves(
    "H13",
    at="src/weblake/http/options.py",
    line="httpx.create_ssl_context()",
    becomes="httpx.create_ssl_context(verify=False)",
    case="blocking-an unknown authority",
)
@proves(
    "H13",
    at="src/weblake/http/transport.py",
    line="if certificate is not None:",
    becomes="if False:",
    case="awaited-expired",
)
@pytest.mark.parametrize("secure", BAD, indirect=True)
@pytest.mark.parametrize("door", DOORS)
def test_h13_an_invalid_certificate_fails_without_a_retry(
    secure: SecureService, door: str, request: pytest.FixtureRequest
) -> None:
    error = asked(secure.url, door)
    assert secure.seen == [], "the key was sent to an unverified server"
    assert secure.connections == 1
    assert type(error) is AskPerson
    said = str(error)
    assert BAD[request.node.callspec.params["secure"]][1] in said
    assert secure.url in said
    assert "SSL_CERT_FILE" in said
    assert not WAY_OUT.search(said)


@pytest.mark.parametrize("secure", ["expired"], indirect=True)
def test_h13_a_load_reports_the_certificate_in_one_line_and_lands_after_the_fix(
    secure: SecureService, service: ScriptedService, lake: Lake
) -> None:
    lake.env["WEBLAKE_BASE_URL"] = secure.url
    lake.land(job=JOB).expect_error("AskPerson", "certificate has expired", "clock")
    assert secure.connections == 1
    Job(service, pages(2))
    lake.env["WEBLAKE_BASE_URL"] = service.url
    lake.land(job=JOB).landed(pages(2))


def torn(peer: socket.socket) -> None:
    """Read the beginning of the client's handshake and reset the connection."""
    peer.recv(1 << 16)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def closed(peer: socket.socket) -> None:
    peer.recv(1 << 16)


def plain(peer: socket.socket) -> None:
    """Respond without TLS."""
    peer.recv(1 << 16)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


def silent(peer: socket.socket) -> None:
    while peer.recv(1 << 16):
        pass


@proves(
    "H13",
    at="src/weblake/http/transport.py",
    line="sent = was_sent(error)",
    becomes="sent = True",
    case="torn-start",
)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("broken", [torn, closed, plain])
def test_h13_a_broken_handshake_has_sent_nothing_and_is_retried(
    secure: SecureService, broken: Callable[[socket.socket], None], door: str
) -> None:
    secure.breaks = [broken, broken]

    def whole(peer: socket.socket) -> None:
        ScriptedService._serve(secure, secure._context.wrap_socket(peer, server_side=True))

    secure.breaks.append(whole)
    assert asked(secure.url, door) is None
    assert (secure.connections, len(secure.seen)) == (3, 1)


@pytest.mark.parametrize("door", ["blocking", "awaited"])
@pytest.mark.parametrize("broken", [torn, plain])
def test_h13_a_handshake_that_always_breaks_fails(
    secure: SecureService, broken: Callable[[socket.socket], None], door: str
) -> None:
    secure.breaks = [broken]
    error = asked(secure.url, door)
    assert isinstance(error, ServiceUnreachable)
    assert isinstance(error, RetryLater)
    assert secure.connections == SINGLE.tries
    assert not WAY_OUT.search(str(error))


@pytest.mark.system
@pytest.mark.parametrize("door", DOORS)
def test_h13_an_endless_handshake_takes_the_timeout_of_one_connection(
    secure: SecureService, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weblake.http.transport.CONNECT_S", 0.1)
    secure.breaks = [silent]
    begun = time.monotonic()
    assert isinstance(asked(secure.url, door), ServiceUnreachable)
    assert time.monotonic() - begun < 5
    # On a busy machine the time of an attempt may pass before its connection is made, or before the server sees it.
    until(lambda: secure.connections)
    assert secure.connections <= SINGLE.tries
