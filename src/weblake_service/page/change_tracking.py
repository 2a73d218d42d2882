"""Compares a page with its last scraped version.

Two versions are the same where their markdown is, but for white space. A page that answers 404 or 410 was removed. A
page that answers with any other error says nothing about its content, so it is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weblake_service.page.line_diff import unified_diff

_GONE = frozenset([404, 410])


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """How a request wants a page compared."""

    #: Separates histories; None for the default one.
    tag: str | None
    #: Whether the changed lines are wanted.
    diff: bool


def read_tracking_options(options: Mapping[str, object]) -> TrackingOptions | None:
    """What the options (snake_case) say about change tracking; None where it is not asked for."""
    formats = options.get("formats")
    for entry in formats if isinstance(formats, list | tuple) else ():
        if entry == "changeTracking":
            return TrackingOptions(None, diff=False)
        if isinstance(entry, Mapping) and entry.get("type") == "changeTracking":
            modes, tag = entry.get("modes"), entry.get("tag")
            with_diff = isinstance(modes, list | tuple) and "git-diff" in modes
            return TrackingOptions(tag if isinstance(tag, str) else None, diff=with_diff)
    return None


def is_comparable(status: object) -> bool:
    """Whether an answer with this status says what became of the page's content."""
    return isinstance(status, int) and (status < 400 or status in _GONE)


def is_content(status: object) -> bool:
    """Whether an answer with this status is a version that later ones are compared with."""
    return isinstance(status, int) and status < 400


def compare(asked: TrackingOptions, previous: str | None, current: str, status: object) -> dict[str, object]:
    """Returns `changeStatus`, and `diff` where it was asked for and the page has changed.

    Args:
        previous: The markdown of the last version; None where there is none.
        current: The markdown of this one.
        status: What the target answered.
    """
    if status in _GONE:
        return {"changeStatus": "removed"}
    if previous is None:
        return {"changeStatus": "new"}
    if previous == current or previous.split() == current.split():
        return {"changeStatus": "same"}
    changed: dict[str, object] = {"changeStatus": "changed"}
    if asked.diff:
        changed["diff"] = unified_diff(previous, current)
    return changed
