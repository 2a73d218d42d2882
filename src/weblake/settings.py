"""The settings of the service, from arguments and the environment: base URL and API key.

No vendor's address is built in. Without a base URL, `find` returns None and the client uses the embedded service.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from weblake.credentials import ApiKey, BaseUrl
from weblake.errors import AskPerson
from weblake.home import home
from weblake.remedies import Remedy

BASE_URL, API_KEY, INSECURE = "WEBLAKE_BASE_URL", "WEBLAKE_API_KEY", "WEBLAKE_INSECURE"


@dataclass(frozen=True, slots=True)
class Settings:
    """The base URL of a service and its API key."""

    base_url: BaseUrl
    api_key: ApiKey


def find(
    base_url: str | None = None, api_key: ApiKey | None = None, *, insecure: bool | None = None
) -> Settings | None:
    """Return the settings, arguments before environment; None if no base URL is set: use the embedded service then.

    Raises:
        InvalidOption: The base URL or the key cannot be used.
        AskPerson: There is a base URL and no key.
    """
    url = base_url or os.environ.get(BASE_URL, "").strip()
    if not url:
        return None
    if insecure is None:
        insecure = os.environ.get(INSECURE, "").strip().lower() in ("1", "true", "yes", "on")
    base = BaseUrl.parse(url, insecure=insecure)
    key = ApiKey(os.environ.get(API_KEY, "")) if api_key is None else api_key
    if not key:
        raise AskPerson(
            f"There is a base URL ({base}) and no API key.",
            hint=Remedy(
                "Set {api_key} to the key that the service's dashboard shows, or that `weblake serve` printed."
            ),
        )
    key.check()
    return Settings(base, key)


def state_dir() -> Path:
    """Return the directory of the embedded service's database, in the user's XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME", "").strip()
    if base and Path(base).is_absolute():
        return Path(base) / "weblake"
    return home() / ".local" / "state" / "weblake"
