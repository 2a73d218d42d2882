"""Validates the CSS selectors of a request before anything is fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from weblake_service.page_failure import PageFailure

#: Maximum characters of one selector, and maximum selectors of one request: more than people write by hand.
_MAX_CHARS = 1000
_MAX_SELECTORS = 500
#: Maximum comparisons of counting selectors: about two seconds.
_MAX_COMPARISONS = 250_000_000
_MAX_NESTING = 20


def selector_problem(options: Mapping[str, object]) -> str | None:
    """Return what is wrong with the selectors in scrape options (snake_case), as a sentence; None if they are valid."""
    found = list(_selectors(options))
    if len(found) > _MAX_SELECTORS:
        allowed = f"at most {_MAX_SELECTORS} are taken"
        return f"The request has {len(found)} CSS selectors, and {allowed}. Join some with commas."
    nothing = LexborHTMLParser("")
    for where, selector in found:
        if len(selector) > _MAX_CHARS:
            return (
                f"{where} has a CSS selector of {len(selector)} characters; at most {_MAX_CHARS} are taken. Shorten it."
            )
        try:
            nothing.css(selector)
        except (SelectolaxError, ValueError):
            return f"{where} has a CSS selector that cannot be read: {selector!r}. Mend it and send the request again."
    return None


def attribute_selectors(options: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the selectors of the `attributes` formats, each with its attribute."""
    formats = options.get("formats")
    return [
        (str(one.get("selector")), str(one.get("attribute")))
        for entry in (formats if isinstance(formats, list | tuple) else ())
        if isinstance(entry, Mapping) and entry.get("type") == "attributes"
        for one in entry.get("selectors") or ()
    ]


def refuse_costly_selectors(tree: LexborHTMLParser, selectors: Iterable[str]) -> None:
    """Check that counting selectors can be run on a page: their cost grows with the square of the elements counted.

    Raises:
        PageFailure: Running them would block the whole service.
    """
    counting = [selector.lower() for selector in selectors if ":nth-" in selector.lower()]
    if not counting:
        return
    siblings = Counter(node.parent.mem_id for node in tree.css("*") if node.parent is not None)
    steps = sum(number * number for number in siblings.values())
    # Within :has() a selector may be run for every element around it.
    runs = sum(selector.count(":nth-") * (_MAX_NESTING if ":has(" in selector else 1) for selector in counting)
    if steps * runs > _MAX_COMPARISONS:
        message = (
            f"The page has up to {max(siblings.values())} elements side by side, too many for selectors that count "
            "(:nth-child and its like). Select by name, class or attribute."
        )
        raise PageFailure("BAD_REQUEST", message, status=400)


def _selectors(options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, wire in (("include_tags", "includeTags"), ("exclude_tags", "excludeTags")):
        given = options.get(name)
        for selector in given if isinstance(given, list | tuple) else ():
            yield wire, str(selector)
    for selector, _ in attribute_selectors(options):
        yield "formats[].selectors", selector
