"""Checks options against their classes: names, types, ranges.

The result holds plain types (dict, list, str, int, float, bool, None) under snake_case names, and shares no mutable
object with the input.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from weblake.api.options import values
from weblake.api.options.fields import Field, Shape, base, by_wire, choices, expected, fields, tagged, tags, wire_name
from weblake.api.options.requests import RULES
from weblake.errors import InvalidOption


def to_wire_names(cls: type, checked: Mapping[str, object]) -> dict[str, object]:
    """Return checked options under their wire names; the contents of free objects are unchanged."""
    known = fields(cls)
    return {known[name].wire: _rename(known[name].shape, value) for name, value in checked.items()}


def _rename(shape: Shape, value: object) -> object:
    if isinstance(value, list) and shape.item is not None:
        return [_rename(shape.item, one) for one in value]
    if isinstance(value, dict) and shape.classes:
        cls = shape.classes[0] if len(shape.classes) == 1 else tagged(shape.classes, value["type"])
        assert cls is not None
        return to_wire_names(cls, value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Checks options. Unknown names are refused, except those that `left_out` and `ignored` take."""

    #: Whether they have wire names, or the snake_case names of a Python caller.
    wire: bool
    #: Unknown names outside of `scrape_options` are added to it and left out.
    ignored: list[str] | None = None
    #: Top-level names that are left out.
    left_out: frozenset[str] = frozenset()
    #: Whether a value that is not a text may be written as one.
    texts: bool = False

    def top(self, cls: type, body: object) -> dict[str, object]:
        """Return the options of one request by snake_case name.

        Raises:
            InvalidOption: The message describes the first problem found.
        """
        if not isinstance(body, Mapping):
            _refuse(f"the request is {values.kind(body)}, not an object")
        return self._object(cls, body, "")

    def check_names(self, cls: type, names: Iterable[str]) -> None:
        """Refuse the first name that is not a top-level option of the request; raises as `top`."""
        for name in names:
            self._field(cls, name, "")

    def _object(self, cls: type, given: Mapping[object, object], path: str) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in given.items():
            field = self._field(cls, key, path)
            if field is None:
                continue
            at = self._path(path, field.name)
            if field.name in out:
                _refuse(f"`{at}` is given twice, as `{field.name}` and as `{field.wire}`")
            out[field.name] = self._value(field.shape, value, at)
        for field in fields(cls).values():
            if field.required and field.name not in out:
                _refuse(f"`{self._path(path, field.name)}` is missing: it must be {expected(field.shape)}")
        for rule in RULES.get(cls, ()):
            if problem := rule(out, lambda name: self._path(path, name)):
                _refuse(problem)
        return out

    def _field(self, cls: type, key: object, path: str) -> Field | None:
        """Return the field that a key names, or None for an unknown key that is left out."""
        text = key if isinstance(key, str) else ""
        own, wired = fields(cls).get(text), by_wire(cls).get(text)
        found = wired if self.wire else own or (wired if path else None)
        if found is not None or (not path and text in self.left_out):
            return found
        names = list(by_wire(cls) if self.wire else fields(cls))
        guess = wired.name if wired else _closest(wire_name(text) if self.wire else text, names)
        if self.ignored is not None and not path.startswith(("scrapeOptions", "scrape_options")):
            self.ignored.append(values.quote_value(key) + (f" (did you mean `{guess}`?)" if guess else ""))
            return None
        where = f"an option of `{path}`" if path else "an option here"
        _refuse(f"{values.quote_value(key)} is not {where}", _did_you_mean(guess, names))

    def _path(self, path: str, name: str) -> str:
        name = wire_name(name) if self.wire else name
        return f"{path}.{name}" if path else name

    def _value(self, shape: Shape, value: object, path: str) -> object:
        if self.texts and isinstance(value, str) and base(shape) is not str and value not in choices(shape):
            value = values.value_of_text(value)
        if value is None and shape.none:
            return None
        if isinstance(value, Mapping) and (shape.classes or shape.free):
            return self._mapping(shape, value, path)
        if isinstance(value, list | tuple) and shape.item is not None:
            if len(value) < shape.min_items:
                _refuse(f"`{path}` is empty: it needs at least {shape.min_items} entry")
            return [self._value(shape.item, one, f"{path}[{index}]") for index, one in enumerate(value)]
        if shape.leaf is None:
            # This message does not contain the value, which may be a header.
            hint = 'Write it as ["…", "…"].' if shape.item is not None else 'Write it as {"…": …}.'
            _refuse(f"`{path}` is {values.kind(value)}, not {expected(shape)}", hint)
        return self._leaf(shape, value, path)

    def _mapping(self, shape: Shape, value: Mapping[object, object], path: str) -> object:
        if shape.check == "headers":
            return _headers(value, path)
        if not shape.classes:
            return values.free_json(value, path, received=self.wire)
        if len(shape.classes) == 1:
            return self._object(shape.classes[0], value, path)
        words = [tag for cls in shape.classes for tag in tags(cls)]
        if "type" not in value:
            _refuse(f"`{path}` has no `type`: it must be one of {', '.join(words)}")
        word = self._wire_word(value["type"], words)
        cls = tagged(shape.classes, word)
        if cls is None:
            _refuse(
                f"`{path}.type` is {values.quote_value(word)}, not one of {', '.join(words)}", _suggestion(word, words)
            )
        return self._object(cls, value, path)

    def _leaf(self, shape: Shape, value: object, path: str) -> object:
        value = self._wire_word(_plain_value(value), choices(shape))
        if self.wire and isinstance(value, float) and base(shape) is int and value.is_integer():
            # JSON has one type of number: 5.0 is the integer 5.
            value = int(value)
        try:
            msgspec.convert(value, shape.leaf, strict=True)
            good = not isinstance(value, float) or math.isfinite(value)
            good = good and not (isinstance(value, int) and value.bit_length() > 64)
        except (msgspec.ValidationError, OverflowError):
            good = False
        if not good:
            long = isinstance(value, str) and base(shape) is str
            seen = f"a text of {len(str(value))} characters" if long else values.quote_value(value)
            hint = "Leave it out for the default." if value is None else _suggestion(value, choices(shape))
            _refuse(f"`{path}` is {seen}, not {expected(shape)}", hint)
        if isinstance(value, str):
            _check_text(shape, value, path)
        return value

    def _wire_word(self, value: object, words: Iterable[str]) -> object:
        """Return the wire name of a choice, which a Python caller may write in snake_case; other values unchanged."""
        if self.wire or not isinstance(value, str) or value in words:
            return value
        return wire_name(value) if wire_name(value) in words else value


