"""Secrets that were given as text, kept out of what Dagster writes down. Imports nothing of ours.

A resource's configuration goes into snapshots that Dagster stores and shows. What stands there instead of a secret is
a number; the secret stays in the memory of the process that made the resource. A run worker makes its own from the
same code.
"""

from __future__ import annotations

import re

import dagster as dg

_HIDDEN = re.compile(r"\(kept out of Dagster's records: (\d+)\)")
_VALUES: list[object] = []


def hidden(value: object) -> object:
    """A text that stands for the value; what Dagster looks up by itself, and what is hidden already, stays."""
    if isinstance(value, dg.EnvVar) or (isinstance(value, str) and _HIDDEN.fullmatch(value)):
        return value
    if isinstance(value, dict) and set(value) == {"env"}:
        return value  # an EnvVar in the form that configuration has it
    if value not in _VALUES:
        _VALUES.append(value)
    return f"(kept out of Dagster's records: {_VALUES.index(value)})"


def revealed(value: object) -> object:
    """What `hidden` was given."""
    found = None if isinstance(value, dg.EnvVar) or not isinstance(value, str) else _HIDDEN.fullmatch(value)
    return value if found is None else _VALUES[int(found[1])]
