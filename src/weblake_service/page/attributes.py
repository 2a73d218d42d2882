"""The `attributes` format: attribute values of the elements that a CSS selector matches."""

from __future__ import annotations

from collections.abc import Mapping

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.content_types import ContentKind, kind_of, text_of
from weblake_service.page.parser_limits import limit_nesting
from weblake_service.page.selectors import attribute_selectors, refuse_costly_selectors


def read_attributes(content_type: str, body: bytes, options: Mapping[str, object]) -> list[dict[str, object]]:
    """Returns one `{selector, attribute, values}` for each selector asked for, in that order.

    The values come from the whole page as it was sent, in document order, as they are written there; elements without
    the attribute are passed over. A file that is no HTML has no elements, and so no values.
    """
    tree = None
    if kind_of(content_type, body) is ContentKind.HTML:
        tree = LexborHTMLParser(limit_nesting(text_of(content_type, body)))
        refuse_costly_selectors(tree, (selector for selector, _ in attribute_selectors(options)))
    return [
        {"selector": selector, "attribute": attribute, "values": _values(tree, selector, attribute)}
        for selector, attribute in attribute_selectors(options)
    ]


def _values(tree: LexborHTMLParser | None, selector: str, attribute: str) -> list[str]:
    nodes = tree.css(selector) if tree is not None else []
    # HTML's own attributes are in lower case in the tree, whatever the page and the request write.
    found = [node.attributes for node in nodes]
    name = attribute.lower()
    return [attributes[name] or "" for attributes in found if name in attributes]
