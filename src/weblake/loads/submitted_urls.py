"""The URLs that were sent, and the number of results for each of them. Pure functions, no I/O.

A service may return a URL in another spelling than it was sent, so URLs are compared by `page_key`. Two sent URLs with
the same key are still two pages, so an exact match with a sent URL takes precedence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from weblake.api.page_keys import page_key


class Submitted:
    """The URLs of a list, each of which is sent once; results are taken from it one by one."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._key_of = {url: page_key(url) for url in urls}
        #: Number of different URLs, and how many more the list has: exact repetitions, which are not sent.
        self.count = len(self._key_of)
        self.repeated = len(urls) - self.count
        self._keys = Counter(self._key_of.values())
        self._answered: set[str] = set()
        #: By key: all results, and the results under a spelling that was not sent.
        self._arrived: Counter[str] = Counter()
        self._respelled: Counter[str] = Counter()

    def __contains__(self, url: str) -> bool:
        return url in self._key_of or page_key(url) in self._keys

    def has_room(self, url: str) -> bool:
        """Return whether this URL may have another result; more results than it was sent are repetitions."""
        if url in self._key_of:
            return url not in self._answered
        key = page_key(url)
        return self._arrived[key] < self._keys[key]

    def answer(self, url: str) -> bool:
        """Count a result; return False if an earlier result in another spelling then belongs to no sent page."""
        key = self._key_of.get(url)
        if key is None:
            key = page_key(url)
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
