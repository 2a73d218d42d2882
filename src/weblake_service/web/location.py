"""The `location` of a request: its country, with language and time zone, and the Accept-Language header.

countries.tsv has a line for each country of ISO 3166: its code, its language (CLDR's likely subtags) and the time zone
of its largest part (tz's zone.tab).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: The country that is used if none is given.
DEFAULT_COUNTRY = "US"
_HEADER = "accept-language"
_LANGUAGE_TAG = re.compile(r"(?:\*|[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)")


@dataclass(frozen=True, slots=True)
class Country:
    """One country."""

    code: str
    language: str
    timezone: str

    @property
    def languages(self) -> list[str]:
        """Return the regional language and the bare language: `de-DE`, `de`."""
        return [f"{self.language}-{self.code}", self.language]


def country_problem(options: Mapping[str, object]) -> str | None:
    """Return what is wrong with `location.country`, as a sentence; None if it is valid."""
    code = _code(options)
    if code in _countries():
        return None
    return (
        f"location.country is {code[:40]!r}, which is no country: name one of ISO 3166 by its two letters, such as DE."
    )


def country_of(options: Mapping[str, object]) -> Country:
    """Return the country of `location`; the default country if none, or an unknown one, is given."""
    return _countries().get(_code(options)) or _countries()[DEFAULT_COUNTRY]


def languages_problem(options: Mapping[str, object]) -> str | None:
    """Return which language cannot be sent in a header, as a sentence; None if all are valid."""
    for one in _languages(options):
        if _LANGUAGE_TAG.fullmatch(one) is None:
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


def _code(options: Mapping[str, object]) -> str:
    location = options.get("location")
    return str(location.get("country") or DEFAULT_COUNTRY).upper() if isinstance(location, Mapping) else DEFAULT_COUNTRY


@cache
def _countries() -> dict[str, Country]:
    lines = files("weblake_service.web").joinpath("countries.tsv").read_text("ascii").splitlines()
    return {code: Country(code, language, zone) for code, language, zone in (line.split("\t") for line in lines)}
