"""The share of a deadline that each network operation gets; no network is used."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpcore
import pytest
from name_lookups import finds
from tls_lab import Authority

from weblake.http import deadlines, pools
from weblake.http.deadlines import DeadlineBackend, DeadlineStream, ending
from weblake.http.resolver import look_up


class Network(httpcore.NetworkStream):
    """Keeps the timeout of each operation."""

    def __init__(self, ssl_object: object = None) -> None:
        self.timeouts: list[float | None] = []
        self.closed = False
        self._ssl_object = ssl_object

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.timeouts.append(timeout)
        return b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.timeouts.append(timeout)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        self.timeouts.append(timeout)
        return self

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, info: str) -> Any:
        return self._ssl_object if info == "ssl_object" else None


@pytest.mark.parametrize(("timeout", "limit"), [(None, 5.0), (9.0, 5.0), (3.0, 3.0)])
def test_an_operation_ends_by_its_own_timeout_and_by_the_deadline(timeout: float | None, limit: float) -> None:
    network = Network()
    stream = DeadlineStream(network)
    with ending(time.monotonic() + 5.0):
        stream.read(1, timeout)
        stream.write(b"x" * (deadlines.MAX_WRITE_BYTES + 1), timeout)
        stream.start_tls(ssl.create_default_context(), "service.example", timeout)
    assert len(network.timeouts) == 4
    assert all(each is not None and limit - 1.0 < each <= limit for each in network.timeouts)


def test_nothing_is_read_or_written_after_the_deadline() -> None:
    network = Network()
    stream = DeadlineStream(network)
    with ending(time.monotonic()):
        with pytest.raises(httpcore.ReadTimeout):
            stream.read(1)
        with pytest.raises(httpcore.WriteTimeout):
            stream.write(b"x")
        with pytest.raises(httpcore.ConnectTimeout):
            stream.start_tls(ssl.create_default_context())
    assert network.timeouts == []


def test_a_large_body_to_a_peer_that_reads_slowly_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Network):
        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            clock.append(clock[-1] + 1.0)

    clock = [1000.0]
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    with ending(1005.0), pytest.raises(httpcore.WriteTimeout):
        DeadlineStream(Slow()).write(b"x" * (2 << 20))
    assert clock[-1] == 1005.0


@pytest.mark.parametrize(("left", "error"), [(5.0, httpcore.ConnectError), (0.0, httpcore.ConnectTimeout)])
def test_a_handshake_inside_tls_ends_by_the_deadline_and_closes_the_connection(
    left: float, error: type[Exception]
) -> None:
    network = Network(ssl_object=object())
    with ending(time.monotonic() + left), pytest.raises(error):
        DeadlineStream(network).start_tls(ssl.create_default_context(), "service.example")
    assert network.closed
    assert bool(network.timeouts) is (left > 0)
    assert all(each is not None and 0 < each <= 5.0 for each in network.timeouts)


class TlsServer(Network):
    """A TLS server in memory, behind the TLS connection to a proxy."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(ssl_object=object())
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_side=True)
        self.received = b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._incoming.write(buffer)
        try:
            self.tls.do_handshake()
            while True:
                self.received += self.tls.read(1 << 16)
        except ssl.SSLWantReadError:
            pass

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.outgoing.read(max_bytes)


@pytest.fixture
def tls_in_tls(tmp_path: Path) -> tuple[TlsServer, httpcore.NetworkStream]:
    authority = Authority(tmp_path)
    server = TlsServer(authority.server_context())
    context = ssl.create_default_context(cafile=str(authority.bundle))
    with ending(time.monotonic() + 60.0):
        return server, DeadlineStream(server).start_tls(context, "localhost")


Tunnel = tuple[TlsServer, httpcore.NetworkStream]


def test_a_large_body_inside_tls_arrives_whole(tls_in_tls: Tunnel) -> None:
    server, stream = tls_in_tls
    body = bytes(range(256)) * 1000
    with ending(time.monotonic() + 60.0):
        stream.write(body)
    assert server.received == body


