"""Refuses requests for features that are not configured, by name."""

from __future__ import annotations

from collections.abc import Mapping

from weblake_service.browser.chromium import require_browser
from weblake_service.browser.rendering_options import FORMATS as BROWSER_FORMATS
from weblake_service.browser.rendering_options import option_that_needs_browser
from weblake_service.config import Plan
from weblake_service.llm import model_options
from weblake_service.page.requested_formats import format_entry, format_names, items
from weblake_service.page.selectors import selector_problem
from weblake_service.page_failure import not_configured
from weblake_service.responses import ErrorResponse, bad_request
from weblake_service.web.location import country_problem, languages_problem
from weblake_service.web.redirect_chain import header_problem

_LATER_VERSION = "a part of the service that comes with a later version"

#: The formats that can be made from a page fetched over HTTP.
PLAIN_FORMATS = frozenset(
    {"markdown", "html", "rawHtml", "links", "images", "attributes", "changeTracking", "audio", "video"}
)
#: Options that need a further feature if they are set.
_FEATURE_OPTIONS = {
    "redact_pii": ("redactPII", _LATER_VERSION),
    "threat_protection": ("threatProtection", _LATER_VERSION),
}


def check_page_options(options: Mapping[str, object], plan: Plan | None = None, *, llm: str) -> None:
    """Check that pages can be scraped with these options (snake_case).

    Args:
        plan: The team's limits; without them zero data retention is refused.
        llm: What is missing for a language model; empty if there is one.

    Raises:
        ErrorResponse: 400 for an invalid selector, header or language, 403 for zero data retention without a plan that
            has it.
        PageFailure: 503 for a feature that is not configured.
    """
    headers = options.get("headers")
    problem = selector_problem(options) or (header_problem(headers) if isinstance(headers, Mapping) else None)
    problem = problem or languages_problem(options) or country_problem(options)
    if problem is not None:
        bad_request(problem)
    for kind in format_names(options):
        if kind in model_options.FIELDS and llm:
            raise not_configured(f"The format `{kind}`", llm)
        if kind not in PLAIN_FORMATS | BROWSER_FORMATS | model_options.FIELDS.keys():
            raise not_configured(f"The format `{kind}`", _LATER_VERSION)
    if llm:
        _check_tracking(options, llm)
    elif problem := model_options.problem(options):
        bad_request(problem)
    for name, (wire, needs) in _FEATURE_OPTIONS.items():
        if options.get(name):
            raise not_configured(f"The option `{wire}`", needs)
    _check_parsers(options)
    if options.get("proxy") == "enhanced":
        raise not_configured("The option `proxy: enhanced`", "a proxy service")
    check_retention(options, plan)
    _check_profile(options)
    if what := option_that_needs_browser(options):
        require_browser(what)


def _check_profile(options: Mapping[str, object]) -> None:
    profile = options.get("profile")
    if options.get("zero_data_retention") and isinstance(profile, Mapping) and profile.get("save_changes", True):
        bad_request("A profile that is saved is data that is kept: with zeroDataRetention say `saveChanges: false`.")


def _check_parsers(options: Mapping[str, object]) -> None:
    for parser in items(options.get("parsers")):
        kind, own = (parser.get("type"), parser) if isinstance(parser, Mapping) else (parser, {})
        if kind == "image" or own.get("mode") == "ocr":
            raise not_configured(f"The parser `{kind}` with text recognition", "an OCR engine")
        if own.get("blocks"):
            raise not_configured("The option `blocks` of the pdf parser", _LATER_VERSION)


def _check_tracking(options: Mapping[str, object], llm: str) -> None:
    entry = format_entry(options, "changeTracking") or {}
    if "json" in items(entry.get("modes")):
        raise not_configured("The mode `json` of changeTracking", llm)
    for name in ("prompt", "schema"):
        if entry.get(name):
            raise not_configured(f"The option `{name}` of changeTracking", llm)


def check_retention(options: Mapping[str, object], plan: Plan | None = None) -> None:
    """Refuse zero data retention, unless the team's plan has it."""
    if options.get("zero_data_retention") and not (plan is not None and plan.zero_data_retention):
        raise ErrorResponse(403, "Zero data retention is not enabled for this account.", code="ZDR_NOT_ENABLED")


def check_crawl_options(crawl_options: Mapping[str, object], plan: Plan, *, llm: str) -> None:
    """Check that the options of a crawl itself can be used; raises as `check_page_options` does."""
    if crawl_options.get("prompt") and llm:
        raise not_configured("The option `prompt`", llm)
    check_retention(crawl_options, plan)
