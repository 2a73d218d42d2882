"""Validates the CSS selectors of a request before anything is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

#: Maximum characters of one selector, and maximum selectors of one request: more than people write by hand.
_MAX_CHARS = 1000
_MAX_SELECTORS = 500


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


def _selectors(options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, wire in (("include_tags", "includeTags"), ("exclude_tags", "excludeTags")):
        given = options.get(name)
        for selector in given if isinstance(given, list | tuple) else ():
            yield wire, str(selector)
    for selector, _ in attribute_selectors(options):
        yield "formats[].selectors", selector
