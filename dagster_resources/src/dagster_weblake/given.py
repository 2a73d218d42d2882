"""Secrets: those given as text, kept out of what Dagster writes down; and those in the environment, looked up.

Imports: weblake.errors.

A resource's configuration goes into snapshots that Dagster stores and shows. What stands there instead of a secret is
a number; the secret stays in the memory of the process that made the resource. A run worker makes its own from the
same code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import dagster as dg

from weblake.errors import AskPerson

_HIDDEN = re.compile(r"\(kept out of Dagster's records: (\d+)\)")
_VALUES: list[object] = []
#: What Dagster has for a text and for a number of the environment.
ENV_VARS = (dg.EnvVar, type(dg.EnvVar.int("")))


def hidden(value: object) -> object:
    """A text that stands for the value; what Dagster looks up by itself, and what is hidden already, stays."""
    if isinstance(value, ENV_VARS) or (isinstance(value, str) and _HIDDEN.fullmatch(value)):
        return value
    if isinstance(value, dict) and set(value) == {"env"}:
        return value  # an EnvVar in the form that configuration has it
    # By their text: True is equal to 1, and is another setting.
    known = [repr(each) for each in _VALUES]
    if repr(value) not in known:
        _VALUES.append(value)
        known.append(repr(value))
    return f"(kept out of Dagster's records: {known.index(repr(value))})"


def revealed(value: object) -> object:
    """What `hidden` was given."""
    found = None if isinstance(value, dg.EnvVar) or not isinstance(value, str) else _HIDDEN.fullmatch(value)
    return value if found is None else _VALUES[int(found[1])]


def looked_up(value: object) -> object:
    """The value, with what environment variables hold in place of their names, also inside of mappings.

    Dagster looks up an EnvVar that is a whole field of a resource, and nothing that is deeper.

    Raises:
        AskPerson: One of them is not set.
    """
    value = revealed(value)
    if isinstance(value, Mapping) and set(value) == {"env"}:
        value = dg.EnvVar(str(value["env"]))
    if isinstance(value, Mapping):
        return {str(name): looked_up(each) for name, each in value.items()}
    if not isinstance(value, ENV_VARS):
        return value
    try:
        found = value.get_value()
    except ValueError:
        raise AskPerson(f"The environment variable {value.env_var_name} is no number.", hint="Set one.") from None
    if found is None:
        raise AskPerson(
            f"The environment variable {value.env_var_name} is not set.",
            hint="Set it where Dagster's processes see it.",
        )
    return found
