"""Substitution of the partition's name into a request's text.

Only the words that requests.py documents are replaced; any other brace is kept, because URLs and regular expressions
contain braces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar, cast

import dagster as dg

from dagster_weblake.secret_config import ENV_VARS, resolve
from weblake.errors import InvalidOption

T = TypeVar("T")

_WORD = re.compile(r"\{partition_(key|start|end)(?:\[([^\[\]{}]+)\])?\}")


@dataclass(frozen=True, slots=True)
class Part:
    """One partition of an asset; `key` is None where the asset has none."""

    key: str | None = None
    #: The key of each dimension of a multi-partition.
    dimensions: Mapping[str, str] = field(default_factory=dict)
    #: The time window, if the partitions are of time.
    start: datetime | None = None
    end: datetime | None = None

    def __str__(self) -> str:
        """Return the beginning of a line of the log that is about this partition."""
        return "" if self.key is None else f"{self.key}: "

    @property
    def month(self) -> str | None:
        """Return the month, such as `2026-11`, of a time window or of a key that begins with one."""
        return self._time("%Y-%m", 7)

    @property
    def day(self) -> str | None:
        """Return the day, such as `2026-11-21`, of a time window or of a key that begins with one."""
        return self._time("%Y-%m-%d", 10)

    def _time(self, form: str, length: int) -> str | None:
        if self.start is not None:
            return f"{self.start:{form}}"
        return None if self.key is None else self.key[:length]

    @classmethod
    def of(cls, definition: dg.PartitionsDefinition | None, key: str) -> Part:
        """Return the partition of a key."""
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            window = definition.time_window_for_partition_key(key)
            return cls(key, {}, window.start, window.end)
        if isinstance(definition, dg.MultiPartitionsDefinition):
            return cls(key, dict(definition.get_partition_key_from_str(key).keys_by_dimension))
        return cls(key)


def filled(value: T, part: Part) -> T:
    """Return the value with the partition's words replaced, and EnvVars looked up, in every text of it."""
    if isinstance(value, ENV_VARS):
        return cast("T", resolve(value))
    if isinstance(value, str):
        return cast("T", _WORD.sub(lambda found: _word(found, part), value) if "{partition_" in value else value)
    if isinstance(value, Mapping):
        return cast("T", {name: filled(each, part) for name, each in value.items()})
    if isinstance(value, list | tuple):
        return cast("T", type(value)(filled(each, part) for each in value))
    return value


def _word(found: re.Match[str], part: Part) -> str:
    name, dimension = found[1], found[2]
    if name == "key":
        text = part.key if dimension is None else part.dimensions.get(dimension)
    else:
        moment = part.start if name == "start" else part.end
        text = None if moment is None or dimension else f"{moment:%Y-%m-%d}"
    if text is None:
        what = "has no partitions" if part.key is None else f"has no such thing in its partition {part.key!r}"
        raise InvalidOption(
            f"The request names {found[0]}, and the asset {what}.", hint="Give the asset a fitting partitions_def."
        )
    return text