def test_a_cut_inside_tls_is_a_broken_read_and_no_end_of_a_response(tls_in_tls: Tunnel) -> None:
    server, stream = tls_in_tls
    server.tls.write(b"half of it")
    with ending(time.monotonic() + 60.0):
        assert stream.read(1 << 16) == b"half of it"
        with pytest.raises(httpcore.ReadError):
            stream.read(1 << 16)


def test_a_close_inside_tls_is_the_end_of_a_response(tls_in_tls: Tunnel) -> None:
    server, stream = tls_in_tls
    server.tls.write(b"all of it")
    with pytest.raises(ssl.SSLWantReadError):
        server.tls.unwrap()
    with ending(time.monotonic() + 60.0):
        assert (stream.read(1 << 16), stream.read(1 << 16)) == (b"all of it", b"")


def test_a_write_inside_broken_tls_may_have_sent_something(tls_in_tls: Tunnel) -> None:
    server, stream = tls_in_tls
    server.outgoing.write(b"no TLS at all")
    with ending(time.monotonic() + 60.0):
        with pytest.raises(httpcore.ReadError):
            stream.read(1 << 16)
        with pytest.raises(httpcore.WriteError):
            stream.write(b"x")


FOUR = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")


def fourth_connects(shares: list[float], host: str, timeout: float) -> Network:
    """Note the timeout of an address that is tried, and fail unless it is the fourth."""
    shares.append(timeout)
    if len(shares) < 4:
        raise (httpcore.ConnectTimeout if len(shares) == 1 else httpcore.ConnectError)(host)
    return Network()


@pytest.mark.parametrize(("deadline_s", "timeout"), [(8.0, None), (8.0, 20.0), (20.0, 8.0)])
def test_each_address_gets_its_share_of_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float, timeout: float | None
) -> None:
    shares: list[float] = []

    def connect(self: object, host: str, port: int, timeout: float) -> httpcore.NetworkStream:
        return fourth_connects(shares, host, timeout)

    monkeypatch.setattr(deadlines, "look_up", finds(*FOUR))
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    with ending(time.monotonic() + deadline_s):
        DeadlineBackend().connect_tcp("service.example", 443, timeout)
    assert shares == pytest.approx([2.0, 8 / 3, 4.0, 8.0], abs=0.5)


def test_an_address_that_is_tried_after_the_deadline_gets_no_negative_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket refuses one with an error that is none of the network."""
    shares: list[float] = []

    def connect(self: object, host: str, port: int, timeout: float) -> httpcore.NetworkStream:
        shares.append(timeout)
        raise httpcore.ConnectTimeout(host)

    monkeypatch.setattr(deadlines, "look_up", finds(*FOUR[:2]))
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    with ending(time.monotonic() - 1.0), pytest.raises(httpcore.ConnectTimeout):
        DeadlineBackend().connect_tcp("service.example", 443)
    assert all(share > 0 for share in shares)


def test_each_address_gets_its_share_on_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    async def connect(self: object, host: str, port: int, timeout: float) -> httpcore.NetworkStream:
        return fourth_connects(shares, host, timeout)

    monkeypatch.setattr(pools, "look_up", finds(*FOUR))
    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    asyncio.run(pools._AsyncBackend().connect_tcp("service.example", 443, 120.0))
    assert shares == pytest.approx([30.0, 40.0, 60.0, 120.0], abs=4)


def test_a_lookup_finds_each_address_once() -> None:
    found = look_up("localhost", 80).result(60)
    assert len(found) == len(set(found)) > 0


def test_a_link_local_address_keeps_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    interface, name = socket.if_nameindex()[0]
    link_local = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 80, 0, interface))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [link_local])
    assert look_up("service.example", 80).result(60) == [f"fe80::1%{name}"]
