"""Errors of attributes, with the line of the defs.yaml that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, cast

import dagster as dg
from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from dagster_weblake.components.templating import check_variables

Path = tuple[str | int, ...]


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
            raise placed(context, model, error) from None


def placed(context: dg.ResolutionContext, model: BaseModel, error: ValidationError) -> Exception:
    """Return the first of the errors, with the line and those around it. It shows no values but those of the file."""
    first = error.errors(include_input=False, include_url=False)[0]
    told = str(first.get("ctx", {}).get("error", first["msg"]))
    path = _path(told, tuple(first["loc"]), model.model_dump(exclude_unset=True))
    for part in path:
        context = context.at_path(part)
    return context.build_resolve_fn_exc([told], str(path[0]) if path else "attributes", model)


def _path(told: str, known: Path, attributes: Mapping[str, object]) -> Path:
    """Return the longest path of the attributes that a message names, in its own words, below the known path."""
    values: object = attributes
    for part in known:
        if not isinstance(values, Mapping | list):
            return known
        values = values[part] if isinstance(part, int) or part in values else None  # type: ignore[index]
    best: Path = ()
    for path in _paths(values):
        if len(path) > len(best) and _names(told, path):
            best = path
    return known + best


def _paths(value: object, above: Path = ()) -> Iterator[Path]:
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, Mapping) else ()
    for name, each in items:
        yield (*above, name)
        yield from _paths(each, (*above, name))


def _names(told: str, path: Path) -> bool:
    """Return whether a message is about a path: `a.b[0]`, 'c' is not an option of `a.b`, or a first word."""
    dotted = _dotted(path)
    if f"`{dotted}`" in told or re.match(rf"{re.escape(dotted)}\b", told):
        return True
    name, above = path[-1], _dotted(path[:-1])
    return told.startswith(f"{name!r} is not an option {f'of `{above}`' if above else 'here'}")


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
