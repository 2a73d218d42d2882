"""The list of a site's URLs for POST /v2/map. Imports: failures, web."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urldefrag, urlsplit, urlunsplit

from weblake.service.failures import PageFailure
from weblake.service.web.door import Web

#: URLs that a map returns where no limit is given.
DEFAULT_LIMIT = 5000
#: URLs read from the sitemaps at most; a search chooses among them before the limit cuts.
_MOST = 100_000


async def map_site(web: Web, url: str, asked: Mapping[str, object]) -> list[dict[str, object]]:
    """The site's URLs, each once: the given one, then the sitemaps', then the links of its page.

    Args:
        web: The door to the web.
        url: Where the site is.
        asked: Options by snake_case name: sitemap, include_subdomains, ignore_query_parameters, search, limit.

    Raises:
        PageFailure: Neither the sitemaps nor the page yielded anything.
    """
    mode = asked.get("sitemap", "include")
    found: dict[str, dict[str, object]] = {}
    add = _Collector(found, url, asked)
    listed = await web.sitemap(url, _MOST) if mode != "skip" else []
    if mode != "only":
        try:
            page = await web.scrape(url, {"formats": ["links"], "only_main_content": False, "timeout": 30_000})
        except PageFailure:
            if not listed:
                raise
        else:
            add(url, _about(page.document))
            add.home = urlsplit(page.final_url).hostname or add.home
            add.all(listed)
            add.all(page.links)
    add.all(listed)
    search, limit = asked.get("search"), asked.get("limit", DEFAULT_LIMIT)
    links = list(found.values())
    if isinstance(search, str) and search.strip():
        links = _by_relevance(links, search)
    assert isinstance(limit, int)
    return links[:limit]


class _Collector:
    """Takes the URLs that belong to the site, each once."""

    def __init__(self, found: dict[str, dict[str, object]], url: str, asked: Mapping[str, object]) -> None:
        self._found = found
        self._subdomains = asked.get("include_subdomains", True) is True
        self._no_query = asked.get("ignore_query_parameters", True) is True
        self._start = urlsplit(url).hostname or ""
        #: The host that the site's own page was found on.
        self.home = self._start

    def __call__(self, url: str, about: Mapping[str, object]) -> None:
        url = urldefrag(url).url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not self._belongs(parts.hostname or ""):
            return
        if self._no_query:
            url = urlunsplit(parts._replace(query="", fragment=""))
        self._found.setdefault(url.removesuffix("/"), {"url": url, **about})

    def all(self, urls: Iterable[str]) -> None:
        for url in urls:
            self(url, {})

    def _belongs(self, host: str) -> bool:
        for site in (self._start, self.home):
            bare = site.removeprefix("www.")
            if host.removeprefix("www.") == bare or (self._subdomains and host.endswith(f".{bare}")):
                return True
        return False


def _about(document: Mapping[str, object]) -> dict[str, object]:
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return {}
    return {name: metadata[name] for name in ("title", "description") if isinstance(metadata.get(name), str)}


def _by_relevance(links: list[dict[str, object]], search: str) -> list[dict[str, object]]:
    """The links with the most of the searched words first; equal ones keep their order, and none is left out."""
    words = [word for word in re.split(r"\W+", search.lower()) if word]

    def score(link: dict[str, object]) -> int:
        path = urlsplit(str(link["url"])).path.lower()
        text = " ".join(str(link.get(name, "")) for name in ("title", "description")).lower()
        whole = set(re.split(r"[\W_]+", f"{path} {text}"))
        return sum(3 if word in whole else 1 if word in path or word in text else 0 for word in words)

    return sorted(links, key=score, reverse=True)
