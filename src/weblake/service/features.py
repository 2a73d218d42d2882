"""What this service cannot do without more set-up, refused by name and never imitated. Imports: answers."""

from __future__ import annotations

from collections.abc import Mapping

from weblake.service.answers import Refusal

_BROWSER = "a browser (weblake[browser])"
_LLM = "a language model (weblake[llm])"
_LATER = "a part of the service that comes with a later version"

#: The formats that a page fetched over HTTP can be turned into.
PLAIN_FORMATS = frozenset({"markdown", "html", "rawHtml", "links", "images"})
_FORMATS = {
    "screenshot": _BROWSER,
    "branding": _BROWSER,
    "audio": _LATER,
    "video": _LATER,
    "changeTracking": _LATER,
    "attributes": _LATER,
    "summary": _LLM,
    "json": _LLM,
    "question": _LLM,
    "highlights": _LLM,
}
#: Options that need more as soon as they are set to something.
_OPTIONS = {
    "actions": ("actions", _BROWSER),
    "wait_for": ("waitFor", _BROWSER),
    "mobile": ("mobile", _BROWSER),
    "profile": ("profile", _BROWSER),
    "redact_pii": ("redactPII", _LLM),
    "threat_protection": ("threatProtection", _LATER),
}

#: Whole endpoints, by method and path.
ENDPOINTS = (
    (("POST", "DELETE"), "/v2/scrape/{id}/interact", "Interact", _BROWSER),
    (("POST",), "/v2/parse", "Parse", _LATER),
    (("POST", "GET"), "/v2/browser", "Browser sessions", _BROWSER),
    (("DELETE",), "/v2/browser/{id}", "Browser sessions", _BROWSER),
    (("POST",), "/v2/browser/{id}/execute", "Browser sessions", _BROWSER),
    (("POST",), "/v2/crawl/params-preview", "Crawl parameter preview", _LLM),
    (("POST",), "/v2/search", "Search", _LATER),
    (("POST",), "/v2/extract", "Extract", _LLM),
    (("GET",), "/v2/extract/{id}", "Extract", _LLM),
    (("POST",), "/v2/agent", "The agent", _LLM),
    (("GET", "DELETE"), "/v2/agent/{id}", "The agent", _LLM),
)


def missing(what: str, needs: str) -> Refusal:
    """The refusal of something that is not set up."""
    return Refusal(503, f"{what} needs {needs}, which this service does not have.", code="FEATURE_NOT_CONFIGURED")


def check_page_options(options: Mapping[str, object]) -> None:
    """Makes sure that pages can be scraped with these options (snake_case) here.

    Raises:
        Refusal: 503 with the name of what is missing, or 403 where zero data retention is asked for.
    """
    for kind in format_names(options):
        if kind not in PLAIN_FORMATS:
            raise missing(f"The format `{kind}`", _FORMATS.get(kind, _LATER))
    for name, (wire, needs) in _OPTIONS.items():
        if options.get(name):
            raise missing(f"The option `{wire}`", needs)
    check_location(options)
    if options.get("proxy") == "enhanced":
        raise missing("The option `proxy: enhanced`", "a proxy service")
    check_retention(options)


def check_location(options: Mapping[str, object]) -> None:
    """Refuses a location other than the default: there is no proxy that could be there."""
    location = options.get("location")
    if isinstance(location, Mapping) and (location.get("languages") or location.get("country", "US") != "US"):
        raise missing("The option `location`", "a proxy service")


def check_retention(options: Mapping[str, object]) -> None:
    """Refuses zero data retention, which an operator would have to enable for the account."""
    if options.get("zero_data_retention"):
        raise Refusal(403, "Zero data retention is not enabled for this account.", code="ZDR_NOT_ENABLED")


def check_crawl_options(plan: Mapping[str, object]) -> None:
    """The same for the options of a crawl itself."""
    if plan.get("prompt"):
        raise missing("The option `prompt`", _LLM)
    check_retention(plan)


def format_names(options: Mapping[str, object]) -> list[str]:
    """The kinds of output that are asked for; markdown alone where nothing is said."""
    formats = options.get("formats")
    if not isinstance(formats, list | tuple):
        return ["markdown"]
    return [str(entry.get("type")) if isinstance(entry, Mapping) else str(entry) for entry in formats]
