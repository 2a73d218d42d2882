"""The formats that are values of single elements: `audio` and `video`, the URL of the page's own recording; attributes.

Nothing is downloaded or converted. Players of other sites in frames are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.content_types import ContentKind, html_of, kind_of
from weblake_service.page.links import absolute, base_of, is_web
from weblake_service.page.parser_limits import limit_nesting
from weblake_service.page.requested_formats import format_names
from weblake_service.page.selectors import attribute_selectors

#: The formats that return the URL of a recording.
FORMATS = ("audio", "video")


def requested_media(options: Mapping[str, object]) -> list[str]:
    """Return which of the formats `audio` and `video` the options request."""
    names = format_names(options)
    return [name for name in FORMATS if name in names]


def read_media(content_type: str, body: bytes, url: str, wanted: list[str]) -> dict[str, object]:
    """Return the http(s) URL of the first recording of each kind.

    The page's metadata is read first, then its media elements in document order. A kind of which the page has no
    recording is left out.
    """
    tree = _tree(content_type, body)
    found: dict[str, object] = {}
    for name in wanted:
        candidates = _candidates(tree, name, base_of(tree, url)) if tree is not None else iter(())
        address = next((one for one in candidates if is_web(one)), None)
        if address is not None:
            found[name] = address
    return found


def _tree(content_type: str, body: bytes) -> LexborHTMLParser | None:
    is_html = kind_of(content_type, body) is ContentKind.HTML
    return LexborHTMLParser(limit_nesting(html_of(content_type, body))) if is_html else None


def _candidates(tree: LexborHTMLParser, name: str, base: str) -> Iterator[str]:
    kinds = _properties(tree, f"og:{name}:type")
    # The metadata can also point to a player page; its declared type says so.
    if not any(kind.lower().startswith("text/html") for kind in kinds):
        for prop in (f"og:{name}:secure_url", f"og:{name}:url", f"og:{name}"):
            yield from (absolute(one, base) for one in _properties(tree, prop))
    for node in tree.css(f"{name}[src], {name} source[src]"):
        yield absolute(node.attributes.get("src"), base)


def _properties(tree: LexborHTMLParser, name: str) -> list[str]:
    nodes = tree.css(f'meta[property="{name}"][content], meta[name="{name}"][content]')
    return [node.attributes.get("content") or "" for node in nodes]


def read_attributes(content_type: str, body: bytes, options: Mapping[str, object]) -> list[dict[str, object]]:
    """Return one `{selector, attribute, values}` for each requested selector, in request order.

    The values come from the whole page as received, unmodified and in document order; elements without the attribute
    are skipped. A body that is not HTML has no elements, so the lists of values are empty.
    """
    tree = _tree(content_type, body)
    return [
        {"selector": selector, "attribute": attribute, "values": _values(tree, selector, attribute)}
        for selector, attribute in attribute_selectors(options)
    ]


def _values(tree: LexborHTMLParser | None, selector: str, attribute: str) -> list[str]:
    nodes = tree.css(selector) if tree is not None else []
    # The parser stores HTML attribute names in lower case, whatever the case in the page and the request.
    found = [node.attributes for node in nodes]
    name = attribute.lower()
    return [attributes[name] or "" for attributes in found if name in attributes]
