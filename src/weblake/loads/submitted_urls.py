"""The URLs that were sent, and which of them have been answered. Pure.

A service may spell a URL otherwise than it was sent, so URLs are compared by `url_key`; but two that were sent and have
one key are still two pages, so the text that was sent decides wherever the service repeats it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

#: Escapes of characters that mean something else where they stand unescaped: `/a%2Fb` is another page than `/a/b`.
_MEANT = re.compile(r"(%(?:2[36BbFf]|3[BbDdFf]|25))")

#: Nearly every URL: nothing in it is spelled in a way that has another.
_PLAIN = re.compile(r'https?://(?:www\.)?([a-z0-9.-]*[a-z0-9-])(?::80|:443)?(/[!"$&->@-~]*)?(\?[!"$&-~]+)?')


@lru_cache(maxsize=1024)  # the URL of one document is looked up several times in a row
def url_key(url: str) -> str:
    """What of a URL is compared: services add a scheme or a slash, and change case and escapes.

    Scheme (of http and https), `www.`, default port, fragment, trailing slash, host case and the percent-escapes of
    what needs none do not count; path case and the query do.
    """
    plain = _PLAIN.fullmatch(url)
    if plain is None:
        return long_key(url)
    host, path, query = plain.groups("")
    return host + path.rstrip("/") + query


def long_key(url: str) -> str:
    """The same by the rules themselves, in three times the time."""
    text = url.strip()
    if "://" not in text:
        text = f"http://{text.removeprefix('//')}"
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return text
    with suppress(UnicodeError):
        host = host.encode("idna").decode("ascii")
    host = host.removeprefix("www.")
    port_text = "" if port in (None, 80, 443) else f":{port}"
    query = f"?{_plain(parts.query)}" if parts.query else ""
    return f"{host}{port_text}{_plain(parts.path).rstrip('/')}{query}"


def _plain(text: str) -> str:
    if "%" not in text:
        return text
    pieces = _MEANT.split(text)
    return "".join(piece.upper() if number % 2 else unquote(piece) for number, piece in enumerate(pieces))


@dataclass(frozen=True, slots=True)
class Open:
    """A URL that has fewer answers than it was sent."""

    url: str
    times: int
    #: Whether it has had any itself, and whether one of the same key has.
    answered: bool
    like_answered: bool


class Submitted:
    """Each URL as often as it was sent; answers are taken from it one by one."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.count = len(urls)
        self._sent = Counter(urls)
        self._key_of = {url: url_key(url) for url in self._sent}
        self._keys = Counter(self._key_of[url] for url in urls)
        self._answered: Counter[str] = Counter()
        #: By key: answers in all, and those under a spelling that was not sent.
        self._arrived: Counter[str] = Counter()
        self._respelled: Counter[str] = Counter()

    def __contains__(self, url: str) -> bool:
        return url in self._sent or url_key(url) in self._keys

    def has_room(self, url: str) -> bool:
        """Whether this URL may have one more answer; more than it was sent is the service repeating itself."""
        if url in self._sent:
            return self._answered[url] < self._sent[url]
        key = url_key(url)
        return self._arrived[key] < self._keys[key]

    def answer(self, url: str) -> bool:
        """Takes one answer; False where a respelled one before it was then of no page that was sent."""
        key = self._key_of.get(url)
        if key is None:
            key = url_key(url)
            self._respelled[key] += 1
        else:
            self._answered[url] += 1
        if self._arrived[key] == self._keys[key]:
            self._respelled[key] -= 1
            return False
        self._arrived[key] += 1
        return True

    def open(self) -> Iterator[Open]:
        """What is not answered, in the order in which it was sent; respelled answers stand for the first ones."""
        respelled = self._respelled.copy()
        for url, sent in self._sent.items():
            key = self._key_of[url]
            left = sent - self._answered[url]
            stood_in = min(left, respelled[key])
            respelled[key] -= stood_in
            if left > stood_in:
                has = self._answered[url] + stood_in > 0
                yield Open(url, left - stood_in, has, self._arrived[key] > 0)
