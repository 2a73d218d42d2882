"""The `attributes` format: attribute values of the elements that a CSS selector matches."""

from __future__ import annotations

from collections.abc import Mapping

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.content_types import ContentKind, html_of, kind_of
from weblake_service.page.parser_limits import limit_nesting
from weblake_service.page.selectors import attribute_selectors


def read_attributes(content_type: str, body: bytes, options: Mapping[str, object]) -> list[dict[str, object]]:
    """Return one `{selector, attribute, values}` for each requested selector, in request order.

    The values come from the whole page as received, unmodified and in document order; elements without the attribute
    are skipped. A body that is not HTML has no elements, so the lists of values are empty.
    """
    tree = None
    if kind_of(content_type, body) is ContentKind.HTML:
        tree = LexborHTMLParser(limit_nesting(html_of(content_type, body)))
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
