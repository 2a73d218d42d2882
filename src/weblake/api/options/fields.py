"""Converts the annotations of the option classes to fields and shapes, once per class.

A `Shape` describes the permitted values: a leaf that msgspec checks, typed objects, free objects, a list, None.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Meta

#: Names whose wire name is not plain camelCase.
_IRREGULAR_WIRE_NAMES = {
    "ignore_invalid_urls": "ignoreInvalidURLs",
    "regex_on_full_url": "regexOnFullURL",
    "deduplicate_similar_urls": "deduplicateSimilarURLs",
    "redact_pii": "redactPII",
    "strict_constrain_to_urls": "strictConstrainToURLs",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The permitted values of an option."""

    #: The type and range of a single value, for msgspec; None if only objects and lists are permitted.
    leaf: object = None
    #: Typed objects; if there are several, their `type` distinguishes them.
    classes: tuple[type, ...] = ()
    #: Whether an object with arbitrary content is permitted; with `classes` it is for the type checker only.
    free: bool = False
    #: The shape of the entries of a list; None if no list is permitted.
    item: Shape | None = None
    min_items: int = 0
    none: bool = False
    #: A check that a range cannot express: url, uuid, headers.
    check: str = ""
    unit: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """One option."""

    name: str
    wire: str
    shape: Shape
    required: bool


def wire_name(name: str) -> str:
    """Return the wire name of a snake_case name."""
    first, *rest = name.split("_")
    return _IRREGULAR_WIRE_NAMES.get(name) or first + "".join(word.capitalize() for word in rest)


@cache
def fields(cls: type) -> dict[str, Field]:
    """Return the options of a class, by snake_case name."""
    found = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        required = get_origin(hint) is Required
        found[name] = Field(name, wire_name(name), _shape(get_args(hint)[0] if required else hint), required)
    return found


@cache
def by_wire(cls: type) -> dict[str, Field]:
    """Return the options of a class, by wire name."""
    return {field.wire: field for field in fields(cls).values()}


def choices(shape: Shape) -> tuple[str, ...]:
    """Return the permitted words of a leaf; empty if it is not a choice."""
    return get_args(shape.leaf) if get_origin(shape.leaf) is Literal else ()


def tags(cls: type) -> tuple[str, ...]:
    """Return the values of `type` that select this class."""
    field = fields(cls).get("type")
    return choices(field.shape) if field else ()


def tagged(classes: Iterable[type], tag: object) -> type | None:
    """Return the class that a value of `type` selects, or None."""
    return next((cls for cls in classes if tag in tags(cls)), None)


def expected(shape: Shape) -> str:
    """Return the description of the permitted values, such as `an integer from 1 to 100` or `one of …`."""
    parts = []
    if shape.leaf is not None:
        parts.append(_leaf_words(shape))
    if shape.item is not None:
        parts.append("a list")
    if shape.classes or shape.free:
        parts.append("an object")
    if shape.none:
        parts.append("None")
    return " or ".join(parts)


def _shape(hint: object) -> Shape:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_shape(args[0]), hint, args[1])
    if origin in (Union, types.UnionType):
        return _union([_shape(arg) for arg in args])
    if hint is types.NoneType:
        return Shape(none=True)
    if isinstance(hint, type) and is_typeddict(hint):
        return Shape(classes=(hint,))
    if origin is Sequence:
        return Shape(item=_shape(args[0]))
    if origin is Mapping:
        return Shape(free=True)
    return Shape(leaf=hint)


def _annotated(inner: Shape, hint: object, meta: Meta) -> Shape:
    extra = meta.extra or {}
    if inner.leaf is None:
        return replace(inner, min_items=meta.min_length or 0, check=extra.get("check", ""))
    low, high = (meta.min_length, meta.max_length) if inner.leaf is str else (meta.ge, meta.le)
    return Shape(leaf=hint, check=extra.get("check", ""), unit=extra.get("unit", ""), low=low, high=high)


def _union(members: Sequence[Shape]) -> Shape:
    leaves = [member for member in members if member.leaf is not None]
    assert len(leaves) <= 1, "a union of two single values has no words for its range"
    leaf = leaves[0] if leaves else Shape()
    return replace(
        leaf,
        classes=tuple(cls for member in members for cls in member.classes),
        free=any(member.free for member in members),
        none=any(member.none for member in members),
    )


def base(shape: Shape) -> object:
    """Return the type of a leaf without its range."""
    return get_args(shape.leaf)[0] if get_origin(shape.leaf) is Annotated else shape.leaf


def _leaf_words(shape: Shape) -> str:
    if words := choices(shape):
        return f"one of {', '.join(words)}"
    kind = base(shape)
    if kind is bool:
        return "true or false"
    if shape.check in ("url", "uuid"):
        return {"url": "the URL of a page", "uuid": "a UUID"}[shape.check]
    name, unit = {int: "an integer", float: "a number", str: "a text"}[kind], shape.unit  # type: ignore[index]
    if kind is str:
        unit = "characters" if shape.high is not None else ""
    span = _span(shape, "of " if kind is str else "from ")
    return " ".join(part for part in (name, span, unit) if part)


def _span(shape: Shape, preposition: str) -> str:
    if shape.low is not None and shape.high is not None:
        return f"{preposition}{shape.low} to {shape.high}"
    if shape.high is not None:
        return f"of at most {shape.high}"
    if shape.low is not None:
        return f"of at least {shape.low}"
    return _above(shape)


def _above(shape: Shape) -> str:
    gt = next((one.gt for one in get_args(shape.leaf)[1:] if isinstance(one, Meta)), None)
    return "" if gt is None else f"above {gt:g}"
