"""Validates target URLs before any name is resolved.

The fetch itself checks every resolved address and every redirect again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url, is_literal_private, private_target_failure, with_scheme

#: A host of plain letters with a top-level domain, followed by printable ASCII: always valid for the full parser.
_SIMPLE_URL = re.compile(
    r"https?://((?:[a-z0-9]{1,30}(?:-[a-z0-9]{1,10}){0,3}\.){1,8}[a-z]{2,20})(?::[1-9]\d{0,3})?(?:[/?][!-~]*)?"
)
_MAX_SIMPLE_CHARS = 2000
#: Top-level domains that public DNS does not serve.
_PRIVATE_NAMES = (".local", ".internal", ".home.arpa")


def read_target_url(url: str, *, allow_private: bool) -> str:
    """Return the URL as it will be fetched: with a scheme, its host in ASCII.

    Raises:
        PageFailure: 400 if it is not an http(s) URL with a host, 403 if its host is private and that is not allowed.
    """
    clean = clean_url(url, allow_private=True)
    host = urlsplit(clean).hostname or ""
    if allow_private:
        return clean
    if _is_private(host):
        raise private_target_failure(host)
    # Fast path: only a host without a dot needs the full check, and a batch may have a hundred thousand URLs.
    return clean if "." in host.strip(".") else clean_url(url)


def split_urls(urls: Iterable[str], *, allow_private: bool) -> tuple[list[str], list[str], PageFailure | None]:
    """Return the valid URLs, each with a scheme; the invalid ones, as received; and the first one's error."""
    good: list[str] = []
    bad: list[str] = []
    first = None
    for url in urls:
        if _is_simple(url, allow_private=allow_private):
            good.append(with_scheme(url))
            continue
        try:
            read_target_url(url, allow_private=allow_private)
        except PageFailure as problem:
            bad.append(url)
            first = first or problem
        else:
            good.append(with_scheme(url))
    return good, bad, first


def _is_simple(url: str, *, allow_private: bool) -> bool:
    """Return whether a URL needs no full check: a batch may have a hundred thousand, and most match this pattern."""
    found = _SIMPLE_URL.fullmatch(url) if len(url) < _MAX_SIMPLE_CHARS else None
    return found is not None and (allow_private or not _is_private(found[1]))


@lru_cache(maxsize=4096)
def _is_private(host: str) -> bool:
    """Return whether the host is private by its name; a resolved address is checked when it is fetched."""
    return host.rstrip(".").lower().endswith(_PRIVATE_NAMES) or is_literal_private(host)
