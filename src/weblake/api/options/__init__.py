"""The options of all requests: their types, their checks, and conversion to and from wire names.

`requests` defines the options of each request, `shapes` the nested objects, `rules` the rules between options, and
`values` the checks of single values; `fields` and `checks` apply them. Other packages import from here only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weblake.api.options.checks import Reader, to_wire_names
from weblake.api.options.requests import *  # noqa: F403
from weblake.api.options.requests import sent_by_sdk
from weblake.api.options.values import url_problem as url_problem


def to_wire(cls: type, options: Mapping[str, object]) -> dict[str, object]:
    """Return the options, checked, under their wire names.

    Args:
        cls: One of the request classes, such as `ScrapeRequest`.
        options: The options by snake_case name; nested names may also be wire names. Not changed.

    Raises:
        InvalidOption: A name is unknown, a type is wrong, a value is out of range, or two options exclude each other.
            The message names the option in snake_case.
    """
    return to_wire_names(cls, Reader(wire=False).top(cls, options))


def from_texts(cls: type, options: Mapping[str, object]) -> dict[str, object]:
    """Return the options, checked, under their snake_case names; raises as `to_wire`.

    A number, boolean, list or object may be written as text, as templates render it: as JSON, or as Python writes it.
    """
    return Reader(wire=False, texts=True).top(cls, options)


def check_query_names(cls: type, names: Iterable[str]) -> None:
    """Refuse names of a received query string that the contract does not list; raises as `from_wire`."""
    Reader(wire=True, left_out=sent_by_sdk(cls)).check_names(cls, names)


def from_wire(cls: type, body: object, *, ignored: list[str] | None = None) -> dict[str, object]:
    """Return the options of a received request, checked, under their snake_case names.

    Names that the public SDK sends although the contract does not list them for this request are left out.

    Args:
        cls: One of the request classes, such as `ScrapeRequest`.
        body: The decoded body.
        ignored: If given, unknown names are added to it and left out, except in `scrapeOptions`, whose names are fixed
            by the contract's text.

    Raises:
        InvalidOption: As `to_wire`, and if the body is not an object. The message has the wire name of the option.
    """
    return Reader(wire=True, ignored=ignored, left_out=sent_by_sdk(cls)).top(cls, body)
