"""Which URLs may be asked for at all, before anything is looked up. Imports: addresses, answers, failures.

The fetch itself judges every address again once it is resolved, and every redirect.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from weblake.service.answers import Refusal
from weblake.service.failures import PageFailure
from weblake.service.web.addresses import blocked, clean_url, is_public


def target(url: str, *, allow_private: bool) -> str:
    """The URL as it will be fetched: with a scheme, its host in ASCII.

    Raises:
        PageFailure: 400 where it is no http(s) URL with a host, 403 where its host is private and those are refused.
    """
    clean = clean_url(url, allow_private=True)
    host = urlsplit(clean).hostname or ""
    if allow_private:
        return clean
    if _is_private(host):
        raise blocked(host)
    # Only a host without a dot is judged differently now, and a batch may have a hundred thousand URLs.
    return clean if "." in host.strip(".") else clean_url(url)


def split(urls: Iterable[str], *, allow_private: bool) -> tuple[list[str], list[str], PageFailure | None]:
    """The URLs that can be scraped, those that cannot, both as they came, and what is wrong with the first of these."""
    good: list[str] = []
    bad: list[str] = []
    first = None
    for url in urls:
        try:
            target(url, allow_private=allow_private)
        except PageFailure as problem:
            bad.append(url)
            first = first or problem
        else:
            good.append(url)
    return good, bad, first


def refusal(problem: PageFailure) -> Refusal:
    """The reply to a request that is about this URL alone."""
    details = [{"message": problem.message}] if problem.status == 400 else None
    return Refusal(problem.status, problem.message, code=problem.code, details=details)


@lru_cache(maxsize=4096)
def _is_private(host: str) -> bool:
    """Whether the host says by itself that it is private; what a name stands for shows when it is fetched."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith((".localhost", ".local", ".internal", ".home.arpa")):
        return True
    try:
        return not is_public(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        pass
    try:
        # The system reads 2130706433, 0x7f.1 and 127.1 as addresses, so a fetch would too.
        return not is_public(ipaddress.IPv4Address(socket.inet_aton(name)))
    except OSError:
        return False
