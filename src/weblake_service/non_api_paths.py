"""Paths outside the API with their own authentication: the console and the connections of browser sessions."""

from __future__ import annotations

_PREFIXES = ("/console/", "/sessions/")


def is_outside_api(path: str) -> bool:
    """Return whether a path uses a sign-in or a token instead of an API key."""
    return path == "/" or path.startswith(_PREFIXES)
