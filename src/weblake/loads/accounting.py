"""The account of a load: what became of each submitted URL. Pure functions, no I/O.

submitted = stored + failed + robots_blocked + rejected + missing + duplicates; each of them is a row of a table. The
service's counters are not reliable (`total` may leave out failed pages), so the account is computed from the list that
was sent, the documents that arrived, and `/errors`; `total` and `completed` are only compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from weblake.api.models import JobErrors
from weblake.api.page_keys import page_key
from weblake.events import count_of


@dataclass(frozen=True, slots=True)
class PageError:
    """A row of `page_errors`: a page without a document, and the reason."""

    url: str | None
    #: `failed`, `robots_blocked`, `rejected` or `missing`.
    outcome: str
    code: str | None = None
    error: str | None = None
    occurred_at: str | None = None


#: Maximum number of rows for missing pages without a URL: their number comes from the counters of the service, which
#: may have any value.
MAX_NAMELESS = 100_000

_MISSING = PageError(None, "missing", None, "neither a document nor an error of the service accounts for it")
_MALFORMED = PageError(None, "failed", "MALFORMED_DOCUMENT", "the service returned something that is no document")


@dataclass(slots=True)
class Account:
    """The counts of one load, and its rows of `page_errors`."""

    submitted: int = 0
    stored: int = 0
    failed: int = 0
    robots_blocked: int = 0
    rejected: int = 0
    missing: int = 0
    duplicates: int = 0
    #: Documents of pages that were not submitted: the list and the job do not belong together.
    foreign: int = 0
    rows: list[PageError] = field(default_factory=list)

    def add(self, row: PageError) -> None:
        """Count one page without a document."""
        setattr(self, row.outcome, getattr(self, row.outcome) + 1)
        self.rows.append(row)

    def add_missing(self, pages: int) -> None:
        """Count missing pages whose URLs are not known."""
        self.missing += pages
        self.rows += [_MISSING] * min(pages, MAX_NAMELESS)

    @property
    def complete(self) -> bool:
        """True if every submitted URL has a document or a row with a reason."""
        return self.missing == 0 and self.foreign == 0

    def missing_urls(self) -> list[str]:
        """Return the missing URLs, as far as they are known."""
        return [row.url for row in self.rows if row.outcome == "missing" and row.url is not None]


class Submitted:
    """The URLs of a list, each of which is sent once; results are taken from it one by one.

    A service may return a URL in another spelling than it was sent, so URLs are compared by `_key`. Two sent URLs
    with the same key are still two pages, so an exact match with a sent URL takes precedence.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._key_of = {url: _key(url) for url in urls}
        #: Number of different URLs, and how many more the list has: exact repetitions, which are not sent.
        self.count = len(self._key_of)
        self.repeated = len(urls) - self.count
        self._keys = Counter(self._key_of.values())
        self._answered: set[str] = set()
        #: By key: all results, and the results under a spelling that was not sent.
        self._arrived: Counter[str] = Counter()
        self._respelled: Counter[str] = Counter()

    def __contains__(self, url: str) -> bool:
        return url in self._key_of or _key(url) in self._keys

    def has_room(self, url: str) -> bool:
        """Return whether this URL may have another result; more results than it was sent are repetitions."""
        if url in self._key_of:
            return url not in self._answered
        key = _key(url)
        return self._arrived[key] < self._keys[key]

    def answer(self, url: str) -> bool:
        """Count a result; return False if an earlier result in another spelling then belongs to no sent page."""
        key = self._key_of.get(url)
        if key is None:
            key = _key(url)
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


def _key(url: str) -> str:
    """Return the part of a URL that every service returns: its page key, without a route in its fragment."""
    return page_key(url.partition("#")[0])


