"""The base class of typed views, which accept any response without an error.

The contract is open: a service may add fields, and older services send other types. So a view takes each field that
fits; fields that do not fit or are unknown are kept in `extra`, and the original response in `raw`.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

import msgspec
from msgspec import Meta

#: A text that some services send as a list of texts: the first one is used.
FirstText = Annotated[str | None, Meta(extra={"first": True})]
#: A JSON number; integers stay integers.
Number = int | float


class Model(msgspec.Struct, frozen=True, rename="camel"):
    """A typed view of one JSON object.

    A field that is absent, null or of the wrong type is None, or empty if it holds several values.
    """

    #: Fields that are unknown or of the wrong type, unchanged, under their wire names.
    extra: dict[str, object] = msgspec.field(default_factory=dict)
    #: The JSON value of this view.
    raw: object = None

    #: Attributes that take the value of another attribute if the service did not send their own.
    _fallbacks: ClassVar[dict[str, str]] = {}

    @classmethod
    def decode(cls, value: object) -> Self:
        """Return the view of a decoded JSON value; an empty view if it is not an object."""
        if not isinstance(value, dict):
            return cls(raw=value)
        found: dict[str, Any] = {}
        extra = dict(value)
        for part in _field_readers(cls):
            if part.wire not in value:
                continue
            kept, whole = part.read(value[part.wire])
            if kept is not None:
                found[part.name] = kept
            if whole:
                del extra[part.wire]
        for name, other in cls._fallbacks.items():
            if name not in found and other in found:
                found[name] = found[other]
        return cls(extra=extra, raw=value, **found)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = (info.name for info in msgspec.structs.fields(type(self)) if info.name != "raw")
        shown = ((name, getattr(self, name)) for name in names)
        return [(name, value) for name, value in shown if not _is_empty(value)]

    def __repr__(self) -> str:
        parts = (f"{name}={_SHORT_REPR.repr(value)}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(parts)})"


def _is_empty(value: object) -> bool:
    return value in (None, {}, []) or (isinstance(value, Model) and value.raw is None)


#: Limit of the absolute value of numbers, so that they fit into a float; larger ones are kept in `extra`.
MAX_NUMBER = 1e300

_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 80


@dataclass(frozen=True, slots=True)
class _FieldReader:
    """Reader of one field."""

    name: str
    wire: str
    hint: Any
    model: type[Model] | None = None
    many: bool = False
    first: bool = False

    def read(self, value: object) -> tuple[object, bool]:
        """Return the part of the value that fits, and whether that is the whole value."""
        if value is None:
            return None, True
        if self.many:
            return self._list(value)
        if self.first and isinstance(value, list):
            text = next((one for one in value if isinstance(one, str)), None)
            return text, text is not None
        kept = self._one(value)
        return kept, kept is not None

    def _list(self, value: object) -> tuple[object, bool]:
        if not isinstance(value, list):
            return None, False
        kept = [one for one in map(self._one, value) if one is not None]
        return kept, len(kept) == len(value)

    def _one(self, value: object) -> object:
        if self.model is not None:
            return self.model.decode(value) if isinstance(value, dict) else None
        if isinstance(value, int | float) and not -MAX_NUMBER < value < MAX_NUMBER:
            return None
        try:
            return msgspec.convert(value, self.hint, strict=True)
        except (msgspec.ValidationError, OverflowError):
            # Some JSON encoders write integers as 200.0.
            return self._one(int(value)) if isinstance(value, float) and value.is_integer() else None


@cache
def _field_readers(cls: type[Model]) -> tuple[_FieldReader, ...]:
    fields = msgspec.structs.fields(cls)
    return tuple(
        _build_field_reader(one.name, one.encode_name, one.type) for one in fields if one.name not in ("extra", "raw")
    )


def _build_field_reader(name: str, wire: str, hint: Any) -> _FieldReader:
    if get_origin(hint) is Annotated:
        return _FieldReader(name, wire, get_args(hint)[0], first=True)
    if get_origin(hint) is list:
        return replace(_build_field_reader(name, wire, get_args(hint)[0]), many=True)
    if get_origin(hint) in (Union, UnionType):
        model = next((one for one in get_args(hint) if isinstance(one, type) and issubclass(one, Model)), None)
        return _FieldReader(name, wire, hint, model)
    return _FieldReader(name, wire, hint, hint if isinstance(hint, type) and issubclass(hint, Model) else None)
