"""Typed views of a scraped page."""

from __future__ import annotations

from msgspec import field

from weblake.api.models.branding import Branding
from weblake.api.models.lenient import FirstText, Model, Number


class PageMetadata(Model, frozen=True):
    """The metadata of a page; other keys, such as `og:image`, are in `extra`."""

    title: FirstText = None
    description: FirstText = None
    language: FirstText = None
    #: The requested URL.
    source_url: str | None = field(name="sourceURL", default=None)
    #: The URL after redirects.
    url: str | None = None
    keywords: FirstText = None
    og_locale_alternate: list[str] = field(default_factory=list)
    #: The HTTP status of the target.
    status_code: int | None = None
    content_type: FirstText = None
    error: str | None = None
    concurrency_limited: bool | None = None
    concurrency_queue_duration_ms: Number | None = None
    scrape_id: str | None = None
    num_pages: int | None = None
    total_pages: int | None = None
    proxy_used: str | None = None
    cache_state: str | None = None
    cached_at: str | None = None
    credits_used: Number | None = None
    timezone: FirstText = None
    favicon: FirstText = None
    robots: FirstText = None


class ActionScrape(Model, frozen=True):
    """The page at the time of a scrape action."""

    url: str | None = None
    html: str | None = None


class JavascriptReturn(Model, frozen=True):
    """The return value of a script."""

    type: str | None = None
    value: object = None


class ActionsResult(Model, frozen=True):
    """The results of actions, each list in the order of its actions."""

    screenshots: list[str] = field(default_factory=list)
    scrapes: list[ActionScrape] = field(default_factory=list)
    javascript_returns: list[JavascriptReturn] = field(default_factory=list)
    pdfs: list[str] = field(default_factory=list)


class ChangeTracking(Model, frozen=True):
    """The changes of the page since its last scrape."""

    previous_scrape_at: str | None = None
    change_status: str | None = None
    visibility: str | None = None
    #: A text, or an object with `text` and `json`.
    diff: object = None
    json: object = None


class DocumentPage(Model, frozen=True):
    """One page of a PDF."""

    page_number: int | None = None
    markdown: str | None = None


#: How the embedded service begins the warning of a page that scripts fill and that it did not render.
NEEDS_SCRIPTS = "The page seems to need JavaScript"


class Document(Model, frozen=True):
    """One scraped page with the requested formats."""

    markdown: str | None = None
    summary: str | None = None
    html: str | None = None
    raw_html: str | None = None
    screenshot: str | None = None
    audio: str | None = None
    video: str | None = None
    answer: str | None = None
    highlights: str | None = None
    links: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    actions: ActionsResult | None = None
    metadata: PageMetadata = field(default_factory=PageMetadata)
    warning: str | None = None
    change_tracking: ChangeTracking | None = None
    branding: Branding | None = None
    #: The extracted value: any JSON.
    json: object = None
    attributes: list[dict[str, object]] = field(default_factory=list)
    pages: list[DocumentPage] = field(default_factory=list)
    blocks: list[dict[str, object]] = field(default_factory=list)
