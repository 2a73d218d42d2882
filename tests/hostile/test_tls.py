"""Invalid certificates and broken handshakes: the key is sent only to a verified server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catalogue import proves
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from landing_commands import KEY, Lake
from polling import until
from scripted_job import JOB, Job, pages
from scripted_service import ScriptedService, reply

import weblake
from weblake.errors import AskPerson, RetryLater, ServiceUnreachable, WeblakeError
from weblake.jobs.retry import SINGLE

DAY = datetime.timedelta(days=1)
Signer = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(host: str = "localhost", *, by: Signer | None = None, authority: bool = False, age: int = 0) -> Signer:
    """Return a certificate, self-signed or signed by `by`, whose validity lies `age` days in the past."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc) - age * DAY
    made = (
        x509.CertificateBuilder()
        .subject_name(named(host))
        .issuer_name(by[0].subject if by else named(host))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(by[1] if by else key, hashes.SHA256())
    )
    return made, key


def pem(signer: Signer, *, with_key: bool) -> bytes:
    text = signer[0].public_bytes(serialization.Encoding.PEM)
    if not with_key:
        return text
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return text + signer[1].private_bytes(*form)


class SecureService(ScriptedService):
    """Serve a scripted service over TLS; the first handshakes end as `breaks` say."""

    def __init__(self, file: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)
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


AUTHORITY = certificate("test authority", authority=True)

#: The server's certificate, and what weblake's error says about it.
BAD = {
    "expired": (lambda: certificate(by=AUTHORITY, age=9), "certificate has expired"),
    "not yet valid": (lambda: certificate(by=AUTHORITY, age=-9), "not yet valid"),
    "another host": (lambda: certificate("other.test", by=AUTHORITY), "not valid for 'localhost'"),
    "self-signed": (certificate, "self-signed certificate"),
    "an unknown authority": (lambda: certificate(by=certificate("x", authority=True)), "unable to get local issuer"),
}
GOOD = {"good": (lambda: certificate(by=AUTHORITY), "")}


@pytest.fixture
def secure(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecureService]:
    """Serve with the certificate that the test names; the test's own authority is trusted."""
    make = (BAD | GOOD)[getattr(request, "param", "good")][0]
    (tmp_path / "authority.pem").write_bytes(pem(AUTHORITY, with_key=False))
    (tmp_path / "service.pem").write_bytes(pem(make(), with_key=True))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    made = SecureService(tmp_path / "service.pem")
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
    case="blocking-self-signed",
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
