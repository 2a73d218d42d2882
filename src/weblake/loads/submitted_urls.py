"""The URLs that were sent, and the number of results for each of them. Pure functions, no I/O.

A service may return a URL in another spelling than it was sent, so URLs are compared by `url_key`. Two sent URLs with
the same key are still two pages, so an exact match with a sent URL takes precedence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from encodings.idna import nameprep
from functools import lru_cache
from urllib.parse import unquote, urlsplit

#: Escapes of characters that have another meaning unescaped: `/a%2Fb` is another page than `/a/b`.
_RESERVED_ESCAPES = re.compile(r"(%(?:2[36BbFf]|3[BbDdFf]|25))")

#: The dots between the labels of a host, and the letters that Python's codec replaces (`ß` by `ss`) or removes, but
#: browsers and httpx encode: the names with and without them may belong to different owners.
_DOTS, _KEPT_LETTERS = re.compile("[.\u3002\uff0e\uff61]"), re.compile("([\u00df\u03c2\u200c\u200d])")

#: Matches nearly every URL: one that needs no normalisation beyond the groups of this pattern.
_SIMPLE_URL = re.compile(r'https?://(?:www\.)?([a-z0-9.-]*[a-z0-9-])(?::80|:443)?(/[!"$&->@-~]*)?(\?[!"$&-~]+)?')


@lru_cache(maxsize=1024)  # the URL of a document is looked up several times in succession
def url_key(url: str) -> str:
    """Return the part of a URL that is compared: services add a scheme or a slash, and change case and escapes.

    Ignored: the scheme (http or https), `www.`, the default port, the fragment, a trailing slash, the case of the host,
    and percent-escapes of characters that need none. Compared: the case of the path, and the query.
    """
    plain = _SIMPLE_URL.fullmatch(url)
    if plain is None:
        return url_key_slow(url)
    host, path, query = plain.groups("")
    return host + path.rstrip("/") + query


def url_key_slow(url: str) -> str:
    """Return the same key as `url_key` without the fast path; takes three times as long."""
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
    return f"{host}{port_text}{_unescape(parts.path).rstrip('/')}{query}"


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
    pieces = _RESERVED_ESCAPES.split(text)
    # Bytes that are not UTF-8 stay distinct: `%E9` is another page than `%E8`.
    return "".join(
        piece.upper() if number % 2 else unquote(piece, errors="surrogateescape") for number, piece in enumerate(pieces)
    )


class Submitted:
    """The URLs of a list, each of which is sent once; results are taken from it one by one."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._key_of = {url: url_key(url) for url in urls}
        #: Number of different URLs, and how many more the list has: exact repetitions, which are not sent.
        self.count = len(self._key_of)
        self.repeated = len(urls) - self.count
        self._keys = Counter(self._key_of.values())
        self._answered: set[str] = set()
        #: By key: all results, and the results under a spelling that was not sent.
        self._arrived: Counter[str] = Counter()
        self._respelled: Counter[str] = Counter()

    def __contains__(self, url: str) -> bool:
        return url in self._key_of or url_key(url) in self._keys

    def has_room(self, url: str) -> bool:
        """Return whether this URL may have another result; more results than it was sent are repetitions."""
        if url in self._key_of:
            return url not in self._answered
        key = url_key(url)
        return self._arrived[key] < self._keys[key]

    def answer(self, url: str) -> bool:
        """Count a result; return False if an earlier result in another spelling then belongs to no sent page."""
        key = self._key_of.get(url)
        if key is None:
            key = url_key(url)
            self._respelled[key] += 1
        else:
            self._answered.add(url)
        if self._arrived[key] == self._keys[key]:
            self._respelled[key] -= 1
            return False
        self._arrived[key] += 1
        return True

    def open(self) -> Iterator[tuple[str, bool]]:
        """Yield each URL without a result, in order, and whether a URL with the same key has one.

        Results in other spellings count for the first ones.
        """
        respelled = self._respelled.copy()
        for url, key in self._key_of.items():
            if url in self._answered:
                continue
            if respelled[key] > 0:
                respelled[key] -= 1
            else:
                yield url, self._arrived[key] > 0
