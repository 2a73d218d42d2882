"""What one service may do, and who may ask it. Imports: errors."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weblake.errors import InvalidOption

#: The team of a key that names none.
DEFAULT_TEAM = "local"


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """One API key, its name in the by-key reports, and the team whose jobs and credits it shares."""

    key: str = field(repr=False)
    name: str = "default"
    team: str = DEFAULT_TEAM


@dataclass(frozen=True, slots=True)
class Access:
    """Who is asking: what is left of a key once it has been recognised."""

    team: str
    key_name: str


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The limits and permissions of one service. The defaults refuse private targets and limit almost nothing."""

    #: Whether loopback and private addresses may be scraped and may receive webhooks.
    allow_private: bool = False
    #: Credits of a team for one calendar month (UTC).
    plan_credits: int = 1_000_000_000
    #: Signs webhook deliveries; without it they carry no signature.
    webhook_secret: str | None = field(default=None, repr=False)
    #: POST requests of one team within a minute; None for no limit.
    requests_per_minute: int | None = None
    #: Pages fetched at the same time, over all jobs.
    concurrency: int = 10
    #: Pages of one team that may wait in running jobs; more is answered with 429.
    max_queued_pages: int = 1_000_000
    #: Bytes of a JSON body.
    max_body: int = 32 << 20
    #: Pages kept for maxAge, minAge and lockdown.
    max_cached_pages: int = 10_000
    #: Makes ids and the order of a job's documents the same in every run that asks the same; None for random ids.
    seed: int | None = None
    #: Host names that a request may carry; None for any. A loopback service allows only loopback names.
    hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "::1"})


def digest(key: str) -> str:
    """What the service keeps of a key. A key is long and random, so a plain hash is enough."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def new_key() -> str:
    """A fresh key of 32 random characters."""
    return "wl-" + secrets.token_urlsafe(24)


def read_keys(keys: str | Mapping[str, str] | Iterable[ServiceKey] | None) -> list[ServiceKey]:
    """The keys in one form: a single key, names with their keys, or `ServiceKey`s.

    Raises:
        InvalidOption: A key is empty or no HTTP header could carry it, or two keys or two names of a team are equal.
    """
    if keys is None:
        found: list[ServiceKey] = []
    elif isinstance(keys, str):
        found = [ServiceKey(keys)]
    elif isinstance(keys, Mapping):
        found = [ServiceKey(key, name=name) for name, key in keys.items()]
    else:
        found = list(keys)
    for entry in found:
        if not entry.key or not entry.key.isascii() or not entry.key.isprintable() or " " in entry.key:
            raise InvalidOption(
                f"The API key named {entry.name!r} is empty or holds characters that no HTTP header can carry.",
                hint="Use printable ASCII without spaces.",
            )
    if len({entry.key for entry in found}) < len(found) or len({(e.team, e.name) for e in found}) < len(found):
        raise InvalidOption("Two API keys are equal, or two keys of one team have the same name.")
    return found
