"""The fault rule: what it matches and its effect.

    {"match": {"method": "POST", "path": "/v2/batch/scrape$", "nth": 1}, "times": 1, "effect": {"drop_after": true}}

`docs/site/tasks/testing.md` has the table of all effects.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: The kind of subject of a rule: a request, a read of a job's status, a page before it is scraped, a webhook.
SubjectKind = Literal["request", "read", "page", "webhook"]

_READ_EFFECTS = frozenset(
    {
        "not_found", "chunk_documents", "empty_chunk", "lost_chunk", "duplicate_document", "foreign_next",
        "endless_next", "status_word", "late_credits",
    }
)  # fmt: skip
_PAGE_EFFECTS = frozenset({"fail_page", "lose_page", "stall_job"})
_WEBHOOK_EFFECTS = frozenset({"duplicate_webhook", "bad_signature", "lose_webhook"})
#: Default origin of `next`: a host name that does not resolve.
_UNRESOLVABLE_ORIGIN = "https://elsewhere.invalid"
_PAGE_CODE = "SCRAPE_SITE_ERROR"
_HEADER_NAME, _HEADER_VALUE = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}"), re.compile(r"[!-~]([ -~]*[!-~])?|")
_Count = Annotated[int, Meta(ge=0)]


class Match(msgspec.Struct, forbid_unknown_fields=True):
    """The conditions of a rule."""

    #: For requests only.
    method: str | None = None
    #: A regular expression, searched in a request's path and query, a page's URL, or a webhook receiver's URL.
    path: str = ""
    #: A job's id, or the kind of the jobs.
    job: str | None = None
    #: For webhooks only: an event such as `completed`, or in full `crawl.completed`.
    event: str | None = None
    #: The first matching subject that is affected, counted from 1.
    nth: Annotated[int, Meta(ge=1)] = 1


class Effect(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The effect of a rule."""

    latency_ms: Annotated[float, Meta(ge=0)] = 0
    # Effects on a request
    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    code: str | None = None
    body: object = msgspec.UNSET
    headers: dict[str, str] = {}
    retry_after: int | None = None
    drop_before: bool = False
    drop_after: bool = False
    truncate: _Count | None = None
    garbage: bool = False
    stall: bool = False
    # Effects on a read of a job's status
    not_found: bool = False
    chunk_documents: Annotated[int, Meta(ge=1)] | None = None
    empty_chunk: bool = False
    lost_chunk: bool = False
    duplicate_document: bool = False
    foreign_next: bool | str = False
    endless_next: bool = False
    status_word: str | None = None
    late_credits: bool = False
    # Effects on a page of a job
    fail_page: bool | str = False
    lose_page: bool = False
    stall_job: bool = False
    # Effects on a webhook
    duplicate_webhook: bool = False
    bad_signature: bool = False
    lose_webhook: bool = False

    @property
    def replaces_response(self) -> bool:
        """Return whether the fault responds instead of the service."""
        return self.status is not None or self.code is not None or self.not_found

    @property
    def next_origin(self) -> str:
        """Return the origin for `next`; empty if it is not changed."""
        if isinstance(self.foreign_next, str):
            return self.foreign_next
        return _UNRESOLVABLE_ORIGIN if self.foreign_next else ""

    @property
    def page_code(self) -> str:
        """Return the error code of the failed page."""
        return self.fail_page if isinstance(self.fail_page, str) else self.code or _PAGE_CODE

    def names(self) -> set[str]:
        """Return the effects that are set."""
        return {
            field.name
            for field in msgspec.structs.fields(self)
            if getattr(self, field.name) not in (False, None, msgspec.UNSET, 0, {})
            or (field.name == "truncate" and self.truncate == 0)
        }


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """One fault rule."""

    effect: Effect
    match: Match = msgspec.field(default_factory=Match)
    #: Maximum number of affected subjects; None for no limit.
    times: _Count | None = 1
    #: The share of matching subjects that is affected, selected by `seed` only.
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    seed: int = 0

    @property
    def subject_kind(self) -> SubjectKind:
        """Return the kind of subject of the rule; `read_rules` has checked that it is unambiguous."""
        named = self.effect.names()
        if named & _PAGE_EFFECTS:
            return "page"
        if named & _WEBHOOK_EFFECTS:
            return "webhook"
        return "read" if named & _READ_EFFECTS else "request"

    def check(self) -> None:
        """Check that the rule is consistent.

        Raises:
            ValueError: It is not.
        """
        try:
            re.compile(self.match.path)
        except re.error as error:
            raise ValueError(f"`path` is no regular expression: {error}") from None
        for name, value in self.effect.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"`headers` has {name[:50]!r}, which cannot be sent: take printable ASCII")
        if self.effect.next_origin and not re.match(r"https?://[\w.:-]+/?$", self.effect.next_origin, re.ASCII):
            raise ValueError("`foreign_next` is true, or an address such as http://127.0.0.1:8000")
        named = self.effect.names()
        kind = self.subject_kind
        allowed = {"page": {"code", "latency_ms"} | _PAGE_EFFECTS, "webhook": {"latency_ms"} | _WEBHOOK_EFFECTS}
        fitting = allowed.get(kind, named)
        if foreign := named - fitting:
            raise ValueError(
                f"{quote_names(foreign)} and {quote_names(named - foreign)} do not go together: make two rules"
            )
        if not named:
            raise ValueError("`effect` names nothing that is to happen")
        if kind != "webhook" and self.match.event is not None:
            raise ValueError("`event` chooses webhooks, and this effect is about none")
        if kind in ("page", "webhook") and self.match.method is not None:
            raise ValueError("`method` chooses requests, and this effect is about none")


def quote_names(names: object) -> str:
    """Return names as a sorted, quoted list."""
    assert not isinstance(names, str)
    return ", ".join(f"`{name}`" for name in sorted(names))  # type: ignore[call-overload]
