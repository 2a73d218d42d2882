"""Proxy and TLS settings of `Client` and `AsyncClient`, against HTTPS services and forward proxies on loopback."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from catalogue import proves
from cryptography.hazmat.primitives import serialization
from error_texts import all_texts_of
from secret_search import contains_secret
from tls_lab import CREDITS, Authority, Proxy, Server, Service, closed_at_end

from weblake import AsyncClient, Client, HttpOptions
from weblake.credentials import BaseUrl
from weblake.errors import AskPerson, InvalidOption, ServiceUnreachable
from weblake.http import transport
from weblake.orchestration import RetryPolicy

KEY = "test-key-of-http-options"
PASSWORD = "p@ss/word:1"
LOGIN = f"test-user:{PASSWORD}"
#: The same, percent-encoded for a URL.
LOGIN_IN_URL = "test-user:p%40ss%2Fword%3A1"


Credits = Callable[..., int | None]


def blocking(url: str, options: HttpOptions, *, until: float | None = None) -> int | None:
    with Client(url, KEY, http_options=options, retry_policy=RetryPolicy(tries=1, until=until)) as client:
        return client.credit_usage().data.remaining_credits


def awaited(url: str, options: HttpOptions, *, until: float | None = None) -> int | None:
    async def ask() -> int | None:
        once = RetryPolicy(tries=1, until=until)
        async with AsyncClient(url, KEY, http_options=options, retry_policy=once) as client:
            return (await client.credit_usage()).data.remaining_credits

    return asyncio.run(ask())


@pytest.fixture(params=["Client", "AsyncClient"])
def credits_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Credits:
    """A function that asks a service for its credits."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return blocking if request.param == "Client" else awaited


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def proxied(proxy: Proxy, authority: Authority, login: str = LOGIN_IN_URL) -> HttpOptions:
    return HttpOptions(proxy=proxy.url.replace("://", f"://{login}@"), ca_bundle=authority.bundle)