class Reconciler:
    """Counts the documents of a job as they arrive and computes the account at the end."""

    def __init__(self, submitted: Sequence[str] | None, rejected: Iterable[str] = ()) -> None:
        """Create a reconciler with all counts 0.

        Args:
            submitted: The list as it was given; None if only the service knows it (a crawl, a job started elsewhere).
            rejected: URLs that the start response listed as invalid.
        """
        self._list = None if submitted is None else Submitted(submitted)
        self._rejected = list(rejected)
        #: URLs of the documents that arrived, as the service spells them; used if there is no list.
        self._arrived: set[str] = set()
        self._seen: set[bytes] = set()
        self._stored = 0
        self._nameless = 0
        self._foreign = 0
        self._malformed = 0

    def document(self, scrape_id: str | None, source_url: str | None, url: str | None, content: bytes) -> bool:
        """Count a document and return whether it is new; a document that the service sends twice is stored once.

        Args:
            scrape_id: The service's id of the page.
            source_url: The URL as requested.
            url: The URL after redirects.
            content: A digest of the document.
        """
        page = self._page(source_url, url)
        listed = page is not None and self._list is not None and page in self._list
        if page is not None and listed and self._list is not None and not self._list.has_room(page):
            return False
        # The id alone is not enough: if a service gives all pages the same id, no page may be lost.
        identity = f"{scrape_id}\x00{source_url or url}" if scrape_id else f"\x00{page}"
        if scrape_id is None and (listed or page is None):
            identity += f"\x00{content.hex()}"
        digest = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._seen:
            return False
        self._seen.add(digest)
        self._stored += 1
        if page is None:
            self._nameless += 1
        elif self._list is None:
            self._arrived.add(page)
        elif not listed or not self._list.answer(page):
            self._foreign += 1
        return True

    def malformed(self, entries: int) -> None:
        """Count entries of `data` that are not documents."""
        self._malformed += entries

    def close(self, errors: JobErrors, head: Mapping[str, object]) -> Account:
        """Return the account of the whole job.

        Args:
            errors: The response of `/errors`.
            head: The head of the last status response, with `total` and `completed`.
        """
        account = Account(stored=self._stored, foreign=self._foreign)
        if self._list is None:
            self._close_unlisted(account, errors, head)
        else:
            self._close_listed(account, self._list, errors, head)
        return account

    def _page(self, source_url: str | None, url: str | None) -> str | None:
        """Return the URL that names a document's page: the first of the two that was submitted, or else the first."""
        first = source_url or url
        if self._list is None or not first or first in self._list:
            return first or None
        return url if url and url in self._list else first

    def _close_listed(self, account: Account, sent: Submitted, errors: JobErrors, head: Mapping[str, object]) -> None:
        account.submitted, account.duplicates = sent.count + sent.repeated, sent.repeated
        nameless: list[PageError] = []
        for row in _page_errors(errors, self._rejected):
            if row.url is None:
                nameless.append(row)
            elif row.url in sent and sent.has_room(row.url):
                account.foreign += not sent.answer(row.url)
                account.add(row)
        # If the service merges two spellings of a URL, it returns one document: the other is a duplicate and not
        # missing. They count as merged only if the service's `total` is smaller than the number of URLs sent.
        lost = (count_of(head.get("completed")) or 0) - self._stored - self._malformed
        total = count_of(head.get("total")) or 0
        respelled = sent.count - total - len(account.rows) if total else 0
        unanswered: list[str] = []
        for url, like_answered in sent.open():
            merged = like_answered and respelled > 0
            respelled -= merged
            if merged and lost <= 0:
                account.duplicates += 1
            else:
                unanswered.append(url)
                lost -= merged
        self._match_unnamed(account, unanswered, nameless)

    def _match_unnamed(self, account: Account, unanswered: list[str], nameless: list[PageError]) -> None:
        """Match URLs that have neither a document nor an error with results that name no URL.

        If there are fewer such results than URLs, the number of missing pages is exact, but their URLs are a guess.
        """
        paired = min(self._nameless, len(unanswered))
        unanswered = unanswered[: len(unanswered) - paired]
        account.foreign += self._nameless - paired
        nameless += [_MALFORMED] * self._malformed
        if len(unanswered) <= len(nameless):
            for url, row in zip(unanswered, nameless, strict=False):
                account.add(replace(row, url=url))
        else:
            for url in unanswered:
                account.add(replace(_MISSING, url=url))

    def _close_unlisted(self, account: Account, errors: JobErrors, head: Mapping[str, object]) -> None:
        answered = set(self._arrived)
        for row in _page_errors(errors, self._rejected):
            if row.url is not None:
                if row.url in answered:
                    continue
                answered.add(row.url)
            account.add(row)
        for _ in range(self._malformed):
            account.add(_MALFORMED)
        known = account.stored + account.failed + account.robots_blocked + account.rejected
        missing = max(
            0,
            (count_of(head.get("total")) or 0) - known,
            (count_of(head.get("completed")) or 0) - account.stored - self._malformed,
        )
        account.add_missing(missing)
        account.submitted = known + account.missing


def _page_errors(errors: JobErrors, rejected: Iterable[str]) -> Iterable[PageError]:
    """Yield the pages without a document that the service reported, the most specific reason first."""
    for error in errors.errors:
        yield PageError(error.url, "failed", error.code, error.error, error.timestamp)
    for url in errors.robots_blocked:
        yield PageError(url, "robots_blocked", None, "robots.txt forbids it")
    for url in rejected:
        yield PageError(url, "rejected", None, "the service refused the URL at the start")
