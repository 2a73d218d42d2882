"""Compares a page with its last scraped version.

Two versions are equal if their markdown differs only in white space. A page that returns 404 or 410 is removed. A
response with any other error status says nothing about the content, so it is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from weblake_service.page.line_diff import unified_diff
from weblake_service.page.requested_formats import format_entry, items

_GONE_STATUSES = frozenset([404, 410])
#: The words are compared one by one: lists of those of a large page would fill the memory.
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """The change tracking options of a request."""

    #: Separates histories; None for the default history.
    tag: str | None
    #: Whether the request asks for the changed lines.
    diff: bool


def read_tracking_options(options: Mapping[str, object]) -> TrackingOptions | None:
    """Return the change tracking options (snake_case), or None if change tracking is not requested."""
    entry = format_entry(options, "changeTracking")
    if entry is None:
        return None
    tag = entry.get("tag")
    return TrackingOptions(tag if isinstance(tag, str) else None, diff="git-diff" in items(entry.get("modes")))


def is_comparable(status: object) -> bool:
    """Return whether a response with this status says whether the page's content still exists."""
    return isinstance(status, int) and (status < 400 or status in _GONE_STATUSES)


def is_content(status: object) -> bool:
    """Return whether a response with this status is a version to compare later ones with."""
    return isinstance(status, int) and status < 400


def compare(tracking: TrackingOptions, previous: str | None, current: str, status: object) -> dict[str, object]:
    """Return `changeStatus`, and `diff` if it was requested and the page has changed.

    Args:
        previous: The markdown of the last version; None if there is none.
        current: The markdown of this version.
        status: The status code of the target's response.
    """
    if status in _GONE_STATUSES:
        return {"changeStatus": "removed"}
    if previous is None:
        return {"changeStatus": "new"}
    words = zip_longest(_WORD.finditer(previous), _WORD.finditer(current))
    if previous == current or all(one and other and one[0] == other[0] for one, other in words):
        return {"changeStatus": "same"}
    changed: dict[str, object] = {"changeStatus": "changed"}
    if tracking.diff:
        changed["diff"] = unified_diff(previous, current)
    return changed
