"""Language and time zone of a country, for `location`.

countries.tsv has a line for each country of ISO 3166: its code, its language (CLDR's likely subtags) and the time zone
of its largest part (tz's zone.tab).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: The country that is used if none is given.
DEFAULT_COUNTRY = "US"


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


def _code(options: Mapping[str, object]) -> str:
    location = options.get("location")
    return str(location.get("country") or DEFAULT_COUNTRY).upper() if isinstance(location, Mapping) else DEFAULT_COUNTRY


@cache
def _countries() -> dict[str, Country]:
    lines = files("weblake_service.web").joinpath("countries.tsv").read_text("ascii").splitlines()
    return {code: Country(code, language, zone) for code, language, zone in (line.split("\t") for line in lines)}
