"""Resolution of the templates in a defs.yaml; secrets are left to the environment, and other values unchanged.

Dagster resolves every text, and reads the result as a Python literal: `"2026"` would become a number. This module
resolves only texts that hold a template. A variable that is not set is an error that names it.

Dagster adds a traceback to every error that is raised while it resolves an attribute, except to its own: errors that a
user has to correct are raised as one of these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg
from pydantic import BaseModel

_TEMPLATE = re.compile(r"\{\{|\{%")
#: `{{ env.NAME }}` and nothing else.
_VARIABLE = re.compile(r"\s*\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}\s*")
_VARIABLES = re.compile(r"\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}")


class Attributes(BaseModel):
    """The terms of messages for the attributes of a component."""


def mistake(context: dg.ResolutionContext, text: str) -> Exception:
    """Return the error of a value that has to be corrected: its line and the text, without a traceback."""
    return context.build_resolve_fn_exc([text], str(context.path[-1]) if context.path else "", Attributes())


@contextmanager
def mistakes(context: dg.ResolutionContext) -> Iterator[None]:
    """Raise a ValueError of the block as the error of the attribute that the context is at."""
    try:
        yield
    except ValueError as error:
        raise mistake(context, str(error)) from None


def check_variables(context: dg.ResolutionContext, value: object) -> None:
    """Check that each `{{ env.NAME }}` in a value, at any depth, names a variable that is set.

    Dagster itself reads a variable that is not set as null, so that a limit would be lost.

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
        for name in _VARIABLES.findall(value):
            if name not in os.environ:
                attribute = next((part for part in reversed(context.path) if isinstance(part, str)), "the component")
                raise mistake(context, f"The environment variable {name} is not set, and {attribute} needs it.")


def filled_in(context: dg.ResolutionContext, value: object) -> object:
    """Return the value with its templates filled in, at any depth.

    Raises:
        ResolutionException: `{{ env.NAME }}` names a variable that is not set.
    """
    if isinstance(value, Mapping):
        return {name: filled_in(context.at_path(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [filled_in(context.at_path(index), each) for index, each in enumerate(value)]
    if not isinstance(value, str) or not _TEMPLATE.search(value):
        return value
    check_variables(context, value)
    return context.resolve_value(value, as_type=object)


def text_or_variable(context: dg.ResolutionContext, value: object) -> object:
    """Return the value with its templates filled in, except that the run looks up a text that is only `{{ env.NAME }}`.

    That is for secrets, and for variables that are not set on a machine that only loads the code.
    """
    found = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return filled_in(context, value) if found is None else dg.EnvVar(found[1])


def with_late_headers(context: dg.ResolutionContext, value: object) -> object:
    """Return options with templates filled in; headers, which may hold cookies, as `text_or_variable` does."""
    if isinstance(value, Mapping):
        return {name: _option(context.at_path(str(name)), name, each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_late_headers(context.at_path(index), each) for index, each in enumerate(value)]
    return filled_in(context, value)


def _option(context: dg.ResolutionContext, name: object, value: object) -> object:
    if name == "headers" and isinstance(value, Mapping):
        return {each: text_or_variable(context.at_path(str(each)), text) for each, text in value.items()}
    return with_late_headers(context, value)
