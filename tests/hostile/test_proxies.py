"""Proxies of the environment are not used for loopback and do not get the key."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from both_clients import READ, REMOTE_HOST, Read, with_both_clients
from catalogue import proves
from landing_commands import KEY
from scripted_service import ScriptedService, reply
from secret_search import contains_secret

from weblake.errors import AskPerson, InvalidOption, ServiceUnreachable


@pytest.mark.own_transport
@proves(
    "S2",
    at="src/weblake/http/options.py",
    line="if is_loopback(base.host) or urllib.request.proxy_bypass(base.netloc):",
    becomes="if urllib.request.proxy_bypass(base.netloc):",
    case="127.0.0.1-blocking_read",
)
@with_both_clients
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_s2_no_proxy_of_the_environment_is_used_for_loopback(
    service: ScriptedService, other_origin: ScriptedService, read: Read, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, other_origin.url)
        monkeypatch.setenv(name.lower(), other_origin.url)
    service.on(READ, reply({"success": True, "data": {}}))
    read(f"http://{host}:{service.port}")
    assert len(service.seen) == 1
    assert other_origin.seen == []


class Tunnel:
    """A proxy with a scripted response to every CONNECT, which records every byte."""

    def __init__(self, answer: bytes) -> None:
        self.got = b""
        self.answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://test-user:test-password@127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                with peer:
                    peer.settimeout(10)
                    while b"\r\n\r\n" not in self.got:
                        self.got += peer.recv(1 << 16)
                    peer.sendall(self.answer)
                    self.got += peer.recv(1 << 16)  # the beginning of TLS

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture(
    params=[b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n"], ids=["200", "407"]
)
def tunnel(request: pytest.FixtureRequest) -> Iterator[Tunnel]:
    made = Tunnel(request.param)
    yield made
    made.close()


@proves(
    "S2",
    at="src/weblake/http/options.py",
    line="return httpx.Proxy(url.copy_with(username=None, password=None), auth=auth)",
    becomes="return httpx.Proxy(url.copy_with(username=None, password=None), auth=auth, "
    'headers={"authorization": "Bearer " + __import__("landing_commands").KEY})',
    case="200-HTTPS_PROXY-blocking_read",
)
@with_both_clients
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "ALL_PROXY"])
def test_s2_a_proxy_gets_the_host_name_and_no_key(
    tunnel: Tunnel, read: Read, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, tunnel.url)
    monkeypatch.setenv(name.lower(), tunnel.url)
    refused = tunnel.answer.startswith(b"HTTP/1.1 407")
    with pytest.raises(AskPerson if refused else ServiceUnreachable) as caught:
        read(f"https://{REMOTE_HOST}")
    if refused:
        assert "the proxy asks for a user name and a password (407)" in str(caught.value)
    assert tunnel.got.startswith(f"CONNECT {REMOTE_HOST}:443 HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic " in tunnel.got
    assert not contains_secret(tunnel.got, KEY)
    assert "test-password" not in f"{caught.value} {caught.value!r}"


@with_both_clients
def test_s2_a_host_in_no_proxy_is_connected_directly(
    service: ScriptedService,
    other_origin: ScriptedService,
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
    remote_host_on_loopback: None,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", other_origin.url)
    monkeypatch.setenv("http_proxy", other_origin.url)
    monkeypatch.setenv("no_proxy", REMOTE_HOST)
    service.on(READ, reply({"success": True, "data": {}}))
    read(f"http://{REMOTE_HOST}:{service.port}", insecure=True)
    assert len(service.seen) == 1


@pytest.mark.own_transport
@with_both_clients
@pytest.mark.parametrize("proxy", ["http://test-user:test-password@[::", "socks5://test-user:test-password@h", "://"])
def test_an_error_about_a_proxy_does_not_show_its_password(
    read: Read, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(InvalidOption, match="proxy that weblake cannot use") as caught:
        read(f"https://{REMOTE_HOST}")
    assert "test-password" not in str(caught.value)
