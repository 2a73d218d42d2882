"""Expand `~` in paths to the home directory."""

from __future__ import annotations

from pathlib import Path

from weblake.errors import InvalidOption


def home(path: str | Path = "~") -> Path:
    """Return a path with `~` or `~user` replaced by the home directory; any other path is unchanged.

    Raises:
        InvalidOption: The directory is unknown, for example in a container whose user id is not in the user database.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InvalidOption(
            f"The home directory of {str(path)!r} is not known.",
            hint="Set HOME (or XDG_STATE_HOME, for the embedded service's database), or give a path without ~.",
        ) from None
