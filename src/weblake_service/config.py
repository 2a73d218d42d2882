"""Limits and permissions of one service, plans of its teams, and its API keys."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from weblake.errors import InvalidOption

#: When pages that come over HTTP are rendered in a browser, and the variable with the default of a service.
RENDER_MODES, RENDER = ("auto", "always", "never"), "WEBLAKE_RENDER"
#: The default team of a key.
DEFAULT_TEAM = "local"


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """One API key, its name in the by-key reports, and the team whose jobs and credits it shares."""

    key: str = field(repr=False)
    name: str = "default"
    team: str = DEFAULT_TEAM


@dataclass(frozen=True, slots=True)
class Access:
    """The team and the name of an authenticated key."""

    team: str
    key_name: str


@dataclass(frozen=True, slots=True)
class TeamPlan:
    """The limits of one team; None for those that equal the service's own."""

    credits: int | None = None
    requests_per_minute: int | None = None
    reads_per_minute: int | None = None
    concurrency: int | None = None
    max_queued_pages: int | None = None
    zero_data_retention: bool | None = None
    webhook_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """The resolved limits of one team; the fields are those of `ServiceConfig`."""

    credits: int
    requests_per_minute: int | None
    reads_per_minute: int | None
    concurrency: int
    max_queued_pages: int
    zero_data_retention: bool
    webhook_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The limits and permissions of one service. By default, private targets are refused and limits are generous."""

    #: Whether loopback and private addresses may be scraped and may receive webhooks.
    allow_private: bool = False
    #: Credits of one team per calendar month (UTC).
    plan_credits: int = 1_000_000_000
    #: Signs webhook deliveries; without it they are not signed.
    webhook_secret: str | None = field(default=None, repr=False)
    #: Maximum starts of one team per minute; None for no limit.
    requests_per_minute: int | None = None
    #: Maximum reads and cancellations of one team per minute; None for 250 times the starts.
    reads_per_minute: int | None = None
    #: Maximum pages of one team that are fetched concurrently, over all its jobs.
    concurrency: int = 10
    #: Maximum queued pages of one team's running jobs; more are refused with 429.
    max_queued_pages: int = 1_000_000
    #: Whether requests may ask for zero data retention.
    zero_data_retention: bool = False
    #: Teams with their own limits.
    teams: Mapping[str, TeamPlan] = field(default_factory=dict)
    #: Whether keys that earlier services generated for this database are also accepted.
    remembered_keys: bool = True
    #: Maximum bytes of a JSON body.
    max_body: int = 32 << 20
    #: Maximum pages in the cache for maxAge, minAge and lockdown.
    max_cached_pages: int = 10_000
    #: Maximum pages in the search index, over all teams.
    max_indexed_pages: int = 20_000
    #: An OpenAI-compatible endpoint, such as `http://127.0.0.1:11434/v1`; None for no language model.
    llm_base_url: str | None = None
    #: The API key of the endpoint, if it needs one.
    llm_api_key: str | None = field(default=None, repr=False)
    #: The name of the model at the endpoint.
    llm_model: str | None = None
    #: Maximum characters of a page that a model is given, and maximum characters that it can be asked to rewrite.
    llm_page_chars: int = 60_000
    llm_clean_chars: int = 30_000
    #: Maximum concurrent calls of the model for one team; all teams together have one more.
    llm_concurrency: int = 4
    #: Which pages are rendered: those that scripts fill (`auto`, the default without WEBLAKE_RENDER), all, or none.
    render: str = field(default_factory=lambda: os.environ.get(RENDER, "").strip() or "auto")
    #: Maximum pages of one team in the browser at the same time, and one more for all teams; each takes about 80 MB.
    max_browser_pages: int = 4
    #: Maximum concurrent browser sessions of all teams; each takes about 400 MB.
    max_browser_sessions: int = 4
    #: Whether code in a request may run on this machine, as the user of the service.
    code_execution: bool = False
    #: Whether the admin routes `/_weblake/*` exist, with which any key rules all teams.
    testing: bool = False
    #: Makes ids and the order of a job's documents reproducible; None for random ids.
    seed: int | None = None
    #: Accepted host names of requests; None for any. A loopback service accepts only loopback names.
    hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "::1"})

    def __post_init__(self) -> None:
        """Check `render`; raises InvalidOption."""
        if self.render not in RENDER_MODES:
            raise InvalidOption(
                f"{self.render!r} does not say which pages are rendered.",
                hint=f"Set --render or {RENDER} to one of {', '.join(RENDER_MODES)}.",
            )

    def plan(self, team: str) -> Plan:
        """Return the limits of a team."""
        plan = Plan(
            self.plan_credits,
            self.requests_per_minute,
            self.reads_per_minute,
            self.concurrency,
            self.max_queued_pages,
            self.zero_data_retention,
            self.webhook_secret,
        )
        own = self.teams.get(team, _NO_PLAN)
        plan = replace(
            plan, **{one.name: value for one in fields(own) if (value := getattr(own, one.name)) is not None}
        )
        if plan.reads_per_minute is None and plan.requests_per_minute is not None:
            return replace(plan, reads_per_minute=plan.requests_per_minute * _READS_PER_START)
        return plan


_NO_PLAN = TeamPlan()
#: The smallest plan of the public service has 2 starts and 500 reads.
_READS_PER_START = 250


def key_digest(key: str) -> str:
    """Return the hash of a key that the service stores. A key is long and random, so a plain hash is sufficient."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def new_key() -> str:
    """Return a new random key of 32 characters."""
    return "wl-" + secrets.token_urlsafe(24)


def read_keys(keys: str | Mapping[str, str] | Iterable[ServiceKey] | None) -> list[ServiceKey]:
    """Return the keys in one form: a single key, names with their keys, or `ServiceKey`s.

    Raises:
        InvalidOption: A key is empty or cannot be sent in an HTTP header, or two keys or two names of a team are equal.
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
