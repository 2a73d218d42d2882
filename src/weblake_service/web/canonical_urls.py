"""Canonical URLs: decides whether a crawl treats two URLs as the same page."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from w3lib.url import canonicalize_url

from weblake.api.page_keys import route_of

_DEFAULT_PORTS = {"http": 80, "https": 443}
_INDEX_FILE = re.compile(r"/(?:index|default)\.(?:html?|xhtml|php|aspx?|jsp)$", re.IGNORECASE)


def split(url: str) -> SplitResult | None:
    """Return the parts of an http or https URL, or None for anything else.

    The host is in lower case; a default port is removed, and a fragment that is no route of an application.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not host:
        return None
    netloc = f"[{host}]" if ":" in host else host.rstrip(".")
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        netloc = f"{netloc}:{port}"
    return parts._replace(netloc=netloc, path=parts.path or "/", fragment=route_of(parts.fragment))


def url_to_visit(parts: SplitResult, *, ignore_query: bool) -> str:
    """Return the URL as a crawl fetches it: as `split` it and, if requested, without query, also in its route."""
    url = urlunsplit(parts._replace(query="", fragment=parts.fragment.partition("?")[0]) if ignore_query else parts)
    # Whitespace that was before the fragment is part of the URL. At its end, `split` would remove it.
    visible = url.rstrip()
    return visible + quote(url[len(visible) :])


def canonical_key(parts: SplitResult, *, similar: bool, ignore_query: bool) -> str:
    """Return the key that two URLs of the same page share.

    The order of the query and the spelling of escapes are always ignored. With `similar`, so are http or https, "www.",
    a trailing slash, and an index file.
    """
    url = url_to_visit(parts, ignore_query=ignore_query)
    try:
        url = str(canonicalize_url(url, keep_fragments=True))
    except ValueError:
        return url
    if not similar:
        return url
    plain = urlsplit(url)
    path = _INDEX_FILE.sub("/", plain.path).rstrip("/")
    return urlunsplit(("", site_of(plain), path, plain.query, plain.fragment.rstrip("/")))


def site_of(parts: SplitResult) -> str:
    """Return host and port, without "www."."""
    return parts.netloc.removeprefix("www.")
