"""Typed views of map, search, crawl preview and active crawls."""

from __future__ import annotations

from msgspec import field

from weblake.api.models.documents import Document
from weblake.api.models.lenient import Model, Number


class Place(Model, frozen=True):
    """The location from which a crawl requests pages."""

    country: str | None = None
    languages: list[str] = field(default_factory=list)


class StoredProfile(Model, frozen=True):
    """Browser storage that a crawl uses."""

    name: str | None = None
    save_changes: bool | None = None


class AuditLabel(Model, frozen=True):
    """The user behind a request, for the audit log."""

    username: str | None = None


class UsedScrapeOptions(Model, frozen=True):
    """The scrape options of a running crawl as the service reports them; formats, actions and parsers unchanged."""

    formats: list[object] = field(default_factory=list)
    only_main_content: bool | None = None
    only_clean_content: bool | None = None
    include_tags: list[str] = field(default_factory=list)
    exclude_tags: list[str] = field(default_factory=list)
    max_age: Number | None = None
    min_age: Number | None = None
    headers: dict[str, object] = field(default_factory=dict)
    wait_for: Number | None = None
    mobile: bool | None = None
    skip_tls_verification: bool | None = None
    timeout: Number | None = None
    parsers: list[object] = field(default_factory=list)
    actions: list[object] = field(default_factory=list)
    location: Place | None = None
    remove_base64_images: bool | None = None
    block_ads: bool | None = None
    proxy: str | None = None
    store_in_cache: bool | None = None
    lockdown: bool | None = None
    profile: StoredProfile | None = None
    fast_mode: bool | None = None
    redact_pii: object = field(name="redactPII", default=None)
    threat_protection: dict[str, object] = field(default_factory=dict)
    audit_metadata: AuditLabel | None = None


class ActiveCrawlOptions(Model, frozen=True):
    """Options of a running crawl."""

    scrape_options: UsedScrapeOptions = field(default_factory=UsedScrapeOptions)


class ActiveCrawl(Model, frozen=True):
    """A running crawl."""

    id: str | None = None
    team_id: str | None = None
    url: str | None = None
    options: ActiveCrawlOptions = field(default_factory=ActiveCrawlOptions)
    created_at: str | None = field(name="created_at", default=None)


class ActiveCrawls(Model, frozen=True):
    """Response of list_active_crawls."""

    success: bool | None = None
    crawls: list[ActiveCrawl] = field(default_factory=list)


class CrawlParams(Model, frozen=True):
    """Crawl options that were derived from a prompt."""

    url: str | None = None
    include_paths: list[str] = field(default_factory=list)
    exclude_paths: list[str] = field(default_factory=list)
    max_depth: int | None = None
    max_discovery_depth: int | None = None
    crawl_entire_domain: bool | None = None
    allow_external_links: bool | None = None
    allow_subdomains: bool | None = None
    sitemap: str | None = None
    ignore_query_parameters: bool | None = None
    ignore_robots_txt: bool | None = None
    robots_user_agent: str | None = None
    deduplicate_similar_urls: bool | None = field(name="deduplicateSimilarURLs", default=None)
    #: The timeout of a crawl in seconds; some services send milliseconds.
    delay: Number | None = None
    limit: int | None = None


class CrawlParamsPreview(Model, frozen=True):
    """Response of preview_crawl_params."""

    success: bool | None = None
    data: CrawlParams = field(default_factory=CrawlParams)


class MapLink(Model, frozen=True):
    """One URL of a site."""

    url: str | None = None
    title: str | None = None
    description: str | None = None


class SiteMap(Model, frozen=True):
    """Response of map_site."""

    success: bool | None = None
    links: list[MapLink] = field(default_factory=list)
    warning: str | None = None


class WebResult(Document, frozen=True):
    """A web result; with scrape options it is a whole document."""

    title: str | None = None
    description: str | None = None
    url: str | None = None


class ImageResult(Model, frozen=True):
    """An image result."""

    title: str | None = None
    image_url: str | None = None
    image_width: int | None = None
    image_height: int | None = None
    url: str | None = None
    position: int | None = None


class NewsResult(Document, frozen=True):
    """A news result; with scrape options it is a whole document."""

    title: str | None = None
    snippet: str | None = None
    url: str | None = None
    date: str | None = None
    image_url: str | None = None
    position: int | None = None


class SearchResults(Model, frozen=True):
    """Search results by source."""

    web: list[WebResult] = field(default_factory=list)
    images: list[ImageResult] = field(default_factory=list)
    news: list[NewsResult] = field(default_factory=list)


class SearchResponse(Model, frozen=True):
    """Response of search."""

    success: bool | None = None
    data: SearchResults = field(default_factory=SearchResults)
    warning: str | None = None
    id: str | None = None
    credits_used: Number | None = None
