"""Reads the metadata of a page.

Every `meta` name and property keeps its own key; a repeated one becomes a list. The names of the contract are added:
`og:title` is also `ogTitle`. A page cannot override the fields that the service sets.
"""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.ancestors import is_within
from weblake_service.page.links import absolute

_RESERVED_LIST = (
    "sourceURL url statusCode contentType error scrapeId proxyUsed cacheState cachedAt creditsUsed concurrencyLimited "
    "concurrencyQueueDurationMs numPages totalPages timezone rendered scriptFilled"
)
#: Keys that the service sets; a page that uses them as a name is ignored.
RESERVED = frozenset(_RESERVED_LIST.split())
#: Single strings in the contract, so the first one is used if a page has several.
_SINGLE_VALUED = frozenset(["title", "description", "language", "keywords"])

_DOCUMENTED = {
    "og:title": "ogTitle",
    "og:description": "ogDescription",
    "og:url": "ogUrl",
    "og:image": "ogImage",
    "og:audio": "ogAudio",
    "og:video": "ogVideo",
    "og:determiner": "ogDeterminer",
    "og:locale": "ogLocale",
    "og:site_name": "ogSiteName",
    "article:published_time": "publishedTime",
    "article:modified_time": "modifiedTime",
    "article:section": "articleSection",
    "article:tag": "articleTag",
    "dc.date": "dcDate",
    "dc.date.created": "dcDateCreated",
    "dc.description": "dcDescription",
    "dc.subject": "dcSubject",
    "dc.type": "dcType",
    "dcterms.audience": "dcTermsAudience",
    "dcterms.created": "dcTermsCreated",
    "dcterms.keywords": "dcTermsKeywords",
    "dcterms.subject": "dcTermsSubject",
    "dcterms.type": "dcTermsType",
}
#: A list in the contract, however often a page has it.
_LOCALES_KEY = "ogLocaleAlternate"


def read_metadata(tree: LexborHTMLParser, base: str) -> dict[str, object]:
    """Return the page's own metadata: title, description, language, keywords, favicon, and every `meta` tag."""
    found = _metas(tree)
    metadata: dict[str, object] = {}
    drawings = {node.mem_id for node in tree.css("svg")}
    known: dict[int, bool] = {}
    # A title within an SVG image is not that of the page.
    title = next((node.text().strip() for node in tree.css("title") if not is_within(node, drawings, known)), "")
    if title:
        metadata["title"] = " ".join(title.split())
    language = _language(tree)
    if language:
        metadata["language"] = language
    icon = tree.css_first("link[rel~=icon i][href]")
    if icon is not None:
        metadata["favicon"] = absolute(icon.attributes.get("href"), base)
    for key, values in found.items():
        if key in RESERVED or key in metadata:
            continue
        metadata[key] = values[0] if key in _SINGLE_VALUED or len(values) == 1 else values
    for key, name in _DOCUMENTED.items():
        if key in found and name not in found:
            metadata[name] = metadata[key]
    locales = found.get("og:locale:alternate") or found.get(_LOCALES_KEY)
    if locales:
        metadata[_LOCALES_KEY] = locales
    return metadata


def _metas(tree: LexborHTMLParser) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[content]"):
        attributes = node.attributes
        key = (attributes.get("property") or attributes.get("name") or attributes.get("itemprop") or "").strip()
        # Standard names are matched without regard to case; other names keep the page's spelling.
        if (
            key.lower() in _SINGLE_VALUED
            or key.lower() in _DOCUMENTED
            or key.lower() in {"robots", "og:locale:alternate"}
        ):
            key = key.lower()
        if key:
            found.setdefault(key, []).append((attributes.get("content") or "").strip())
    return found


def _language(tree: LexborHTMLParser) -> str:
    root = tree.css_first("html")
    declared = root.attributes if root is not None else {}
    language = declared.get("lang") or declared.get("xml:lang") or ""
    if not language:
        node = tree.css_first("meta[http-equiv=content-language i][content]")
        language = (node.attributes.get("content") or "") if node is not None else ""
    return language.strip()
