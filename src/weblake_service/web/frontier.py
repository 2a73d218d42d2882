"""The frontier of a crawl: which URLs it visits, in which order, and how many.

Breadth first, in the order in which links were found, so that two crawls of an unchanged site visit the same pages.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult

from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page_failure import PageFailure
from weblake_service.web import canonical_urls
from weblake_service.web.path_patterns import PathPatterns

DEFAULT_LIMIT = 10_000
_MAX_URL_CHARS = 4096
#: URLs that are matched with costly patterns at a time.
_BATCH = 200
#: Maximum number of accepted URLs: a multiple of the limit, plus a number for URLs that are not counted in the end.
_ACCEPTED_FACTOR, _ACCEPTED_SPARE = 4, 1000
#: File extensions of content without text, which is not fetched.
_BINARY_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|webp|avif|svg|ico|bmp|tiff?|css|js|mjs|map|woff2?|ttf|otf|eot|mp[34]|m4[av]|webm|ogg|wav|flac|avi|"
    r"mov|wmv|zip|tar\.gz|tgz|bz2|xz|7z|rar|tar|exe|msi|dmg|pkg|deb|rpm|iso|apk|jar|war|whl|bin)$",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"/[^/]*\.(?:html?|xhtml|php|aspx?|jsp|cgi)$", re.IGNORECASE)


class Frontier:
    """Accepts URLs and returns those that the crawl visits, in order.

    `options` are crawl options by their snake_case names: include_paths and exclude_paths (regular expressions searched
    for in the path, or in the URL with regex_on_full_url), max_discovery_depth, ignore_query_parameters (false),
    deduplicate_similar_urls (true), crawl_entire_domain (false: only URLs below the start URL), allow_external_links
    (false), allow_subdomains (false), limit (10000). An invalid pattern raises PageFailure with status 400.

    The start URL is always visited when offered, even if a pattern excludes it: without it no other URL is found.
    """

    def __init__(self, start_url: str, options: Mapping[str, object], converters: ConverterPool | None = None) -> None:
        start = canonical_urls.split(start_url)
        if start is None:
            message = f"{start_url!r} is not an http or https URL. Mend it and start the crawl again."
            raise PageFailure("BAD_REQUEST", message, status=400)
        self._patterns, self._converters = PathPatterns(options), converters
        self._ignore_query = options.get("ignore_query_parameters") is True
        self._similar = options.get("deduplicate_similar_urls") is not False
        self._entire = options.get("crawl_entire_domain") is True
        self._external = options.get("allow_external_links") is True
        self._subdomains = options.get("allow_subdomains") is True
        depth = options.get("max_discovery_depth")
        self._max_depth = depth if isinstance(depth, int) else None
        limit = options.get("limit")
        self.limit = limit if isinstance(limit, int) else DEFAULT_LIMIT
        self._start_key = self._key(start)
        #: The scope of the crawl: the start URL's site and path, and those of the URL that it redirected to.
        self._scopes = [(canonical_urls.site_of(start), _folder(start.path))]
        self._waiting: deque[tuple[str, int]] = deque()
        self._seen: set[str] = set()
        self._accepted = 0
        self._taken = 0

    def offer(self, url: str, depth: int) -> bool:
        """Offer a URL found `depth` links from the start; return True if it is new and will be visited."""
        parts = _split(url)
        if parts is None:
            return False
        key = self._key(parts)
        if key in self._seen or not (key == self._start_key or self._wants(parts, depth)):
            return False
        if self._accepted >= _ACCEPTED_FACTOR * self.limit + _ACCEPTED_SPARE:
            return False
        self._seen.add(key)
        self._accepted += 1
        self._waiting.append((canonical_urls.url_to_visit(parts, ignore_query=self._ignore_query), depth))
        return True

    def wants(self, url: str, depth: int) -> bool:
        """Return whether the options allow the crawl to visit this URL, whether or not it was offered before."""
        parts = _split(url)
        return parts is not None and self._wants(parts, depth)

    async def match_paths(self, urls: Sequence[str]) -> Sequence[str]:
        """Return the URLs without those that costly patterns do not allow; raises PageFailure if it takes too long."""
        if self._converters is None or not self._patterns.is_costly(urls):
            return urls
        allowed: list[str] = []
        for start in range(0, len(urls), _BATCH):
            some = urls[start : start + _BATCH]
            texts = {url: self._text_of(parts) for url in some if (parts := _split(url)) is not None}
            matched = await self._patterns.match(list(texts.values()), self._converters)
            allowed += [url for url, text in texts.items() if text in matched]
        return allowed

    def take(self) -> tuple[str, int] | None:
        """Return the next URL and its depth; None if the queue is empty or the limit is reached."""
        if not self._waiting or self._taken >= self.limit:
            return None
        self._taken += 1
        return self._waiting.popleft()

    def redirect_problem(self, url: str, final_url: str, depth: int) -> str:
        """Return why a visited URL must not be answered by its final URL; empty if it may.

        The options apply to the final URL as to any other. The start URL may be redirected anywhere, and a page that
        this crawl has already is allowed.
        """
        parts, final = canonical_urls.split(url), canonical_urls.split(final_url)
        if parts is None or final is None or self._key(parts) in {self._start_key, self._key(final)}:
            return ""
        if self._key(final) in self._seen or self._wants(final, depth):
            return ""
        if self._in_scope(final):
            return "includePaths or excludePaths rule it out, or it is a binary file"
        return "it is out of scope without crawlEntireDomain, allowSubdomains or allowExternalLinks"

    def record_final_url(self, url: str, final_url: str | None = None) -> bool:
        """Record the final URL of a visited URL.

        Return False if it is a page that this crawl has already seen under its own URL. If the start URL is redirected,
        the crawl's scope changes with it, for example from `example.com` to `www.example.com/en/`.
        """
        if final_url is None or final_url == url:
            return True
        parts, final = canonical_urls.split(url), canonical_urls.split(final_url)
        if parts is None or final is None:
            return True
        key, final_key = self._key(parts), self._key(final)
        if key == final_key:
            return True
        if key == self._start_key:
            scope = (canonical_urls.site_of(final), _folder(final.path))
            if scope not in self._scopes:
                self._scopes.append(scope)
        first = final_key not in self._seen
        self._seen.add(final_key)
        return first

    def uncount(self) -> None:
        """Do not count a URL that was taken but not fetched because robots.txt forbids it."""
        self._taken = max(0, self._taken - 1)

    def _wants(self, parts: SplitResult, depth: int) -> bool:
        if self._max_depth is not None and depth > self._max_depth:
            return False
        if _BINARY_FILE.search(parts.path) or not self._in_scope(parts):
            return False
        return self._patterns.allows(self._text_of(parts))

    def _text_of(self, parts: SplitResult) -> str:
        """Return what the path patterns are matched against: RE2 works on UTF-8, which has no lone surrogates."""
        path = f"{parts.path}#{parts.fragment}" if parts.fragment else parts.path
        text = canonical_urls.url_to_visit(parts, ignore_query=False) if self._patterns.on_full_url else path
        return text.encode("utf-8", "replace").decode("utf-8")

    def _key(self, parts: SplitResult) -> str:
        return canonical_urls.canonical_key(parts, similar=self._similar, ignore_query=self._ignore_query)

    def _in_scope(self, parts: SplitResult) -> bool:
        site = canonical_urls.site_of(parts)
        folders = [folder for home, folder in self._scopes if home == site]
        if folders:
            return self._entire or any(f"{parts.path}/".startswith(f"{folder}/") for folder in folders)
        if self._subdomains and any(site.endswith(f".{home}") for home, _ in self._scopes):
            return True
        return self._external


def _split(url: str) -> SplitResult | None:
    return canonical_urls.split(url) if len(url) <= _MAX_URL_CHARS else None


def _folder(path: str) -> str:
    """Return the path prefix of a page's children: `/docs` for `/docs`, `/docs/` and `/docs/index.html`."""
    return _FILE_NAME.sub("", path).rstrip("/")
