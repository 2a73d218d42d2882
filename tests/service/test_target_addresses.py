"""Which targets are allowed: private networks in every spelling, and invalid URLs."""

from __future__ import annotations

import asyncio
import ipaddress
import multiprocessing
import socket
from contextlib import suppress
from typing import NoReturn

import httpx
import loopback_site as loopback
import pytest
from catalogue import proves
from hypothesis import given
from hypothesis import strategies as st

from weblake_service.browser.upstream_proxy import connect_tunnel
from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url, is_literal_private, is_public, resolve

Site, Handler, site = loopback.Site, loopback.Handler, loopback.site
fetching, get, failure = loopback.fetching, loopback.get, loopback.failure


CLOSED = (
    "127.0.0.1 127.1 2130706433 0x7f000001 0x7f.1 0 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 "
    "100.64.0.1 100.100.100.200 168.63.129.16 224.0.0.1 255.255.255.255 198.18.0.1 [::1] [::] [fe80::1] [fc00::1] "
    "[::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::] [ff02::1] [fd00:ec2::254]"
)


@proves(
    "S7",
    at="src/weblake_service/web/addresses.py",
    line="if allow_private or is_public(ipaddress.ip_address(text))]",
    becomes="]",
    case="127.0.0.1",
)
@proves(
    "S7",
    at="src/weblake_service/web/addresses.py",
    line="return not is_public(ipaddress.IPv4Address(socket.inet_aton(name)))",
    becomes="return False",
    case="0x7f.1",
)
@pytest.mark.parametrize("host", CLOSED.split())
def test_s7_private_addresses_are_refused_in_every_spelling(host: str) -> None:
    problem = failure(f"http://{host}:1/", fetcher_options={"allow_private": False})
    assert (problem.code, problem.status, problem.reached) == ("unsafe_domain_blocked", 403, False)
    assert is_literal_private(host)


@pytest.mark.parametrize("host", ["localhost", "app.localhost", "0177.0.0.1", "127.0.0.1.", "①②⑦.⓪.⓪.①", "localhost."])
def test_s7_other_names_of_loopback_are_refused(site: Site, host: str) -> None:
    """Which of the three errors it is depends on the resolver of this machine."""
    problem = failure(f"http://{host}:{site.server_port}/", fetcher_options={"allow_private": False})
    assert problem.code in {"unsafe_domain_blocked", "SCRAPE_DNS_RESOLUTION_ERROR", "BAD_REQUEST"}
    assert site.requests == []


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@proves("S7", at="src/weblake_service/web/addresses.py", line="if inner is not None:", becomes="if False:")
@given(st.ip_addresses(v=4))
def test_s7_an_ipv4_address_is_treated_alike_in_every_ipv6_form(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    wrapped = [f"::ffff:{address}", f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}"]
    assert {is_public(ipaddress.ip_address(text)) for text in wrapped} == {is_public(address)}
    assert is_literal_private(str(number)) == is_literal_private(hex(number)) == (not is_public(address))


@proves(
    "S7",
    at="src/weblake_service/web/addresses.py",
    line="return address.is_global and not address.is_multicast and not address.is_reserved",
    becomes="return True",
)
@given(st.ip_addresses())
def test_s7_every_address_that_python_calls_private_is_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert not is_public(address) or (address.version == 6 and address in ipaddress.ip_network("64:ff9b::/96"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.org",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http://ex ample.org/",
        "data:,x",
        "http://a.b:99999/",
        "http://a.b:0/",
        "mailto:a@b.de",
    ],
)
def test_s7_a_non_web_url_is_refused_before_any_request(url: str) -> None:
    problem = failure(url)
    assert (problem.code, problem.status) == ("BAD_REQUEST", 400)


@pytest.mark.parametrize(
    ("given_url", "fetched"),
    [
        ("example.org", "http://example.org"),
        ("example.org:8080/a", "http://example.org:8080/a"),
        ("//example.org/a", "http://example.org/a"),
        (" https://Example.ORG/ä?q=ü ", "https://example.org/%C3%A4?q=%C3%BC"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        # Names that IDNA 2008 does not decode: an emoji domain, and one that is not registered.
        ("http://xn--i-7iq.ws/", "http://xn--i-7iq.ws/"),
        ("http://xn--a.test/", "http://xn--a.test/"),
    ],
)
def test_a_url_is_normalised(given_url: str, fetched: str) -> None:
    assert clean_url(given_url) == fetched


@pytest.mark.parametrize("host", ["xn--fa-hia.example", "xn--i-7iq.ws", "xn--a.test"])
@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
def test_the_resolved_name_is_that_of_the_url(monkeypatch: pytest.MonkeyPatch, host: str, proxy: str) -> None:
    """`faß.example`, the decoded form of the first, would be resolved as `fass.example`."""
    for name in ("no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    asked: list[object] = []

    def look_up(name: object, *_: object, **__: object) -> NoReturn:
        asked.append(name)
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    failure(f"http://{host}/", fetcher_options={"allow_private": False})
    with pytest.raises(PageFailure):
        asyncio.run(connect_tunnel(httpx.URL(f"https://{host}"), allow_private=False))
    assert {name for name in asked if name != "127.0.0.1"} == {host}


def test_a_host_without_a_dot_needs_allow_private() -> None:
    with pytest.raises(PageFailure, match="without a dot"):
        clean_url("http://intranet/")
    assert clean_url("http://intranet/", allow_private=True) == "http://intranet/"


@given(st.text(max_size=60))
def test_any_text_is_normalised_or_refused(text: str) -> None:
    with suppress(PageFailure):
        url = clean_url(text, allow_private=True)
        assert url.startswith(("http://", "https://"))
        assert clean_url(url, allow_private=True) == url


def look_up() -> list[str]:
    return asyncio.run(resolve("localhost", 80, allow_private=True))


def test_a_forked_process_looks_names_up() -> None:
    """Threads that wait for work in this process do not exist in a forked one."""
    here = look_up()
    with multiprocessing.get_context("fork").Pool(1) as child:
        assert child.apply_async(look_up).get(timeout=30) == here
