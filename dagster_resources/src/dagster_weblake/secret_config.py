"""Secrets in configuration: replaces those given as text by placeholders, and resolves environment variables.

Dagster stores and shows snapshots of a resource's configuration. A placeholder is a keyed digest of the secret; the
secret stays in the memory of the process that made the resource, and a run worker makes its own resource from the same
code. The key is random in each process: a placeholder reveals nothing, and one of another process cannot be resolved.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from weblake.errors import AskPerson
from weblake.orchestration import document

_PLACEHOLDER = re.compile(r"\(kept out of Dagster's records: [0-9a-f]+\)")
_KEY = secrets.token_bytes(32)
#: The secrets of this process by their placeholders.
_VALUES: dict[str, object] = {}
#: The schemes of addresses in which a container is written before an @.
_AZURE = frozenset({"abfs", "abfss", "adl", "az"})
#: Dagster's classes for a text and for a number from the environment.
ENV_VARS = (dg.EnvVar, type(dg.EnvVar.int("")))


def hide(value: object) -> object:
    """Return a placeholder for the value; environment variables and placeholders are returned unchanged."""
    if isinstance(value, ENV_VARS) or _is_placeholder(value):
        return value
    if isinstance(value, dict) and set(value) == {"env"}:
        return value  # an EnvVar in the form that it has in configuration
    # The digest is of its repr: True is equal to 1, but is another setting.
    digest = hashlib.blake2b(repr(value).encode("utf-8", "backslashreplace"), key=_KEY, digest_size=16).hexdigest()
    placeholder = f"(kept out of Dagster's records: {digest})"
    _VALUES[placeholder] = value
    return placeholder


class SecretConfig(dg.Config):
    """The base of resources that may hold secrets: placeholders for those given as text, also in a class's defaults."""

    storage_options: dict[str, Any] | None = Field(
        default=None,
        repr=False,
        description="Options for the file system of a storage URL, in the form of fsspec. Default: the credentials of "
        "the machine's environment or role.",
    )

    def __init__(self, **data: object) -> None:
        super().__init__(**_hidden(data))

    @classmethod
    def __pydantic_init_subclass__(cls, **more: object) -> None:
        """Replace secrets in the defaults of the class's fields, which are in the schema of its configuration, too."""
        super().__pydantic_init_subclass__(**more)
        defaults = {name: field.default for name, field in cls.model_fields.items() if field.default is not None}
        for name, default in _hidden(defaults).items():
            field = cls.model_fields[name]
            if default is not field.default:
                field.default, field.repr = default, False
                cls.model_rebuild(force=True)
        document(cls, fields=cls.model_fields)

    def options_of_storage(self) -> Mapping[str, object] | None:
        """Return the storage options as they were given, for readers of the dataset."""
        options = resolve(self.storage_options)
        return options if isinstance(options, Mapping) else None


def _hidden(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a resource with placeholders for those that hold secrets.

    An address is one if it has user info. It is refused when it is used; until then Dagster must not store it.
    """
    found = {name: hide(fields[name]) for name in ("api_key", "proxy") if fields.get(name) is not None}
    found |= {name: hide(fields[name]) for name in ("base_url", "root") if has_user_info(fields.get(name))}
    options = fields.get("storage_options")
    if isinstance(options, Mapping):
        found["storage_options"] = {name: hide(value) for name, value in options.items()}
    return {**fields, **found}


def has_user_info(address: object) -> bool:
    """Return whether an address has a user name or password; the container of an Azure account is none."""
    if not isinstance(address, str) or isinstance(address, dg.EnvVar):
        return False
    scheme, _, rest = address.partition("://")
    return "@" in rest.partition("/")[0] and scheme.lower() not in _AZURE


def reveal(value: object) -> object:
    """Return the value that a placeholder stands for; any other value is returned unchanged.

    Raises:
        AskPerson: The placeholder was made in another process.
    """
    if not _is_placeholder(value):
        return value
    if value not in _VALUES:
        raise AskPerson(
            f"A setting is {value!r}: it stands for a secret that another process was given as text, "
            "and only that process knows it.",
            hint='Give the secret as dg.EnvVar("NAME"), which each process looks up, or take it out of the run config.',
        )
    return _VALUES[str(value)]


def _is_placeholder(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, dg.EnvVar) and _PLACEHOLDER.fullmatch(value) is not None


def resolve(value: object) -> object:
    """Return the value with its placeholders and environment variables replaced by what they stand for.

    Dagster looks up an EnvVar that is a whole field of a resource, but not one inside a field.

    Raises:
        AskPerson: A variable is not set, or a placeholder was made in another process.
    """
    value = reveal(value)
    if isinstance(value, Mapping) and set(value) == {"env"}:
        value = dg.EnvVar(str(value["env"]))
    if isinstance(value, Mapping):
        return {str(name): resolve(each) for name, each in value.items()}
    if not isinstance(value, ENV_VARS):
        return value
    try:
        found = value.get_value()
    except ValueError:
        raise AskPerson(
            f"The environment variable {value.env_var_name} is not a number.", hint="Set a number."
        ) from None
    if found is None:
        raise AskPerson(
            f"The environment variable {value.env_var_name} is not set.",
            hint="Set it in the environment of Dagster's processes.",
        )
    return found
