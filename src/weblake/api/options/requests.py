"""Definitions of all options of all requests.

A class named `…Options` holds the keyword arguments of a call (`**options: Unpack[ScrapeOptions]`); `…Request` adds the
positional arguments. Unless stated otherwise an option has no default in the client: an option that is not given is not
sent, and the service applies its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

from weblake.api.options import rules, shapes
from weblake.api.options.fields import by_wire


class PageOptions(TypedDict, total=False):
    """Options of the scrape of one page, common to scrape, batch, crawl, search and extract."""

    #: The formats to return; default: markdown only.
    formats: Sequence[shapes.Format]
    only_main_content: bool
    only_clean_content: bool
    include_tags: Sequence[str]
    exclude_tags: Sequence[str]
    #: A cached page younger than this is returned (the service's default is two days).
    max_age: shapes.Milliseconds
    #: If given, only the cache is read, and the page must be at least this old.
    min_age: shapes.Milliseconds
    headers: shapes.Headers
    #: Shorter than `timeout`, together with the timed waits of `actions`.
    wait_for: shapes.Milliseconds
    mobile: bool
    skip_tls_verification: bool
    timeout: Annotated[int, Meta(ge=1000, le=300_000, extra={"unit": "milliseconds"})]
    #: An empty list returns a PDF as base64.
    parsers: Sequence[shapes.Parser]
    actions: Sequence[shapes.Action]
    location: shapes.Location
    remove_base64_images: bool
    block_ads: bool
    proxy: shapes.Proxy
    store_in_cache: bool
    lockdown: bool
    profile: shapes.Profile
    fast_mode: bool
    redact_pii: bool | shapes.Free
    threat_protection: shapes.Free
    audit_metadata: shapes.AuditMetadata


class Labels(TypedDict, total=False):
    """Labels for the statistics of the service; sent only if given."""

    origin: str
    integration: str | None


class ScrapeOptions(PageOptions, Labels, total=False):
    """Options of scrape."""

    zero_data_retention: bool


class ScrapeRequest(ScrapeOptions, total=False):
    """Body of scrape."""

    url: Required[shapes.Url]


class ParseOptions(TypedDict, total=False):
    """Options of parse_file."""

    formats: Sequence[shapes.Format]
    only_main_content: bool
    include_tags: Sequence[str]
    exclude_tags: Sequence[str]
    headers: shapes.Headers
    timeout: Annotated[int, Meta(le=300_000, extra={"unit": "milliseconds"})]
    parsers: Sequence[shapes.Parser]
    skip_tls_verification: bool
    remove_base64_images: bool
    block_ads: bool
    proxy: shapes.Proxy
    origin: str
    integration: str
    zero_data_retention: bool


class InteractOptions(TypedDict, total=False):
    """Options of interact: exactly one of `code` and `prompt`."""

    code: shapes.Code
    prompt: shapes.Prompt
    language: shapes.Language
    timeout: Annotated[float, Meta(ge=1, le=300, extra={"unit": "seconds"})]
    origin: str


class ExecuteOptions(TypedDict, total=False):
    """Options of execute_in_browser."""

    language: shapes.Language
    timeout: Annotated[int, Meta(ge=1, le=300, extra={"unit": "seconds"})]


class ExecuteRequest(ExecuteOptions, total=False):
    """Body of execute_in_browser."""

    code: Required[shapes.Code]


class BrowserOptions(TypedDict, total=False):
    """Options of create_browser."""

    #: Lifetime in seconds; default 300, always sent.
    ttl: Annotated[int, Meta(ge=30, le=3600, extra={"unit": "seconds"})]
    activity_ttl: Annotated[int, Meta(ge=10, le=3600, extra={"unit": "seconds"})]
    stream_web_view: bool
    profile: shapes.Profile


class BatchScrapeOptions(ScrapeOptions, total=False):
    """Options of start_batch_scrape."""

    webhook: shapes.Webhook
    max_concurrency: shapes.AtLeastOne
    #: Default True, always sent.
    ignore_invalid_urls: bool
    append_to_id: shapes.Uuid


class BatchScrapeRequest(BatchScrapeOptions, total=False):
    """Body of start_batch_scrape."""

    urls: Required[Annotated[Sequence[str], Meta(min_length=1)]]


class CrawlOptions(Labels, total=False):
    """Options of start_crawl."""

    prompt: shapes.Text10k
    include_paths: Sequence[str]
    exclude_paths: Sequence[str]
    max_discovery_depth: Annotated[int, Meta(ge=0)]
    sitemap: shapes.Sitemap
    ignore_query_parameters: bool
    regex_on_full_url: bool
    limit: shapes.AtLeastOne
    crawl_entire_domain: bool
    allow_external_links: bool
    allow_subdomains: bool
    ignore_robots_txt: bool
    robots_user_agent: str
    deduplicate_similar_urls: bool
    delay: Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]
    max_concurrency: shapes.AtLeastOne
    webhook: shapes.Webhook
    scrape_options: PageOptions
    zero_data_retention: bool


class CrawlRequest(CrawlOptions, total=False):
    """Body of start_crawl."""

    url: Required[shapes.Url]


class CrawlParamsPreviewRequest(TypedDict, total=False):
    """Body of preview_crawl_params."""

    url: Required[shapes.Url]
    prompt: Required[shapes.Text10k]


class MapOptions(Labels, total=False):
    """Options of map_site."""

    search: str
    sitemap: shapes.Sitemap
    include_subdomains: bool
    ignore_query_parameters: bool
    ignore_cache: bool
    limit: Annotated[int, Meta(ge=1, le=100_000)]
    timeout: Annotated[int, Meta(extra={"unit": "milliseconds"})]
    location: shapes.Location


class MapRequest(MapOptions, total=False):
    """Body of map_site."""

    url: Required[shapes.Url]


class SearchOptions(Labels, total=False):
    """Options of search."""

    limit: Annotated[int, Meta(ge=1, le=100)]
    sources: Sequence[shapes.Source]
    categories: Sequence[str | shapes.Category]
    include_domains: Sequence[str]
    exclude_domains: Sequence[str]
    tbs: str
    location: str
    country: str
    safe: bool
    timeout: Annotated[int, Meta(extra={"unit": "milliseconds"})]
    ignore_invalid_urls: bool
    highlights: bool
    enterprise: Sequence[Literal["anon", "zdr"]]
    scrape_options: PageOptions


class SearchRequest(SearchOptions, total=False):
    """Body of search."""

    query: Required[Annotated[str, Meta(max_length=500)]]


class ExtractOptions(Labels, total=False):
    """Options of start_extract: `urls`, `prompt`, or both."""

    prompt: shapes.Text10k
    system_prompt: shapes.Text10k
    schema: shapes.Free
    enable_web_search: bool
    ignore_sitemap: bool
    include_subdomains: bool
    allow_external_links: bool
    show_sources: bool
    limit: shapes.AtLeastOne
    timeout: Annotated[int, Meta(ge=1000, extra={"unit": "milliseconds"})]
    scrape_options: PageOptions
    ignore_invalid_urls: bool
    webhook: shapes.Webhook


class ExtractRequest(ExtractOptions, total=False):
    """Body of start_extract."""

    urls: Sequence[str]


class AgentOptions(Labels, total=False):
    """Options of start_agent."""

    urls: Sequence[shapes.Url]
    schema: shapes.Free
    max_credits: float
    strict_constrain_to_urls: bool
    model: str
    webhook: shapes.AgentWebhook


class AgentRequest(AgentOptions, total=False):
    """Body of start_agent."""

    prompt: Required[shapes.Text10k]


class ChunkQuery(TypedDict, total=False):
    """Query of the status of a batch or a crawl."""

    skip: Annotated[int, Meta(ge=0)]
    limit: shapes.AtLeastOne


class ActivityOptions(TypedDict, total=False):
    """Query of list_activity."""

    endpoint: Literal[
        "scrape", "crawl", "batch_scrape", "search", "extract", "llmstxt", "deep_research", "map", "agent", "browser",
        "interact",
    ]  # fmt: skip
    limit: Annotated[int, Meta(ge=1, le=100)]
    cursor: str


class BrowserFilter(TypedDict, total=False):
    """Query of list_browsers."""

    status: Literal["active", "destroyed"]


class UsageOptions(TypedDict, total=False):
    """Query of the historical usage reports."""

    by_api_key: bool


_PAGE = (
    rules.waits_fit_into_timeout,
    rules.one_screenshot,
    rules.change_tracking_has_markdown,
    rules.clean_content_is_retained,
)

#: Rules that a range cannot express, by the class that they apply to.
RULES: dict[type, tuple[rules.Rule, ...]] = {
    PageOptions: _PAGE,
    ScrapeOptions: _PAGE,
    ScrapeRequest: _PAGE,
    ParseOptions: (rules.one_screenshot, rules.change_tracking_has_markdown),
    BatchScrapeOptions: _PAGE,
    BatchScrapeRequest: (*_PAGE, rules.urls_can_be_scraped),
    CrawlOptions: (rules.clean_content_is_retained,),
    CrawlRequest: (rules.clean_content_is_retained,),
    InteractOptions: (rules.code_or_prompt,),
    SearchOptions: (rules.domains_one_way,),
    SearchRequest: (rules.domains_one_way,),
    ExtractRequest: (rules.urls_or_prompt, rules.urls_can_be_scraped),
    shapes.JsonFormat: (rules.schema_or_prompt,),
    shapes.WaitAction: (rules.time_or_selector,),
}


def sent_by_sdk(cls: type) -> frozenset[str]:
    """Return the wire names that the public SDK sends although the contract does not list them for this request.

    The SDK identifies itself in every request, and sends all page options, with their defaults, together with a file.
    """
    everywhere = frozenset({"origin", "integration"})
    return everywhere | frozenset(by_wire(PageOptions)) if cls is ParseOptions else everywhere
