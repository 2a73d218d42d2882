"""The key of a page: its URL without what services change. Pure functions, no I/O (docs/site/reference/dataset.md)."""

from __future__ import annotations

import re
from contextlib import suppress
from encodings.idna import nameprep
from functools import lru_cache
from urllib.parse import unquote, urlsplit

#: Escapes that stay: of characters that have another meaning unescaped (`/a%2Fb` is another page than `/a/b`), and of
#: control characters, which not every database stores.
_KEPT_ESCAPES = re.compile(r"(%(?:2[36BbFf]|3[BbDdFf]|25|[01][0-9A-Fa-f]|7[Ff]))")
#: Bytes that are not UTF-8, as `surrogateescape` decodes them.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

#: The dots between the labels of a host, and the letters that Python's codec replaces (`ß` by `ss`) or removes, but
#: browsers and httpx encode: the names with and without them may belong to different owners.
_DOTS, _KEPT_LETTERS = re.compile("[.\u3002\uff0e\uff61]"), re.compile("([\u00df\u03c2\u200c\u200d])")

#: Matches nearly every URL: one that needs no normalisation beyond the groups of this pattern.
_SIMPLE_URL = re.compile(r'https?://(?:www\.)?([a-z0-9.-]*[a-z0-9-])(?::80|:443)?(/[!"$&->@-~]*)?(\?[!"$&-~]+)?')


@lru_cache(maxsize=1024)  # the URL of a document is looked up several times in succession
def page_key(url: str) -> str:
    """Return the part of a URL that names its page: services add a scheme or a slash, and change case and escapes.

    Ignored: the scheme (http or https), `www.`, the default port, a fragment that is no route, a trailing slash, the
    case of the host, and percent-escapes of characters that need none. Compared: the case of the path, query and route.
    """
    plain = _SIMPLE_URL.fullmatch(url)
    if plain is None:
        return page_key_slow(url)
    host, path, query = plain.groups("")
    return host + path.rstrip("/") + query


def page_key_slow(url: str) -> str:
    """Return the same key as `page_key` without the fast path; takes three times as long."""
    text = url.strip()
    if "://" not in text:
        text = f"http://{text.removeprefix('//')}"
    try:
        parts = urlsplit(text)
        if "\u03a3" in parts.netloc:
            parts = parts._replace(netloc=parts.netloc.replace("\u03a3", "\u03c3"))  # `lower` makes a final one \u03c2
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return text
    if not host.isascii():
        with suppress(UnicodeError):
            host = ".".join(map(_encode_label, _DOTS.split(host)))
    host = host.removeprefix("www.")
    port_text = "" if port in (None, 80, 443) else f":{port}"
    query = f"?{_unescape(parts.query)}" if parts.query else ""
    route = f"#{_unescape(route_of(parts.fragment))}".rstrip("#/")
    return f"{host}{port_text}{_unescape(parts.path).rstrip('/')}{query}{route}"


def route_of(fragment: str) -> str:
    """Return a fragment that names a page of an application (`/about`, `!/about`), else an empty text."""
    return fragment if fragment.rstrip("/").startswith(("/", "!/")) else ""


def _encode_label(label: str) -> str:
    """Return one label of a host in ASCII, as browsers encode it; raises UnicodeError if that is not possible."""
    parts = _KEPT_LETTERS.split(label)
    if len(parts) == 1:
        return label.encode("idna").decode("ascii")
    kept = "".join(part if number % 2 else nameprep(part) for number, part in enumerate(parts))
    return f"xn--{kept.encode('punycode').decode('ascii')}"


def _unescape(text: str) -> str:
    if "%" not in text:
        return text
    plain = "".join(
        piece.upper() if number % 2 else unquote(piece, errors="surrogateescape")
        for number, piece in enumerate(_KEPT_ESCAPES.split(text))
    )
    # Bytes that are not UTF-8 stay escaped and distinct: `%E9` is another page than `%E8`.
    return _NOT_UTF8.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", plain)
