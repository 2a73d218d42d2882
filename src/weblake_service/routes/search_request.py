"""Parses the request of POST /v2/search and formats its results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec

from weblake.api import options
from weblake_service.config import Plan
from weblake_service.feature_checks import check_page_options, check_retention
from weblake_service.jobs.page_cache import is_private
from weblake_service.jobs.page_outcomes import Failed
from weblake_service.jobs.scraper import Scraped
from weblake_service.page.requested_formats import items
from weblake_service.page_failure import not_configured
from weblake_service.responses import bad_request
from weblake_service.routes.request_options import read_options
from weblake_service.store.search_index import MAX_WORDS, SearchHit, SearchQuery, read_query, restrict_to_domains

#: The contract's default number of results.
_DEFAULT_LIMIT, _DEFAULT_TIMEOUT_MS, _DEFAULT_COUNTRY = 10, 60_000, "US"
_SOURCES = ("web", "images", "news")
_RELATIVE_PERIOD = re.compile(r"qdr:([smhdwy]|n)(\d{0,4})", re.IGNORECASE)
#: Seconds; a month and a year as search engines define them.
_PERIOD_S = {"s": 1, "n": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "m": 31 * 86_400, "y": 366 * 86_400}


@dataclass(slots=True)
class SearchRequest:
    """A validated search request."""

    query: SearchQuery
    text: str
    limit: int
    newest: bool
    #: The kinds of results, in order.
    sources: list[str]
    category: str | None
    #: Whether a result's description is the matching passage and not the page's own description.
    highlights: bool
    #: Whether results that cannot be scraped are omitted.
    only_valid: bool
    timeout_ms: int
    #: The scrape options for the results; None if they are not scraped.
    page: dict[str, object] | None
    #: Whether the search itself requests zero data retention.
    unkept: bool
    #: Warnings for the response.
    notes: list[str] = field(default_factory=list)

    @property
    def private(self) -> bool:
        """Return whether only the price of the search may be recorded."""
        return self.unkept or is_private(self.page or {})


def read_search(body: Mapping[str, object], plan: Plan, now: float, *, llm: str) -> SearchRequest:
    """Return the validated request.

    Ages of pages are counted back from `now`; `llm` says what is missing for the use of a language model.

    Raises:
        ErrorResponse: 400; it is malformed. 403; zero data retention is not allowed. 503; it needs a missing feature.
    """
    # The contract gives no shape of a search: newer clients send names and sources that are not known here.
    sources = items(body.get("sources"))
    unknown = [one for one in sources if isinstance(name := _type(one), str) and name not in _SOURCES]
    ignored = [f"the source {str(_type(one))[:80]!a}" for one in unknown]
    known = {**body, "sources": [one for one in sources if one not in unknown]} if unknown else dict(body)
    if isinstance(modes := body.get("enterprise"), list):
        known["enterprise"] = [one for one in modes if one != "default"]  # firecrawl-mcp offers this mode: none
    given = read_options(options.SearchRequest, known, ignored)
    check_retention({"zero_data_retention": given.get("enterprise")}, plan)
    text = str(given["query"]).encode("utf-8", "replace").decode()
    limit, timeout = given.get("limit", _DEFAULT_LIMIT), given.get("timeout")
    query = read_query(text)
    restrict_to_domains(query, items(given.get("include_domains")))
    restrict_to_domains(query, items(given.get("exclude_domains")), without=True)
    newest = _time_filters(query, given, now)
    assert isinstance(limit, int)
    search_request = SearchRequest(
        query,
        text,
        limit,
        newest,
        list(dict.fromkeys(_name(source) for source in items(given.get("sources")))) or ([] if unknown else ["web"]),
        _category(query, given),
        highlights=given.get("highlights") is not False,
        only_valid=given.get("ignore_invalid_urls") is True,
        timeout_ms=timeout if isinstance(timeout, int) and timeout > 0 else _DEFAULT_TIMEOUT_MS,
        page=_page(given, plan, llm),
        unkept=bool(given.get("enterprise")),
    )
    search_request.notes += _warnings(search_request, given)
    if ignored:
        search_request.notes.append(f"Not known here and ignored: {', '.join(ignored[:10])}.")
    return search_request


def result(
    search_request: SearchRequest, found: SearchHit, place: int, page: Scraped | Failed | None
) -> dict[str, object]:
    """Return one entry of `data.web`; `place` counts from 0. The metadata of a page that failed has its error."""
    own = found.description
    shown: dict[str, object] = {
        "url": found.url,
        "title": found.title,
        "description": (found.passage or own) if search_request.highlights else (own or found.passage),
        "position": place + 1,
    }
    if search_request.category is not None:
        shown["category"] = search_request.category
    if isinstance(page, Scraped):
        document: dict[str, object] = msgspec.json.decode(page.stored.body)
        return document | shown
    if isinstance(page, Failed):
        shown["metadata"] = {"sourceURL": found.url, "url": found.url, "error": page.error, "code": page.code}
    return shown


def _page(given: Mapping[str, object], plan: Plan, llm: str) -> dict[str, object] | None:
    page = given.get("scrape_options")
    if not isinstance(page, Mapping) or not page or page.get("formats") == []:
        return None
    check_page_options(page, plan, llm=llm)
    return dict(page)


def _time_filters(query: SearchQuery, given: Mapping[str, object], now: float) -> bool:
    newest = False
    of_source = (source.get("tbs") for source in items(given.get("sources")) if isinstance(source, Mapping))
    for tbs in (given.get("tbs"), *of_source):
        if tbs:
            newest = _restrict_to_times(query, str(tbs), now) or newest
    return newest


def _restrict_to_times(query: SearchQuery, tbs: str, now: float) -> bool:
    """Restrict the query to pages stored in a period: `qdr:h`, `qdr:d3`, `cdr:1,cd_min:12/1/2026,cd_max:12/31/2026`.

    Returns:
        Whether the newest pages come first (`sbd:1`).
    """
    newest = False
    for part in map(str.strip, tbs.split(",")):
        name, _, value = part.partition(":")
        if (age := _RELATIVE_PERIOD.fullmatch(part)) is not None:
            query.narrow("stored >= ?", now - _PERIOD_S[age[1].lower()] * int(age[2] or 1))
        elif name in ("cd_min", "cd_max") and (day := _day(value)) is not None:
            query.narrow(*(("stored >= ?", day) if name == "cd_min" else ("stored < ?", day + 86_400)))
        elif name == "sbd" and value in ("0", "1"):
            newest = newest or value == "1"
        elif part and part != "cdr:1":
            bad_request(
                f"tbs holds {part[:60]!r}: write qdr:h, d, w, m or y, or cdr:1,cd_min:M/D/YYYY,cd_max:M/D/YYYY."
            )
    return newest


def _day(text: str) -> float | None:
    """Return the beginning of a day in the form month/day/year; None for anything else."""
    with suppress(ValueError):
        return datetime.strptime(text, "%m/%d/%Y").replace(tzinfo=timezone.utc).timestamp()
    return None


def _category(query: SearchQuery, given: Mapping[str, object]) -> str | None:
    """Return the file-type category that results are limited to: the only category that this index can distinguish."""
    names = list(dict.fromkeys(_name(category) for category in items(given.get("categories"))))
    for name in names:
        if name != "pdf":
            raise not_configured(f"The category `{name[:50]}`", "a web search engine")
        query.narrow("(instr(kind, '/pdf') > 0 OR substr(key, -4) = '.pdf')")
    return names[0] if names else None


def _warnings(search_request: SearchRequest, given: Mapping[str, object]) -> list[str]:
    notes = []
    if search_request.query.cut:
        notes.append(f"Only the first {MAX_WORDS} words of the query count.")
    others = [source for source in search_request.sources if source != "web"]
    if others:
        notes.append(f"The index holds web pages only, so there are no results for {' and '.join(others)}.")
    if given.get("location") or str(given.get("country", _DEFAULT_COUNTRY)).upper() != _DEFAULT_COUNTRY:
        notes.append("location and country change nothing here.")
    return notes


def _type(entry: object) -> object:
    return entry.get("type") if isinstance(entry, Mapping) else entry


def _name(entry: object) -> str:
    name = _type(entry)
    if not isinstance(name, str):
        bad_request("sources and categories are names, or objects with the name under `type`.")
    return name
