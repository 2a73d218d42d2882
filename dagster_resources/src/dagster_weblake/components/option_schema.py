"""The contract's options as JSON schema, for completion in editors and for the errors of `dg check yaml`.

The schema is derived from the classes that check the options when a component is loaded. It requires snake_case at
every depth, whereas the classes also accept nested names in wire form, and it leaves rules between options to the
classes.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

Schema = dict[str, object]

#: A value that Dagster computes when it loads the component; no schema can check its result.
_TEMPLATE: Schema = {"type": "string", "pattern": r"\{\{|\{%"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
_TEXT_BOUNDS = {"min_length": "minLength", "max_length": "maxLength"}
_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", types.NoneType: "null"}


def options_schema(options: type) -> Schema:
    """Return the schema of a class of options, such as `weblake.options.CrawlOptions`."""
    return _templated(_object(options))


def _templated(schema: Schema) -> Schema:
    """Return a schema that also accepts templates, and keeps the specific errors of all other values."""
    return {"if": _TEMPLATE, "else": schema}


def _object(cls: type) -> Schema:
    hints = get_type_hints(cls, include_extras=True)
    return {
        "type": "object",
        "properties": {name: _templated(_schema(hint)) for name, hint in hints.items()},
        "additionalProperties": False,
        "required": [name for name, hint in hints.items() if get_origin(hint) is Required],
    }


def _schema(hint: object) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Required:
        return _schema(args[0])
    if origin is Annotated:
        known = _BOUNDS | (_TEXT_BOUNDS if args[0] is str else {})
        bounds = {word: getattr(args[1], name, None) for name, word in known.items()}
        return _schema(args[0]) | {word: value for word, value in bounds.items() if value is not None}
    if origin in (Union, types.UnionType):
        return _union([_schema(each) for each in args])
    if origin is Literal:
        return {"enum": [word for value in args for word in _spellings(value)]}
    if origin is Sequence:
        return {"type": "array", "items": _templated(_schema(args[0]))}
    if origin is Mapping:
        values = True if args[1] is object else _templated(_schema(args[1]))
        return {"type": "object", "additionalProperties": values}
    if isinstance(hint, type) and is_typeddict(hint):
        return _object(hint)
    return {"type": _NAMES[hint]}  # type: ignore[index]


def _union(members: Sequence[Schema]) -> Schema:
    """Return a schema that selects by the value's type, so that errors are about objects or about single values."""
    objects = [each for each in members if each.get("type") == "object"]
    known = [each for each in objects if "properties" in each] or objects
    leaves = [each for each in members if each not in objects]
    leaf: Schema = leaves[0] if len(leaves) == 1 else {"anyOf": leaves or objects}
    return {"if": {"type": "object"}, "then": {"anyOf": known}, "else": leaf} if objects else leaf


def _spellings(value: str) -> list[str]:
    """Return the spellings of a choice in wire form and in snake_case: a caller may write either."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).lower() if value[:1].islower() else value
    return [value] if snake == value else [snake, value]
