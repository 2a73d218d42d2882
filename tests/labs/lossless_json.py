"""JSON values without loss: numbers keep their digits and objects their repeated keys."""

from __future__ import annotations

import json
import re


class Num(str):
    """A number literal."""

    __slots__ = ()


class Pairs(list):
    """An object, its keys in order and possibly repeated."""

    @property
    def last(self) -> dict:
        return dict(self)


def dump(value: object, *, ascii_only: bool = True) -> str:
    if isinstance(value, Num):
        return str(value)
    if isinstance(value, Pairs):
        inner = (json.dumps(k, ensure_ascii=ascii_only) + ":" + dump(v, ascii_only=ascii_only) for k, v in value)
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(dump(item, ascii_only=ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def repair_texts(value: object) -> object:
    if isinstance(value, Pairs):
        return Pairs((repair_texts(k), repair_texts(v)) for k, v in value)
    if isinstance(value, list):
        return [repair_texts(item) for item in value]
    if isinstance(value, str) and not isinstance(value, Num):
        whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return re.sub("[\ud800-\udfff]", "�", whole)
    return value
