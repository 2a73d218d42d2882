"""Decides which target addresses the service may reach.

A service that fetches arbitrary URLs could give its users access to its internal network. Names are therefore resolved
here, every address is checked, and the connection uses the checked address itself (see fetch.py), so that a changed DNS
answer (DNS rebinding) has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import httpx

from weblake_service.page_failure import PageFailure

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Networks for special purposes, although `ipaddress` classifies some of them as global.
_SPECIAL_NETWORKS = [
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # carrier-grade NAT, and one cloud's metadata service
        "168.63.129.16/32",  # another cloud's host agent
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "fd00:ec2::/32",
        "fec0::/10",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
    )
]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")
_MAX_URL_CHARS = 16_384


def clean_url(url: str, *, allow_private: bool = False) -> str:
    """Return the URL that will be fetched: with `http://` if no scheme was given, host in its ASCII form.

    Raises PageFailure with status 400 for anything that is not an http or https URL with a host; a host without a dot
    is refused too, unless `allow_private`.
    """
    text = with_scheme(url)
    try:
        parsed = httpx.URL(text)
        port = parsed.port
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise _invalid_url(url, f"cannot be read as a URL ({error})") from error
    if parsed.scheme not in {"http", "https"}:
        raise _invalid_url(url, f"has the scheme {parsed.scheme!r}; only http and https can be scraped")
    host = ascii_host(parsed)
    if not host or any(ord(letter) <= 32 or letter in "<>\"'\\^`{|}%" for letter in host):
        raise _invalid_url(url, "has no usable host")
    if len(text) > _MAX_URL_CHARS:
        raise _invalid_url(f"{url[:80]}…", f"is longer than {_MAX_URL_CHARS} characters")
    if port is not None and not 0 < port < 65536:
        raise _invalid_url(url, f"has the port {port}")
    if not allow_private and "." not in host.strip(".") and ":" not in host and not _is_number(host):
        raise _invalid_url(url, "has a host without a dot, which no public site has")
    return str(parsed)


def ascii_host(url: httpx.URL) -> str:
    """Return the host of a URL as it is resolved and connected to.

    `URL.host` decodes it: that fails for names such as emoji domains, and the resolver would encode some of the decoded
    names to others (`faß.de` to `fass.de`).
    """
    return url.raw_host.decode("ascii")


def with_scheme(url: str) -> str:
    """Return the URL as requested, with `http://` if it has no scheme; this is the form in `sourceURL`."""
    text = url.strip()
    return text if "://" in text or _names_scheme(text) else f"http://{text.removeprefix('//')}"


def is_public(address: Address) -> bool:
    """Return whether an address is public; one that embeds an IPv4 address is judged by the embedded address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        elif int(address) >> 32 == 0 and int(address) > 1:
            inner = ipaddress.IPv4Address(int(address))
        if inner is not None:
            return is_public(inner)
    if any(address.version == network.version and address in network for network in _SPECIAL_NETWORKS):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_literal_private(host: str) -> bool:
    """Return whether a host is private without a look-up: localhost, or a private address in any spelling."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return not is_public(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        pass
    try:
        # Parses 2130706433, 0x7f.1 and 0177.0.0.1 as the system's resolver does, without a DNS query.
        return not is_public(ipaddress.IPv4Address(socket.inet_aton(name)))
    except (OSError, UnicodeError):
        return False


@cache
def _look_up_threads(process: int) -> ThreadPoolExecutor:
    # Of look-ups alone: a name whose servers do not answer occupies one for half a minute, also when the page's time is
    # over. By process, because a forked one has none of its parent's threads.
    return ThreadPoolExecutor(1000, thread_name_prefix="weblake-look-up")


async def resolve(host: str, port: int, *, allow_private: bool = False) -> list[str]:
    """Return the addresses of a host that may be connected to, in the order in which to try them.

    Decimal, octal and hexadecimal spellings are read as the system reads them. Raises PageFailure: 403 if every address
    is private, 500 with the code for DNS failures if there is none.
    """
    try:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(_look_up_threads(os.getpid()), look_up)
    except (OSError, UnicodeError) as error:
        message = f"The name {host} could not be resolved ({_reason(error)}). Check the spelling of the URL."
        raise PageFailure("SCRAPE_DNS_RESOLUTION_ERROR", message, reached=False) from error
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    allowed = [text for text in addresses if allow_private or is_public(ipaddress.ip_address(text))]
    if not allowed:
        raise private_target_failure(host)
    return allowed


def private_target_failure(host: str) -> PageFailure:
    """Return the failure for a target in a private network."""
    message = (
        f"{host} is not on the public internet: loopback, private and link-local targets are refused. "
        "Start the service with --allow-private to scrape them."
    )
    return PageFailure("unsafe_domain_blocked", message, status=403, reached=False)


def _names_scheme(text: str) -> bool:
    """Return whether the text begins with a scheme, and not with a host and its port."""
    match = _SCHEME.match(text)
    return match is not None and not re.match(r"^[^/?#:]+:\d+(?:[/?#]|$)", text)


def _is_number(host: str) -> bool:
    return re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", host) is not None


def _invalid_url(url: str, why: str) -> PageFailure:
    return PageFailure("BAD_REQUEST", f"{url!r} {why}. Mend it and send the request again.", status=400, reached=False)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
