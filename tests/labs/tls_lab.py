"""Certificates, an HTTPS service and forward proxies on loopback, for tests of proxy and TLS settings."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: The credits that the service reports.
CREDITS = 7
_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority that writes its certificates as PEM files into a folder."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.bundle = folder / f"{name.replace(' ', '-')}.pem"
        self.bundle.write_bytes(signed.public_bytes(_PEM))

    def certificate(self, host: str, *, age: int = 0) -> tuple[Path, Path]:
        """Return the paths of a certificate for a host name, whose validity lies `age` days back, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        signed = self._signed(subject, key, x509.SubjectAlternativeName([x509.DNSName(host)]), age)
        paths = self._folder / f"{host}.crt", self._folder / f"{host}.key"
        paths[0].write_bytes(signed.public_bytes(_PEM))
        form = (_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        paths[1].write_bytes(key.private_bytes(*form))
        return paths

    def server_context(
        self, host: str = "localhost", *, client_certificates: bool = False, age: int = 0
    ) -> ssl.SSLContext:
        """Return a TLS context for a server, which may demand a client certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate(host, age=age))
        if client_certificates:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.bundle)
        return context

    def revocation_list(self) -> bytes:
        """Return an empty revocation list of this authority, as PEM."""
        now = datetime.datetime.now(datetime.timezone.utc)
        made = x509.CertificateRevocationListBuilder(self._name, now, now + _DAY).sign(self._key, hashes.SHA256())
        return made.public_bytes(_PEM)

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType, age: int = 0
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc) - age * _DAY
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(extension, critical=False)
            .sign(self._key, hashes.SHA256())
        )


class Server:
    """Accepts connections on a loopback port, each in a thread, until it is closed."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._over = threading.Event()
        self.connections = 0
        #: Why TLS handshakes have failed, in the words of OpenSSL.
        self.failed: list[str] = []
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self.port}"
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Close the listening socket and all connections."""
        self._over.set()
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self._threads)

    def _listen(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while not self._over.is_set():
                peer, _ = self._listener.accept()
                self.connections += 1
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._serve_tls, peer)

    def _start(self, target: object, peer: socket.socket) -> None:
        self._open.append(peer)
        self._threads.append(threading.Thread(target=target, args=(peer,), daemon=True))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _serve_tls(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(peer)
            if self._tls is not None:
                peer = stack.enter_context(self._tls.wrap_socket(peer, server_side=True, do_handshake_on_connect=False))
                self._open.append(peer)
                try:
                    peer.do_handshake()
                except ssl.SSLError as error:
                    self.failed.append(error.reason)
                    _drain(peer)
                    return
            self._serve(peer)

    def _serve(self, peer: socket.socket) -> None:
        raise NotImplementedError


class Service(Server):
    """Reports its credits and keeps the head of each request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.heads: list[bytes] = []
        super().__init__(tls)

    def _serve(self, peer: socket.socket) -> None:
        body = json.dumps({"success": True, "data": {"remainingCredits": CREDITS}}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        while request := _read_head(peer):
            self.heads.append(request)
            peer.sendall(head + b"\r\n" + body)


class Proxy(Server):
    """Opens tunnels for CONNECT, and keeps the head of each request.

    Args:
        tls: For an https:// proxy.
        login: The required `user:password`; none if empty.
        target: The end of all tunnels, whichever host a client names.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, *, login: str = "", target: tuple[str, int] | None = None
    ) -> None:
        self._target = target
        self.heads: list[bytes] = []
        self._login = base64.b64encode(login.encode()) if login else b""
        super().__init__(tls)

    def _serve(self, peer: socket.socket) -> None:
        head = _read_head(peer)
        self.heads.append(head)
        method, target, _ = head.split(b" ", 2)
        if self._login and b"basic " + self._login not in head.replace(b"Basic", b"basic"):
            peer.sendall(
                b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                b'proxy-authenticate: Basic realm="proxy"\r\ncontent-length: 0\r\n\r\n'
            )
            return
        assert method == b"CONNECT"
        host, _, port = target.decode().rpartition(":")
        with socket.create_connection(self._target or (host, int(port))) as far:
            self._open.append(far)
            peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _relay(peer, far, self._over)


def _drain(peer: socket.socket) -> None:
    """Read what a client still sends, because a close before that is a reset, which can overtake a TLS alert."""
    socket.socket.shutdown(peer, socket.SHUT_WR)
    while socket.socket.recv(peer, 1 << 16):
        pass


def _relay(peer: socket.socket, far: socket.socket, over: threading.Event) -> None:
    """Copy bytes both ways in one thread, because an SSLSocket must not be used by two."""
    for each in (peer, far):
        each.settimeout(0.002)
    while not over.is_set():
        for source, sink in ((peer, far), (far, peer)):
            try:
                data = source.recv(1 << 16)
            except (TimeoutError, ssl.SSLWantReadError):
                continue
            if not data:
                return
            sink.settimeout(10)
            sink.sendall(data)
            sink.settimeout(0.002)


def _read_head(peer: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        part = peer.recv(1 << 16)
        if not part:
            return b""
        head += part
    return head


@contextlib.contextmanager
def closed_at_end(*servers: Server) -> Iterator[None]:
    """Close servers at the end of a block."""
    try:
        yield
    finally:
        for server in servers:
            server.close()
