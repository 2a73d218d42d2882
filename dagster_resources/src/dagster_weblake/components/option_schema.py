"""The contract's options as JSON schema, for completion in editors and for the errors of `dg check yaml`.

The schema is derived from the classes that check the options when a component is loaded. It requires snake_case at
every depth, whereas the classes also accept nested names in wire form, and it leaves rules between options to the
classes.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from typing_extensions import Required

Schema = dict[str, object]

#: A value that Dagster computes when it loads the component; no schema can check its result.
_TEMPLATE: Schema = {"type": "string", "pattern": r"\{\{|\{%"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def _templated(schema: Schema) -> Schema:
    """Return a schema that also accepts templates, and keeps the specific errors of all other values."""
    return {"if": _TEMPLATE, "else": schema}


def options_schema(options: type) -> Schema:
    """Return the schema of a class of options, such as `weblake.options.CrawlOptions`."""
    return _templated(_object(options))


def _object(cls: type) -> Schema:
    properties: dict[str, object] = {}
    required = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if get_origin(hint) is Required:
            required.append(name)
            hint = get_args(hint)[0]
        properties[name] = _templated(_schema(hint))
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _schema(hint: object) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return {**_schema(args[0]), **_bounds(args[1], is_text=args[0] is str)}
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is Literal:
        return {"enum": [word for value in args for word in _spellings(value)]}
    if origin is Sequence:
        return {"type": "array", "items": _templated(_schema(args[0]))}
    if origin is Mapping:
        values = _templated(_schema(args[1])) if args[1] is not object else True
        return {"type": "object", "additionalProperties": values}
    if isinstance(hint, type) and is_typeddict(hint):
        return _object(hint)
    names = {bool: "boolean", int: "integer", float: "number", str: "string", types.NoneType: "null"}
    return {"type": names[hint]}  # type: ignore[index]


def _bounds(meta: object, *, is_text: bool) -> Schema:
    found: Schema = {}
    for name, keyword in _BOUNDS.items():
        value = getattr(meta, name, None)
        if value is not None:
            found[keyword] = value
    for name, keyword in (("min_length", "minLength"), ("max_length", "maxLength")):
        value = getattr(meta, name, None)
        if value is not None and is_text:
            found[keyword] = value
    return found


def _union(members: Iterable[object]) -> Schema:
    """Return a schema of single values and objects, selected by the value's type, and among objects by their `type`."""
    members = list(members)
    objects = [each for each in members if isinstance(each, type) and is_typeddict(each)]
    leaves = [_schema(each) for each in members if each not in objects and get_origin(each) is not Mapping]
    is_free = any(get_origin(each) is Mapping for each in members)
    leaf: Schema = leaves[0] if len(leaves) == 1 else {"anyOf": leaves}
    if not objects and not is_free:
        return leaf
    body: Schema = {"type": "object"} if not objects else _tagged(objects)
    return {"if": {"type": "object"}, "then": body, "else": leaf if leaves else {"type": "object"}}


def _tagged(objects: Sequence[type]) -> Schema:
    tags = {cls: _tags(cls) for cls in objects}
    if not all(tags.values()):
        return _object(objects[0]) if len(objects) == 1 else {"type": "object"}
    words = [word for each in tags.values() for word in each]
    known: Schema = {"type": "object", "required": ["type"], "properties": {"type": _templated({"enum": words})}}
    known["allOf"] = [
        {"if": {"properties": {"type": {"enum": each}}, "required": ["type"]}, "then": _object(cls)}
        for cls, each in tags.items()
    ]
    return known


def _tags(cls: type) -> list[str]:
    hint: object = get_type_hints(cls, include_extras=True).get("type")
    if get_origin(hint) is Required:
        hint = get_args(hint)[0]
    return [word for value in get_args(hint) for word in _spellings(value)] if get_origin(hint) is Literal else []


def _spellings(value: str) -> list[str]:
    """Return the spellings of a choice in wire form and in snake_case: a caller may write either."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).lower() if value[:1].islower() else value
    return [value] if snake == value else [snake, value]
