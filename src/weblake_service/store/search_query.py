"""Parses a search query: words and operators into conditions.

User input is never SQL or FTS syntax: words become quoted phrases, everything else a bound parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import urlsplit

from weblake_service.responses import bad_request
from weblake_service.store.search_text import quote_phrase

#: Maximum number of words of a query, as in other search engines.
MAX_WORDS = 32
_ITEM = re.compile(r'(?P<minus>-?)(?:(?P<name>[A-Za-z]+):(?=\S))?(?:"(?P<quoted>[^"]*)"?|(?P<bare>[^\s"]+))')
_OPERATORS = frozenset(["site", "inurl", "allinurl", "intitle", "allintitle", "filetype", "ext"])
_RELATIVE_PERIOD = re.compile(r"qdr:([smhdwy]|n)(\d{0,4})", re.IGNORECASE)
#: Seconds; a month and a year as search engines define them.
_PERIOD_S = {"s": 1, "n": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "m": 31 * 86_400, "y": 366 * 86_400}
_DAY = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


@dataclass
class SearchQuery:
    """A parsed query."""

    #: Each group must match with one of its alternatives; an alternative is an FTS expression.
    groups: list[list[str]] = field(default_factory=list)
    #: Groups that must match even if not every word is required.
    mandatory: list[list[str]] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    #: Conditions on a row of search_pages, with their parameters.
    where: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)
    #: The words as typed, for the passages.
    sought: list[str] = field(default_factory=list)
    #: The requested sites; a page must be on one of them.
    sites: list[str] = field(default_factory=list)
    #: Whether words were omitted because there were too many.
    cut: bool = False

    @property
    def matches_nothing(self) -> bool:
        """Return whether the query has no words and no conditions, for example only punctuation."""
        return not (self.groups or self.mandatory or self.excluded or self.where)

    @property
    def any_word_expression(self) -> bool:
        """Return whether there are several words of which some may be optional."""
        return len(self.groups) > 1

    def expression(self, *, every: bool = True) -> str:
        """Return the FTS expression; empty if nothing must match. Without `every`, one of the words is sufficient."""
        groups = [_any(group) for group in self.groups]
        parts = [_any(group) for group in self.mandatory]
        parts += groups if every else [_any(groups)] if groups else []
        wanted = " AND ".join(parts)
        return f"({wanted}) NOT {_any(self.excluded)}" if wanted and self.excluded else wanted

    def narrow(self, condition: str, *values: object) -> None:
        """Add a condition."""
        self.where.append(condition)
        self.values += values


def read_query(text: str) -> SearchQuery:
    """Parse the query text: words, "phrases", OR, -without, site:, inurl:, intitle:, filetype:.

    Raises:
        ErrorResponse: 400; it is blank.
    """
    if not text.strip():
        bad_request("query is empty: name at least one word or operator, such as site:example.com.")
    query, either = SearchQuery(), False
    for item in _ITEM.finditer(text.encode("utf-8", "replace").decode()):
        quoted, name = item["quoted"], (item["name"] or "").lower()
        value = quoted if quoted is not None else item["bare"]
        if value == "OR" and not name and not item["minus"] and quoted is None:
            either = True
            continue
        if name in _OPERATORS:
            _operator(query, name, value, without=bool(item["minus"]))
        else:
            # A prefix that is no operator is part of a word: "error:404".
            typed = f"{item['name']}:{value}" if name else value
            _word(query, typed, without=bool(item["minus"]), mandatory=quoted is not None, either=either)
        either = False
    restrict_to_domains(query, query.sites)
    return query


def restrict_to_domains(query: SearchQuery, domains: Iterable[object], *, without: bool = False) -> None:
    """Restrict the query to these domains and their subdomains, or exclude them.

    Raises:
        ErrorResponse: 400; a value is not a domain.
    """
    conditions: list[str] = []
    values: list[object] = []
    for domain in domains:
        condition, more = _site(str(domain))
        if not condition:
            bad_request(f"{str(domain)[:100]!r} is no domain: write it like example.com.")
        conditions.append(condition)
        values += more
    if conditions:
        query.narrow(f"{'NOT ' if without else ''}({' OR '.join(conditions)})", *values)


def restrict_to_times(query: SearchQuery, tbs: object, now: float) -> bool:
    """Restrict the query to pages stored in a period: `qdr:h`, `qdr:d3`, `cdr:1,cd_min:12/1/2026,cd_max:12/31/2026`.

    Returns:
        Whether the newest pages come first (`sbd:1`).

    Raises:
        ErrorResponse: 400; the value is invalid.
    """
    newest = False
    for part in str(tbs).split(","):
        name, _, value = part.strip().partition(":")
        age = _RELATIVE_PERIOD.fullmatch(part.strip())
        if age is not None:
            query.narrow("stored >= ?", now - _PERIOD_S[age[1].lower()] * int(age[2] or 1))
        elif name in ("cd_min", "cd_max"):
            day = _day(value)
            query.narrow(*(("stored >= ?", day) if name == "cd_min" else ("stored < ?", day + 86_400)))
        elif name == "sbd" and value in ("0", "1"):
            newest = newest or value == "1"
        elif part.strip() and (name, value) != ("cdr", "1"):
            bad_request(
                f"tbs holds {part[:60]!r}: write qdr:h, d, w, m or y, or cdr:1,cd_min:M/D/YYYY,cd_max:M/D/YYYY."
            )
    return newest


def restrict_to_type(query: SearchQuery, suffix: str, *, without: bool = False) -> None:
    """Restrict the query to files of a type, by their content type or path suffix."""
    suffix = suffix.lower().lstrip(".")
    query.narrow(
        f"{'NOT ' if without else ''}(instr(kind, ?) > 0 OR substr(key, ?) = ?)",
        f"/{suffix}",
        -len(suffix) - 1,
        f".{suffix}",
    )


def _operator(query: SearchQuery, name: str, value: str, *, without: bool) -> None:
    if name == "site":
        if without:
            restrict_to_domains(query, [value], without=True)
        else:
            query.sites.append(value)
    elif name in ("inurl", "allinurl"):
        query.narrow(f"instr(lower(search_pages.url), ?) {'=' if without else '>'} 0", value.lower())
    elif name in ("filetype", "ext"):
        restrict_to_type(query, value, without=without)
    else:
        _word(query, value, without=without, mandatory=True, column="{title} : ")


def _word(
    query: SearchQuery, text: str, *, without: bool, mandatory: bool, either: bool = False, column: str = ""
) -> None:
    expression = quote_phrase(text)
    if not expression:
        return
    if len(query.groups) + len(query.mandatory) + len(query.excluded) >= MAX_WORDS:
        query.cut = True
        return
    expression = f"{column}{expression}"
    if without:
        query.excluded.append(expression)
        return
    query.sought.append(text)
    if either and (query.groups or query.mandatory):
        # "a OR b": both groups are merged into one that must match.
        last = query.groups.pop() if query.groups else query.mandatory.pop()
        query.mandatory.append([*last, expression])
    else:
        (query.mandatory if mandatory else query.groups).append([expression])


def _any(alternatives: list[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"({' OR '.join(alternatives)})"


def _site(value: str) -> tuple[str, list[object]]:
    """Return the condition for a host, its subdomains, and optionally port and path; empty for an invalid host."""
    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        host, port = (parts.hostname or "").strip(".").removeprefix("*.").removeprefix("www."), parts.port
    except ValueError:
        return "", []
    try:
        host = host.encode("idna").decode("ascii")
    except UnicodeError:
        return "", []
    if not host:
        return "", []
    condition, values = "substr('.' || host, ?) = ?", [-len(host) - 1, f".{host}"]
    if port is not None:
        condition, values = f"{condition} AND port = ?", [*values, port]
    path = parts.path.rstrip("/*")
    if path:
        condition += " AND substr(key, instr(substr(key, 3), '/') + 2, ?) = ?"
        values = [*values, len(path), path]
    return f"({condition})", values


def _day(text: str) -> float:
    found = _DAY.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        return datetime(int(found[3]), int(found[1]), int(found[2]), tzinfo=timezone.utc).timestamp()
    except ValueError:
        bad_request(f"tbs holds the date {text[:20]!r}: write it as month/day/year, such as 12/31/2026.")