def _plain_value(value: object) -> object:
    """Return the value as a plain type: a member of an enumeration becomes its text or number."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _check_text(shape: Shape, value: str, path: str) -> None:
    problem = values.text_problem(value)
    if problem is None and shape.check:
        problem = {"url": values.url_problem, "uuid": values.uuid_problem}[shape.check](value)
    if problem:
        _refuse(f"`{path}` {problem}: {values.quote_value(value)}")


def _headers(value: Mapping[object, object], path: str) -> dict[str, str]:
    """Return checked header names and values; error messages contain no header value."""
    out = {}
    for name, text in value.items():
        if not isinstance(name, str) or not name or values.text_problem(name):
            _refuse(f"`{path}` has the name {values.quote_value(name)}, and a header's name is a text")
        if not isinstance(text, str) or values.text_problem(text):
            what = "half of a surrogate pair" if isinstance(text, str) else values.kind(text)
            _refuse(f"`{path}[{values.quote_value(name)}]` is {what}, not a text")
        out[str.__str__(name)] = str.__str__(text)
    return out


def _closest(word: str, words: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(words), n=1)), None)


def _suggestion(word: object, words: Iterable[str]) -> str:
    close = _closest(word, words) if isinstance(word, str) else None
    return f"Did you mean {close!r}?" if close else ""


def _did_you_mean(guess: str | None, names: Sequence[str]) -> str:
    return f"Did you mean `{guess}`?" if guess else f"Known here: {', '.join(names)}."


def _refuse(message: str, hint: str = "") -> NoReturn:
    raise InvalidOption(f"{message[0].upper()}{message[1:]}.", hint=hint)
