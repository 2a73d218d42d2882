"""Lists the URLs of a site for POST /v2/map."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from weblake_service.page.document import Page
from weblake_service.page_failure import PageFailure
from weblake_service.run_together import run_together
from weblake_service.web.canonical_urls import canonical_key, site_of, split, url_to_visit
from weblake_service.web.http_web import HttpWeb

#: Default maximum of URLs that a map returns.
DEFAULT_LIMIT = 5000
#: Maximum of URLs read from the sitemaps; a search selects among them before the limit is applied.
_MAX_URLS = 100_000
#: Maximum words of a search that are compared with each URL.
_MAX_WORDS = 50
#: Number of URLs from which they are filtered in a thread.
_THREAD_URLS = 1000
_PAGE_OPTIONS = {"formats": ["links"], "only_main_content": False, "timeout": 30_000}

#: Title and description of known pages, by `canonical_urls.canonical_key`.
Known = Mapping[str, tuple[str, str]]


@dataclass
class SiteUrls:
    """The URLs found for a site."""

    #: The hosts of the site, without "www.".
    hosts: set[str] = field(default_factory=set)
    #: The URLs in the order found: the given one, then those of the sitemaps, then the links of its page.
    urls: list[str] = field(default_factory=list)
    #: Title and description of pages that were read for this map.
    read: dict[str, tuple[str, str]] = field(default_factory=dict)
    warning: str = ""


async def find_urls(web: HttpWeb, url: str, mode: str) -> SiteUrls:
    """Return the URLs in a site's sitemaps and on its page.

    Args:
        web: Access to the web.
        url: The URL of the site.
        mode: `skip` reads no sitemaps, `only` no links, `include` both.

    Raises:
        PageFailure: Neither the sitemaps nor the page could be read.
    """
    page, (listed, warning) = await _fetch_page_and_sitemaps(web, url, mode)
    if mode == "only" and not await asyncio.to_thread(_is_on_site_of, listed, [url]):
        # The site may have moved; its sitemap then lists URLs of the new location.
        page = await _page(web, url)
    home = url if page is None or isinstance(page, PageFailure) else page.final_url
    moved = mode != "skip" and not _is_on_site_of([home], [url])
    if moved and not await asyncio.to_thread(_is_on_site_of, listed, [url, home]):
        more, warning = await web.sitemap(home, _MAX_URLS)
        listed = [*listed, *more]
    found = SiteUrls(hosts={site_of(parts) for parts in (split(url), split(home)) if parts is not None})
    if mode == "only":
        found.urls = listed
        found.warning = "" if listed else f"No sitemap of {url} lists any page."
    elif isinstance(page, PageFailure):
        if not listed:
            raise page
        found.urls, found.warning = listed, f"The page itself could not be read, so only the sitemap's: {page.message}"
    elif page is not None:
        _add_page_links(found, page, url, listed)
    found.warning = " ".join(filter(None, [found.warning, warning]))
    return found


async def arrange(found: SiteUrls, known: Known, map_options: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the URLs of the site without duplicates, filtered and sorted by the options.

    Args:
        found: The URLs found for the site.
        known: Title and description of known pages.
        map_options: Options by snake_case name: include_subdomains, ignore_query_parameters, search, limit.
    """
    if len(found.urls) < _THREAD_URLS:
        return _arrange(found, known, map_options)
    return await asyncio.to_thread(_arrange, found, known, map_options)


def _arrange(found: SiteUrls, known: Known, map_options: Mapping[str, object]) -> list[dict[str, object]]:
    links = list(_site_links(found, known, map_options))
    search, limit = map_options.get("search"), map_options.get("limit", DEFAULT_LIMIT)
    if isinstance(search, str) and search.strip():
        links = _by_relevance(links, search)
    assert isinstance(limit, int)
    return links[:limit]


def _site_links(found: SiteUrls, known: Known, map_options: Mapping[str, object]) -> Iterable[dict[str, object]]:
    """Yield the URLs that belong to the site, each page once, with title and description if known."""
    subdomains = map_options.get("include_subdomains", True) is True
    no_query = map_options.get("ignore_query_parameters", True) is True
    seen: set[str] = set()
    for url in dict.fromkeys(found.urls):
        parts = split(url)
        if parts is None or not _belongs(parts, found.hosts, subdomains=subdomains):
            continue
        key = canonical_key(parts, similar=True, ignore_query=no_query)
        if key in seen:
            continue
        seen.add(key)
        title, description = found.read.get(url) or known.get(key) or ("", "")
        about = {name: text for name, text in (("title", title), ("description", description)) if text}
        yield {"url": url_to_visit(parts, ignore_query=no_query), **about}


def _belongs(parts: SplitResult, hosts: Iterable[str], *, subdomains: bool) -> bool:
    site = site_of(parts)
    return any(site == host or (subdomains and site.endswith(f".{host}")) for host in hosts)


async def _fetch_page_and_sitemaps(
    web: HttpWeb, url: str, mode: str
) -> tuple[Page | PageFailure | None, tuple[list[str], str]]:
    """Return the page and the sitemap URLs, read concurrently; the page is None if only the sitemaps are requested."""
    if mode == "only":
        return None, await web.sitemap(url, _MAX_URLS)
    if mode == "skip":
        return await _page(web, url), ([], "")
    both: list[Any] = await run_together([_page(web, url), web.sitemap(url, _MAX_URLS)])
    page, listed = both
    return page, listed


async def _page(web: HttpWeb, url: str) -> Page | PageFailure:
    try:
        page = await web.scrape(url, _PAGE_OPTIONS)
        return await web.render(url, _PAGE_OPTIONS, page) if page.script_filled else page
    except PageFailure as failure:
        return failure


def _add_page_links(found: SiteUrls, page: Page, url: str, listed: list[str]) -> None:
    metadata = page.document.get("metadata")
    about = metadata if isinstance(metadata, Mapping) else {}
    status = about.get("statusCode")
    if isinstance(status, int) and status >= 400:
        found.warning = f"{url} answered {status}: its own address is left out."
        found.urls = [*listed, *page.links]
        return
    title, description = (str(about.get(name) or "") for name in ("title", "description"))
    found.read[page.final_url] = title, description
    found.warning = str(page.document.get("warning") or "")
    found.urls = [page.final_url, *listed, *page.links]


def _is_on_site_of(urls: Iterable[str], places: Iterable[str]) -> bool:
    """Return whether any of the URLs is on the site of one of `places`."""
    hosts = [site_of(parts) for place in places if (parts := split(place)) is not None]
    return any((parts := split(url)) is not None and _belongs(parts, hosts, subdomains=True) for url in urls)


def _by_relevance(links: list[dict[str, object]], search: str) -> list[dict[str, object]]:
    """Return all links, those with the most searched words first; the sort is stable."""
    words = list(dict.fromkeys(word for word in re.split(r"[\W_]+", search.lower()) if word))[:_MAX_WORDS]

    def score(link: dict[str, object]) -> int:
        parts = urlsplit(str(link["url"]))
        address = unquote(f"{parts.netloc} {parts.path} {parts.query}")
        text = f"{address} {link.get('title', '')} {link.get('description', '')}".lower()
        whole = set(re.split(r"[\W_]+", text))
        return sum(3 if word in whole else 1 if word in text else 0 for word in words)

    return sorted(links, key=score, reverse=True)
