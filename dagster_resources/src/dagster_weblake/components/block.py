"""Blocks of a defs.yaml: errors with the line that they are about, and templates that leave secrets to the run.

Dagster resolves every text, and reads the result as a Python literal: `"2026"` would become a number. `fill_templates`
resolves only texts that hold a template. A variable that is not set is an error that names it: Dagster itself reads it
as null, so that a limit would be lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import ClassVar, cast

import dagster as dg
from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from weblake.errors import InvalidOption

_TEMPLATE = re.compile(r"\{\{|\{%")
_VARIABLE = re.compile(r"\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}")


class Block(dg.Resolvable, dg.Model):
    """A block of a defs.yaml, whose errors name its lines."""

    # Messages contain no values: options may hold cookies.
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    #: Attributes that may hold variables which are looked up when a run needs them.
    late: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the block from its model; raise errors with the line of the defs.yaml."""
        for name in model.model_fields_set - cls.late:
            check_variables(context.at_path(name), getattr(model, name))
        try:
            return cast("Self", super().resolve_from_model(context, model))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        text = str(cause or first["msg"])
        # The message of an error about several attributes begins with one of them, or is about the options.
        word = text.partition(" ")[0].rstrip(":")
        named = [word] if word in model.model_fields_set else ["options"] if isinstance(cause, InvalidOption) else []
        for part in first["loc"] or named:
            context = context.at_path(part)
        raise resolution_error(context, text)


def resolution_error(context: dg.ResolutionContext, text: str) -> Exception:
    """Return the error of a value that has to be corrected: its line and the text.

    Dagster adds a traceback to every error that is raised while it resolves an attribute, except to its own.
    """
    return context.build_resolve_fn_exc([text], str(context.path[-1]) if context.path else "", _Attributes())


class _Attributes(BaseModel):
    """The name of the attributes in messages."""


def check_variables(context: dg.ResolutionContext, value: object) -> None:
    """Check that each `{{ env.NAME }}` in a value, at any depth, names a variable that is set.

    Raises:
        ResolutionException: One is not set; the message names it and its line.
    """
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in value.model_fields_set}
    if isinstance(value, Mapping):
        for name, each in value.items():
            check_variables(context.at_path(str(name)), each)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            check_variables(context.at_path(index), each)
    elif isinstance(value, str):
        for name in _VARIABLE.findall(value):
            if name not in os.environ:
                attribute = next((part for part in reversed(context.path) if isinstance(part, str)), "the component")
                raise resolution_error(
                    context, f"The environment variable {name} is not set, and {attribute} needs it."
                )


def fill_templates(context: dg.ResolutionContext, value: object, *, late: bool = False) -> object:
    """Return the value with its templates filled in, at any depth.

    With `late`, and in headers, a text that is only `{{ env.NAME }}` becomes an EnvVar, which the run looks up: it may
    be a secret, or may not be set on a machine that only loads the code.

    Raises:
        ResolutionException: `{{ env.NAME }}` names a variable that is not set.
    """
    if isinstance(value, Mapping):
        return {
            name: fill_templates(context.at_path(str(name)), each, late=late or name == "headers")
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [fill_templates(context.at_path(index), each, late=late) for index, each in enumerate(value)]
    if not isinstance(value, str) or not _TEMPLATE.search(value):
        return value
    alone = _VARIABLE.fullmatch(value.strip())
    if alone is not None and late:
        return dg.EnvVar(alone[1])
    check_variables(context, value)
    return context.resolve_value(value, as_type=object)
