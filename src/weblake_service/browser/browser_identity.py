"""The team and the browser profile for which a page is rendered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrowserIdentity:
    """The team and the profile of a page visit."""

    team: str
    #: The profile's cookies and storage as JSON; empty for a new profile, None for no profile.
    profile: bytes | None = None
    #: Whether the profile is to be returned after the visit.
    saves_profile: bool = False
