"""What may be asked of the service, and the two ways across the wire.

`requests` holds the options of each request, `shapes` what is nested in them; `rules` what one option says about
another; `values` the checks of single values; `fields` and `checks` do the walking. Programs need this door only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weblake.api.options.checks import Reader, to_wire_names
from weblake.api.options.requests import (
    RULES,
    ActivityOptions,
    AgentOptions,
    AgentRequest,
    BatchScrapeOptions,
    BatchScrapeRequest,
    BrowserFilter,
    BrowserOptions,
    ChunkQuery,
    CrawlOptions,
    CrawlParamsPreviewRequest,
    CrawlRequest,
    ExecuteOptions,
    ExecuteRequest,
    ExtractOptions,
    ExtractRequest,
    InteractOptions,
    Labels,
    MapOptions,
    MapRequest,
    PageOptions,
    ParseOptions,
    ScrapeOptions,
    ScrapeRequest,
    SearchOptions,
    SearchRequest,
    UsageOptions,
    sent_by_sdk,
)
from weblake.api.options.values import url_problem

__all__ = [
    "ActivityOptions",
    "AgentOptions",
    "AgentRequest",
    "BatchScrapeOptions",
    "BatchScrapeRequest",
    "BrowserFilter",
    "BrowserOptions",
    "ChunkQuery",
    "CrawlOptions",
    "CrawlParamsPreviewRequest",
    "CrawlRequest",
    "ExecuteOptions",
    "ExecuteRequest",
    "ExtractOptions",
    "ExtractRequest",
    "InteractOptions",
    "Labels",
    "MapOptions",
    "MapRequest",
    "PageOptions",
    "ParseOptions",
    "ScrapeOptions",
    "ScrapeRequest",
    "SearchOptions",
    "SearchRequest",
    "UsageOptions",
    "check_query_names",
    "from_wire",
    "to_wire",
    "url_problem",
]


def to_wire(cls: type, options: Mapping[str, object]) -> dict[str, object]:
    """The options, checked, under their wire names.

    Args:
        cls: One of the classes here, such as `ScrapeRequest`.
        options: By snake_case name; nested names may also be spelled as on the wire. Not changed.

    Raises:
        InvalidOption: An unknown name, a wrong type, a value out of its range, or two that exclude each other. The
            message names the option in snake_case.
    """
    checked = Reader(RULES, wire=False).top(cls, options)
    named = to_wire_names(cls, checked)
    assert isinstance(named, dict)
    return named


def check_query_names(cls: type, names: Iterable[str]) -> None:
    """Refuse names of a received query string that the contract does not list; raises as `from_wire`."""
    Reader(RULES, wire=True, left_out=sent_by_sdk(cls)).check_names(cls, names)


def from_wire(cls: type, body: object, *, ignore_unknown: bool = False) -> dict[str, object]:
    """The options of a received request, checked, under their snake_case names.

    Names that the public SDK sends although the contract does not list them for this request are left out.

    Args:
        cls: One of the classes here, such as `ScrapeRequest`.
        body: The decoded body.
        ignore_unknown: Whether unknown names are left out instead of refused; for options that a language model wrote.

    Raises:
        InvalidOption: As `to_wire`, and where the body is no object; the message has the name on the wire.
    """
    return Reader(RULES, wire=True, ignore_unknown=ignore_unknown, left_out=sent_by_sdk(cls)).top(cls, body)
