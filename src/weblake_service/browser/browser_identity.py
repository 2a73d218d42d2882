"""The team and the browser profile for which a page is rendered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrowserIdentity:
    """Who visits, and with which profile."""

    team: str
    #: The profile's cookies and storage as JSON; empty for a new one, None for none.
    profile: bytes | None = None
    #: Whether the profile is to be given back.
    saves_profile: bool = False
