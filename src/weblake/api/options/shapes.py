"""The nested objects of a request: formats, actions, parsers, webhooks.

Each class lists exactly the fields that the contract documents, in snake_case. Ranges are in the annotations, so that
the type checker, the check at run time (checks.py) and the reader use the same definition. `unit` and `check` in
`extra` are for checks.py: the unit after a number, and a check that a range cannot express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

#: Arbitrary content of the user: never renamed, only checked to be JSON.
Free = Mapping[str, object]
#: Header names and values; error messages never contain the values.
Headers = Annotated[Mapping[str, str], Meta(extra={"check": "headers"})]
Url = Annotated[str, Meta(extra={"check": "url"})]
Uuid = Annotated[str, Meta(extra={"check": "uuid"})]
Milliseconds = Annotated[int, Meta(ge=0, extra={"unit": "milliseconds"})]
Quality = Annotated[int, Meta(ge=1, le=100)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Text10k = Annotated[str, Meta(max_length=10_000)]
Prompt = Annotated[str, Meta(min_length=1, max_length=10_000)]
Code = Annotated[str, Meta(min_length=1, max_length=100_000)]

Proxy = Literal["basic", "enhanced", "auto"]
Sitemap = Literal["skip", "include", "only"]
Language = Literal["python", "node", "bash"]
SimpleName = Literal["markdown", "summary", "html", "rawHtml", "links", "images", "branding", "audio", "video"]
FormatName = Literal[SimpleName, "screenshot", "json", "changeTracking", "question", "highlights"]


class Viewport(TypedDict, total=False):
    """The browser window, in pixels."""

    width: Required[Annotated[int, Meta(ge=1, le=7680)]]
    height: Required[Annotated[int, Meta(ge=1, le=4320)]]


class SimpleFormat(TypedDict, total=False):
    """Object form of a format without options."""

    type: Required[SimpleName]


class JsonFormat(TypedDict, total=False):
    """Extraction by a language model; needs a schema, a prompt, or both."""

    type: Required[Literal["json"]]
    schema: Free
    prompt: Text10k


class ScreenshotFormat(TypedDict, total=False):
    """A screenshot of the page; at most one per request."""

    type: Required[Literal["screenshot"]]
    full_page: bool
    quality: Quality
    viewport: Viewport


class ChangeTrackingFormat(TypedDict, total=False):
    """Comparison with an earlier scrape; needs markdown in the same request."""

    type: Required[Literal["changeTracking"]]
    modes: Sequence[Literal["git-diff", "json"]]
    schema: Free
    prompt: str
    tag: str | None


class QuestionFormat(TypedDict, total=False):
    """A question about the page; the answer is in the document's `answer`."""

    type: Required[Literal["question"]]
    question: Required[Prompt]


class HighlightsFormat(TypedDict, total=False):
    """Passages that match a query, in the document's `highlights`."""

    type: Required[Literal["highlights"]]
    query: Required[Prompt]


class AttributeSelector(TypedDict, total=False):
    """One attribute of the elements that a CSS selector matches."""

    selector: Required[str]
    attribute: Required[str]


class AttributesFormat(TypedDict, total=False):
    """Attribute values; not one of the fourteen documented formats, passed through to services that support it."""

    type: Required[Literal["attributes"]]
    selectors: Required[Sequence[AttributeSelector]]


# The last member permits wire names for nested keys; their values are checked likewise.
Format = (
    FormatName
    | SimpleFormat
    | JsonFormat
    | ScreenshotFormat
    | ChangeTrackingFormat
    | QuestionFormat
    | HighlightsFormat
    | AttributesFormat
    | Free
)


class WaitAction(TypedDict, total=False):
    """Waits for a time or for an element: exactly one of `milliseconds` and `selector`."""

    type: Required[Literal["wait"]]
    milliseconds: Annotated[int, Meta(ge=1, extra={"unit": "milliseconds"})]
    selector: str


class ScreenshotAction(TypedDict, total=False):
    """Takes a screenshot."""

    type: Required[Literal["screenshot"]]
    full_page: bool
    quality: Quality
    viewport: Viewport


class ClickAction(TypedDict, total=False):
    """Clicks the first matching element, or all of them."""

    type: Required[Literal["click"]]
    selector: Required[str]
    all: bool


class WriteAction(TypedDict, total=False):
    """Types into the focused element."""

    type: Required[Literal["write"]]
    text: Required[str]


class PressAction(TypedDict, total=False):
    """Presses a key."""

    type: Required[Literal["press"]]
    key: Required[str]


class ScrollAction(TypedDict, total=False):
    """Scrolls the page or an element."""

    type: Required[Literal["scroll"]]
    direction: Literal["up", "down"]
    selector: str


class ScrapeAction(TypedDict, total=False):
    """Captures the current content of the page."""

    type: Required[Literal["scrape"]]


class ExecuteJavascriptAction(TypedDict, total=False):
    """Runs a script in the page."""

    type: Required[Literal["executeJavascript"]]
    script: Required[str]


class PdfAction(TypedDict, total=False):
    """Prints the page to PDF."""

    type: Required[Literal["pdf"]]
    format: Literal["A0", "A1", "A2", "A3", "A4", "A5", "A6", "Letter", "Legal", "Tabloid", "Ledger"]
    landscape: bool
    scale: float


Action = (
    WaitAction
    | ScreenshotAction
    | ClickAction
    | WriteAction
    | PressAction
    | ScrollAction
    | ScrapeAction
    | ExecuteJavascriptAction
    | PdfAction
    | Free
)


class PdfParser(TypedDict, total=False):
    """Options for reading PDF files."""

    type: Required[Literal["pdf"]]
    mode: Literal["fast", "auto", "ocr"]
    max_pages: Annotated[int, Meta(ge=1, le=10_000)]
    pages: bool
    blocks: bool
    page_markers: bool


class ImageParser(TypedDict, total=False):
    """Reads the text in images."""

    type: Required[Literal["image"]]


Parser = Literal["pdf", "image"] | PdfParser | ImageParser | Free


class Location(TypedDict, total=False):
    """The country and languages from which the page is requested."""

    country: str
    languages: Sequence[str]


class Profile(TypedDict, total=False):
    """Browser storage that sessions with the same profile name share."""

    name: Required[Annotated[str, Meta(min_length=1, max_length=128)]]
    save_changes: bool


class AuditMetadata(TypedDict, total=False):
    """The user behind a request, for the audit log of the account."""

    username: Required[Annotated[str, Meta(max_length=1024)]]


class WebhookConfig(TypedDict, total=False):
    """The receiver of the webhooks of a job."""

    url: Required[Url]
    headers: Headers
    metadata: Free
    events: Sequence[Literal["started", "page", "completed", "failed"]]


class AgentWebhookConfig(TypedDict, total=False):
    """The receiver of the webhooks of an agent job, which has other events."""

    url: Required[Url]
    headers: Headers
    metadata: Free
    events: Sequence[Literal["started", "action", "completed", "failed", "cancelled"]]


Webhook = Url | WebhookConfig | Free
AgentWebhook = Url | AgentWebhookConfig | Free


class WebSource(TypedDict, total=False):
    """Searches the web."""

    type: Required[Literal["web"]]
    tbs: str
    location: str


class OtherSource(TypedDict, total=False):
    """Searches images or news."""

    type: Required[Literal["images", "news"]]


Source = Literal["web", "images", "news"] | WebSource | OtherSource | Free


class Category(TypedDict, total=False):
    """Object form of a category."""

    type: Required[str]
