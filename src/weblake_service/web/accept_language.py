"""Validates the languages of `location` and builds the Accept-Language header."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weblake_service.web.countries import DEFAULT_COUNTRY, country_of

_HEADER = "accept-language"
_TAG = re.compile(r"(?:\*|[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)")


def languages_problem(options: Mapping[str, object]) -> str | None:
    """Return which language cannot be sent in a header, as a sentence; None if all are valid."""
    for one in _languages(options):
        if _TAG.fullmatch(one) is None:
            return f"location.languages has {one[:40]!r}, which is no language tag such as en or de-CH."
    return None


def accept_language(options: Mapping[str, object]) -> str:
    """Return the languages as an `Accept-Language` value, in order of preference; empty for the target's default.

    If no language is given, the country's languages are used, unless it is the default country.
    """
    found = _languages(options)
    country = country_of(options)
    if not found and country.code != DEFAULT_COUNTRY:
        found = country.languages
    return ",".join(one if place == 0 else f"{one};q={max(1, 10 - place) / 10}" for place, one in enumerate(found))


def with_accept_language(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options with an Accept-Language header; a header of the caller takes precedence."""
    wanted, given = accept_language(options), options.get("headers")
    if not wanted:
        return options
    headers = dict(given) if isinstance(given, Mapping) else {}
    if any(str(name).strip().lower() == _HEADER for name in headers):
        return options
    return {**options, "headers": {**headers, _HEADER: wanted}}


def _languages(options: Mapping[str, object]) -> list[str]:
    location = options.get("location")
    found = location.get("languages") if isinstance(location, Mapping) else None
    return [str(one) for one in found] if isinstance(found, list | tuple) else []
