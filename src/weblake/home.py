"""Paths that begin at a user's home directory."""

from __future__ import annotations

from pathlib import Path

from weblake.errors import InvalidOption


def home(path: str | Path = "~") -> Path:
    """A path with its `~` replaced by the home directory of the user who is meant; any other as it is.

    Raises:
        InvalidOption: Nobody knows that directory, as for the user id of a container that is in no list of users.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InvalidOption(
            f"The home directory of {str(path)!r} is not known.",
            hint="Set HOME (or XDG_STATE_HOME, for the embedded service's database), or give a path without ~.",
        ) from None
