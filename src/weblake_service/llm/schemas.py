"""Checks untrusted JSON Schemas before use, and validates values against them.

A schema is refused if validation could run forever or access other resources: it is too large or too deep, a `$ref`
leads out of it or to itself, or it has too many parts after all `$ref` are expanded. Patterns use Rust's regex crate,
which runs in linear time and has no look-around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from jsonschema_rs import Validator

#: Maximum bytes of a schema as JSON, maximum nesting depth, and maximum parts after expansion of references.
MAX_BYTES, MAX_DEPTH, MAX_PARTS = 100_000, 64, 5_000
#: Maximum number of references that are followed in a chain.
_MAX_REFERENCE_CHAIN = 50
#: Maximum nesting depth of a response, and maximum number of its errors that are listed.
_MAX_RESPONSE_DEPTH, _MAX_LISTED_ERRORS = 100, 5
#: Maximum number of a response's values, times the parts of the schema: for a check, which takes a third of a second,
#: and for a list of its errors, because the validator finds all of them before it returns the first.
_MAX_COMPARISONS, _MAX_LISTED_COMPARISONS = 5_000_000, 10_000
#: Maximum number of patterns; compiling one takes up to a millisecond.
_MAX_PATTERNS = 100
_UNSUPPORTED_REFERENCES = ("$dynamicRef", "$recursiveRef")

#: Returns what is wrong with a value; empty if it is valid.
Check = Callable[[object], str]


def schema_problem(schema: Mapping[str, object]) -> str:
    """Return why a schema cannot be used; empty if it can."""
    try:
        size = len(msgspec.json.encode(schema))
    except (RecursionError, UnicodeEncodeError, TypeError):
        return "it nests too deeply, or holds text that no JSON can carry"
    if size > MAX_BYTES:
        return f"it is larger than {MAX_BYTES} bytes"
    if _depth(schema) > MAX_DEPTH:
        return f"it nests deeper than {MAX_DEPTH} levels"
    try:
        _count(schema, schema, (), [MAX_PARTS, _MAX_PATTERNS], top=True)
        _validator(schema)
    except ValueError as error:
        return str(error).splitlines()[0][:300]
    return ""


def checker(schema: Mapping[str, object]) -> Check:
    """Return a check of values against a schema that `schema_problem` accepted."""
    validator, left = _validator(schema), [MAX_PARTS, _MAX_PATTERNS]
    _count(schema, schema, (), left, top=True)
    parts = MAX_PARTS - left[0]

    def check(value: object) -> str:
        if _depth(value) > _MAX_RESPONSE_DEPTH:
            return f"it nests deeper than {_MAX_RESPONSE_DEPTH} levels"
        count = _count_values(value)
        if count * parts > _MAX_COMPARISONS:
            return f"it has {count} values, too many for a schema of {parts} parts"
        if validator.is_valid(value):
            return ""
        if count * parts > _MAX_LISTED_COMPARISONS:
            return f"it does not satisfy the schema, and its {count} values are too many to name the errors"
        found = []
        for error in validator.iter_errors(value):
            place = "/".join(str(part) for part in error.instance_path)
            found.append(f"at /{place}: {error.message[:300]}")
            if len(found) == _MAX_LISTED_ERRORS:
                break
        return "; ".join(found)

    return check


def is_object(value: object) -> str:
    """Return what is wrong with a value if no schema is given: any JSON object is valid."""
    return "" if isinstance(value, dict) else "it is no JSON object"


def _validator(schema: Mapping[str, object]) -> Validator:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        dict(schema), pattern_options=jsonschema_rs.RegexOptions(size_limit=1 << 20), retriever=_refuse
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError("a $ref leads out of it")


def _count(
    root: Mapping[str, object], part: object, following: tuple[str, ...], left: list[int], *, top: bool = False
) -> None:
    """Count down the parts and the patterns of a schema with its references expanded; raises ValueError below zero."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"it has more than {MAX_PARTS} parts once its references are followed")
    if isinstance(part, Mapping):
        if any(isinstance(part.get(name), str) for name in _UNSUPPORTED_REFERENCES):
            raise ValueError("it uses $dynamicRef or $recursiveRef: use $ref")
        if not top and isinstance(part.get("$id"), str):
            raise ValueError("a part of it has an $id of its own: leave that out")
        patterns = part.get("patternProperties")
        left[1] -= isinstance(part.get("pattern"), str) + (len(patterns) if isinstance(patterns, Mapping) else 0)
        if left[1] < 0:
            raise ValueError(f"it has more than {_MAX_PATTERNS} patterns")
        reference = part.get("$ref")
        if isinstance(reference, str):
            if reference in following or reference == "#":
                raise ValueError(f"the $ref {reference[:100]!r} leads back to itself: write out the levels you need")
            if len(following) == _MAX_REFERENCE_CHAIN:
                raise ValueError(f"more than {_MAX_REFERENCE_CHAIN} references follow one after another")
            _count(root, _resolve_reference(root, reference), (*following, reference), left)
    for one in part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ():
        if isinstance(one, Mapping | list):
            _count(root, one, following, left)


def _resolve_reference(root: Mapping[str, object], reference: str) -> object:
    """Return the part of a schema that a reference points to."""
    if not reference.startswith("#/"):
        raise ValueError(f"the $ref {reference[:100]!r} leads out of it: only those that begin with #/ are followed")
    found: object = root
    for name in reference[2:].split("/"):
        plain = unquote(name).replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or plain not in found:
            raise ValueError(f"the $ref {reference[:100]!r} names nothing in it")
        found = found[plain]
    return found


def _depth(value: object) -> int:
    """Return the nesting depth of a value; without recursion, so that the depth is not limited."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        deepest = max(deepest, depth)
        inner = one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else ()
        waiting.extend((each, depth + 1) for each in inner if isinstance(each, Mapping | list | tuple))
    return deepest


def _count_values(value: object) -> int:
    """Return the number of values within a value, at any depth."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        inner = one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()
        count += len(inner)
        waiting.extend(each for each in inner if isinstance(each, Mapping | list))
    return count
