"""Secrets: those given as text, kept out of what Dagster writes down; and those in the environment, looked up.

A resource's configuration goes into snapshots that Dagster stores and shows. What stands there instead of a secret is
a keyed digest of it; the secret stays in the memory of the process that made the resource. A run worker makes its own
from the same code. The key of the digests is random in each process: the stand-in tells nothing of the secret, and one
of another process stands for nothing here.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping

import dagster as dg

from weblake.errors import AskPerson

_HIDDEN = re.compile(r"\(kept out of Dagster's records: [0-9a-f]+\)")
_KEY = secrets.token_bytes(32)
#: The secrets of this process by what stands for them.
_VALUES: dict[str, object] = {}
#: What Dagster has for a text and for a number of the environment.
ENV_VARS = (dg.EnvVar, type(dg.EnvVar.int("")))


def hidden(value: object) -> object:
    """A text that stands for the value; what Dagster looks up by itself, and what is hidden already, stays."""
    if isinstance(value, ENV_VARS) or _is_stand_in(value):
        return value
    if isinstance(value, dict) and set(value) == {"env"}:
        return value  # an EnvVar in the form that configuration has it
    # Of its repr: True is equal to 1, and is another setting.
    digest = hashlib.blake2b(repr(value).encode("utf-8", "backslashreplace"), key=_KEY, digest_size=16).hexdigest()
    stand_in = f"(kept out of Dagster's records: {digest})"
    _VALUES[stand_in] = value
    return stand_in


def revealed(value: object) -> object:
    """What `hidden` was given.

    Raises:
        AskPerson: The value stands for a secret that another process was given.
    """
    if not _is_stand_in(value):
        return value
    if value not in _VALUES:
        raise AskPerson(
            f"A setting is {value!r}: it stands for a secret that another process was given as text, "
            "and only that process knows it.",
            hint='Give the secret as dg.EnvVar("NAME"), which each process looks up, or take it out of the run config.',
        )
    return _VALUES[str(value)]


def _is_stand_in(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, dg.EnvVar) and _HIDDEN.fullmatch(value) is not None


def looked_up(value: object) -> object:
    """The value, with what environment variables hold in place of their names, also inside of mappings.

    Dagster looks up an EnvVar that is a whole field of a resource, and nothing that is deeper.

    Raises:
        AskPerson: One of them is not set, or a secret is known to another process only.
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