@proves(
    "S2",
    at="src/weblake/http/options.py",
    line="return httpx.Proxy(url.copy_with(username=None, password=None), auth=auth)",
    becomes="return httpx.Proxy(url.copy_with(username=None, password=None), auth=auth, "
    'headers={"authorization": "Bearer test-key-of-http-options"})',
    case="Client-http",
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_s2_a_proxy_with_a_password_opens_a_tunnel_and_sees_no_key(
    credits_of: Credits, authority: Authority, scheme: str
) -> None:
    service = Service(authority.server_context())
    proxy = Proxy(authority.server_context() if scheme == "https" else None, login=LOGIN)
    with closed_at_end(service, proxy):
        assert credits_of(service.url, proxied(proxy, authority)) == CREDITS
    assert len(service.heads) == 1
    assert contains_secret(service.heads[0], KEY)
    assert b"roxy-" not in service.heads[0]
    assert proxy.heads[0].startswith(f"CONNECT localhost:{service.port} HTTP/1.1\r\n".encode())
    assert not any(contains_secret(head, KEY) for head in proxy.heads)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_wrong_password_names_the_proxy_and_not_the_password(
    credits_of: Credits, authority: Authority, scheme: str
) -> None:
    service = Service(authority.server_context())
    proxy = Proxy(authority.server_context() if scheme == "https" else None, login=LOGIN)
    wrong = "wrong-password"
    with closed_at_end(service, proxy), pytest.raises(AskPerson) as caught:
        credits_of(service.url, proxied(proxy, authority, f"test-user:{wrong}"))
    assert service.heads == []
    assert len(proxy.heads) == 1
    assert proxy.url in str(caught.value)
    assert "407" in str(caught.value)
    assert [text for text in all_texts_of(caught.value) if wrong in text and "CONNECT" not in text] == []


def test_the_certificate_of_an_https_proxy_is_checked(
    credits_of: Credits, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    service = Service(authority.server_context())
    proxy = Proxy(Authority(tmp_path / "other", "another authority").server_context(), login=LOGIN)
    with closed_at_end(service, proxy), pytest.raises(AskPerson, match="is not valid") as caught:
        credits_of(service.url, proxied(proxy, authority))
    assert proxy.heads == []
    assert f"of the proxy {proxy.url}" in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_certificate_of_a_service_behind_a_proxy_is_checked(
    credits_of: Credits, authority: Authority, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "other").mkdir()
    service = Service(Authority(tmp_path / "other", "another authority").server_context())
    proxy = Proxy(authority.server_context() if scheme == "https" else None, login=LOGIN)
    with closed_at_end(service, proxy), pytest.raises(AskPerson, match="is not valid"):
        credits_of(service.url, proxied(proxy, authority))
    assert service.heads == []


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("said", [b"no TLS", b""], ids=["no TLS", "nothing"])
def test_a_broken_handshake_behind_a_proxy_has_started_nothing(
    authority: Authority, kind: type, scheme: str, said: bytes
) -> None:
    """Otherwise the outcome of the start would be unknown."""

    class Closing(Server):
        def _serve(self, peer: socket.socket) -> None:
            peer.sendall(said)

    service = Closing()
    proxy = Proxy(authority.server_context() if scheme == "https" else None, login=LOGIN)

    url, urls = service.url.replace("http:", "https:"), ["https://site.test/"]
    options, once = proxied(proxy, authority), RetryPolicy(tries=1)

    async def start() -> None:
        if kind is Client:
            with Client(url, KEY, http_options=options, retry_policy=once) as client:
                client.start_batch_scrape(urls)
        async with AsyncClient(url, KEY, http_options=options, retry_policy=once) as awaited:
            await awaited.start_batch_scrape(urls)

    began = time.monotonic()
    with closed_at_end(service, proxy), pytest.raises(ServiceUnreachable):
        asyncio.run(start())
    assert len(proxy.heads) == 1
    assert time.monotonic() - began < transport.CONNECT_S, "the end of the connection ends the handshake"


def test_an_authority_is_trusted_only_where_the_bundle_has_it(credits_of: Credits, authority: Authority) -> None:
    service = Service(authority.server_context())
    with closed_at_end(service):
        assert credits_of(service.url, HttpOptions(ca_bundle=authority.bundle)) == CREDITS
        with pytest.raises(AskPerson, match=r"HttpOptions\(ca_bundle=") as caught:
            credits_of(service.url, HttpOptions())
    assert "certificate of https://localhost" in str(caught.value)
    assert len(service.heads) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ca_bundle", None),
        ("ca_bundle", "no PEM"),
        ("ca_bundle", "key"),
        ("ca_bundle", "revocation list"),
        ("client_certificate", None),
        ("client_certificate", "no PEM"),
        ("client_key", None),
    ],
)
def test_a_file_that_cannot_be_used_is_named_before_the_first_request(
    name: str, content: str | None, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.certificate("client")
    file = tmp_path / "file.pem"
    if content == "revocation list":
        file.write_bytes(authority.revocation_list())
    elif content is not None:
        file.write_text(key.read_text() if content == "key" else content)
    options = HttpOptions(**{"client_certificate": certificate} | {name: file})  # type: ignore[arg-type]
    for make in (Client, AsyncClient):
        with pytest.raises(InvalidOption, match=f"^`{name}` cannot be used: {file}: ") as caught:
            make("https://service.example", KEY, http_options=options)
        assert "PEM file" in caught.value.hint


def test_a_key_of_another_certificate_or_without_one_is_refused(authority: Authority) -> None:
    certificate, key = authority.certificate("client")
    _, other = authority.certificate("other")
    with pytest.raises(InvalidOption, match="`client_certificate` cannot be used"):
        Client(
            "https://service.example", KEY, http_options=HttpOptions(client_certificate=certificate, client_key=other)
        )
    with pytest.raises(InvalidOption, match="`client_key` is given without `client_certificate`"):
        Client("https://service.example", KEY, http_options=HttpOptions(client_key=key))


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://test-user:test-password@h",
        "http://test-user:test-password@[::",
        "http://test-user:test-password@h:99999",
        "://",
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(proxy: str) -> None:
    for make in (Client, AsyncClient):
        with pytest.raises(InvalidOption, match=r"^`proxy` names a proxy that weblake cannot use") as caught:
            make("https://service.example", KEY, http_options=HttpOptions(proxy=proxy))
        assert [text for text in all_texts_of(caught.value) if "test-password" in text] == []


@pytest.mark.parametrize("in_one_file", [False, True])
def test_a_client_certificate_opens_a_service_that_asks_for_one(
    credits_of: Credits, authority: Authority, in_one_file: bool, tmp_path: Path
) -> None:
    certificate, key = authority.certificate("client")
    if in_one_file:
        both = tmp_path / "both.pem"
        both.write_text(certificate.read_text() + key.read_text())
        options = HttpOptions(ca_bundle=authority.bundle, client_certificate=both)
    else:
        options = HttpOptions(ca_bundle=authority.bundle, client_certificate=certificate, client_key=key)
    service = Service(authority.server_context(client_certificates=True))
    with closed_at_end(service):
        assert credits_of(service.url, options) == CREDITS


@pytest.mark.parametrize("which", ["none", "of another authority"])
def test_without_the_client_certificate_a_person_is_asked(
    credits_of: Credits, authority: Authority, which: str, tmp_path: Path
) -> None:
    options = HttpOptions(ca_bundle=authority.bundle)
    if which != "none":
        (tmp_path / "other").mkdir()
        certificate, key = Authority(tmp_path / "other", "another authority").certificate("client")
        options = HttpOptions(ca_bundle=authority.bundle, client_certificate=certificate, client_key=key)
    service = Service(authority.server_context(client_certificates=True))
    with closed_at_end(service), pytest.raises(AskPerson, match="client certificate"):
        credits_of(service.url, options)
    assert service.heads == []


@pytest.mark.parametrize(
    ("base", "proxy", "used"),
    [
        ("http://127.0.0.1:8080", "http://proxy.example:3128", False),
        ("http://127.0.0.1:8080", "http://localhost:3128", True),
        ("https://127.0.0.1:8080", "http://proxy.example:3128", True),
        ("http://service.example", "http://proxy.example:3128", True),
    ],
)
def test_only_plain_http_of_loopback_is_kept_from_a_proxy_elsewhere(base: str, proxy: str, used: bool) -> None:
    found = HttpOptions(proxy=proxy).proxy_for(BaseUrl.parse(base, insecure=True))
    assert (found is not None) is used


@proves(
    "S2",
    at="src/weblake/http/options.py",
    line="if is_loopback(base.host) or urllib.request.proxy_bypass(base.netloc):",
    becomes="if urllib.request.proxy_bypass(base.netloc):",
)
@pytest.mark.parametrize(
    ("base", "environment", "used"),
    [
        ("https://service.example", {"HTTPS_PROXY": "http://first:1", "ALL_PROXY": "http://second:2"}, "first"),
        ("https://service.example", {"HTTP_PROXY": "http://first:1", "ALL_PROXY": "http://second:2"}, "second"),
        ("http://127.0.0.1:8080", {"HTTP_PROXY": "http://first:1", "ALL_PROXY": "http://second:2"}, None),
        ("https://service.example:8443", {"ALL_PROXY": "http://second:2", "NO_PROXY": "service.example:8443"}, None),
        (
            "https://service.example:8444",
            {"ALL_PROXY": "http://second:2", "NO_PROXY": "service.example:8443"},
            "second",
        ),
    ],
)
def test_s2_the_proxy_of_the_environment_for_a_service(
    base: str, environment: dict[str, str], used: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = HttpOptions().proxy_for(BaseUrl.parse(base))
    assert (found and found.url.host) == used


#: Prints what the check of a client certificate shows on its terminal.
CHECK_ON_A_TERMINAL = """
import os, pty, sys
from pathlib import Path
child, terminal = pty.fork()
if child:
    print(os.read(terminal, 1000).decode(), end="")
    sys.exit()
from weblake.errors import InvalidOption
from weblake.http.options import HttpOptions
try:
    HttpOptions(client_certificate=Path(sys.argv[1]), client_key=Path(sys.argv[2])).check()
except InvalidOption:
    os.write(1, b"refused")
"""


def test_the_password_of_an_encrypted_key_is_not_asked_for_on_the_terminal(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.certificate("client")
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"test-password")
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(loaded.private_bytes(*form))
    command = [sys.executable, "-c", CHECK_ON_A_TERMINAL, str(certificate), str(encrypted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "refused", done.stderr


def test_no_password_is_in_a_repr() -> None:
    options = HttpOptions(proxy="http://test-user:test-password@proxy.example:3128")
    client = Client("https://service.example", KEY, http_options=options)
    assert "test-password" not in f"{options!r} {options} {client!r} {vars(client.transport)}"
