"""Paths outside the API, which authenticate by themselves: the console and the connections of browser sessions."""

from __future__ import annotations

_BEGINNINGS = ("/console/", "/sessions/")


def is_outside_api(path: str) -> bool:
    """Return whether a path asks for a sign-in or a word of its own, and not for an API key."""
    return path == "/" or path.startswith(_BEGINNINGS)
