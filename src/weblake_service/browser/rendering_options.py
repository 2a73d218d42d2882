"""Decides which requests need a browser; all others are fetched over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping

from weblake_service.page.requested_formats import format_name, format_names, items

#: Formats that need a browser.
FORMATS = frozenset(["screenshot", "branding"])
_BROWSER_OPTIONS = {"actions": "actions", "wait_for": "waitFor", "mobile": "mobile", "profile": "profile"}


def option_that_needs_browser(options: Mapping[str, object]) -> str:
    """Return a description of the first option (snake_case) that needs a browser; empty if none does."""
    for name in format_names(options):
        if name in FORMATS:
            return f"The format `{name}`"
    return next((f"The option `{wire}`" for name, wire in _BROWSER_OPTIONS.items() if options.get(name)), "")


def requested_captures(options: Mapping[str, object]) -> list[str]:
    """Return the names of what a browser is to make besides the source: formats, and `actions`."""
    return [name for name in format_names(options) if name in FORMATS] + ["actions"] * bool(options.get("actions"))


def needs_pictures(options: Mapping[str, object]) -> bool:
    """Return whether what is requested shows pictures: a format of the browser, a screenshot or a PDF of an action."""
    kinds = {one.get("type") for one in items(options.get("actions")) if isinstance(one, Mapping)}
    return not FORMATS.isdisjoint(format_names(options)) or not kinds.isdisjoint({"screenshot", "pdf"})


def needs_browser_for_formats_only(options: Mapping[str, object]) -> bool:
    """Return whether the page can be fetched over HTTP without the formats that need a browser."""
    rest = [entry for entry in items(options.get("formats")) if format_name(entry) not in FORMATS]
    return bool(rest) and not option_that_needs_browser({**options, "formats": rest})


def rendering_key(options: Mapping[str, object]) -> str:
    """Return a key that is equal for equal rendering options; empty if no browser is needed."""
    if not option_that_needs_browser(options):
        return ""
    formats = [entry for entry in items(options.get("formats")) if format_name(entry) in FORMATS]
    look = {name: options[name] for name in (*_BROWSER_OPTIONS, "block_ads") if options.get(name) not in (None, [])}
    return json.dumps([look, formats], sort_keys=True, default=str)
