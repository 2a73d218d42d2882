"""Paths that are no part of the API: the pages for people and the doors of browser sessions, which ask who comes in
themselves."""

from __future__ import annotations

_BEGINNINGS = ("/console/", "/sessions/")


def is_outside_api(path: str) -> bool:
    """Whether a path asks for a sign-in or a word of its own, and not for an API key."""
    return path == "/" or path.startswith(_BEGINNINGS)
