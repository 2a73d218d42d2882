"""Splits and validates JSON text without recursion, in linear time.

The splitting functions examine only strings and brackets and do not validate the content of values; `is_json` validates
every byte. Both are used only for text that the fast parser refuses, so they may take a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Iterator

from weblake.compat import re

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # possessive: no backtracking, so no memory per escape
_STRING = re.compile(_TEXT, re.DOTALL)
_SPACE = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb'[^ \t\n\r\[\]{}",:]++')
_NEST = re.compile(_TEXT + rb'|[\[{]++|[\]}]++|"', re.DOTALL)
_TOKEN = re.compile(
    rb"[ \t\n\r]*+(?:"
    rb'(?P<text>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")|'
    rb"(?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)|"
    rb"(?P<mark>[\[\]{},:]))"
)

#: Transitions of the validator: (expected token, actual token) to the token expected next.
_FOLLOWS = {
    **{(place, value): "end" for place in ("value", "value or ]") for value in ("text", "scalar")},
    **{(place, "["): "value or ]" for place in ("value", "value or ]")},
    **{(place, "{"): "key or }" for place in ("value", "value or ]")},
    **{(place, "text"): "colon" for place in ("key", "key or }")},
    ("colon", ":"): "value",
    ("value or ]", "]"): "end",
    ("key or }", "}"): "end",
    ("end", "]"): "end",
    ("end", "}"): "end",
    ("end", ","): "member",
}
_MEMBER = {"[": "value", "{": "key"}
_OPENS = {"]": "[", "}": "{"}


class Truncated(Exception):
    """The text ends within a value."""

    def __str__(self) -> str:
        return "it ends too early"


class Malformed(Exception):
    """The text is not valid JSON; the message says why."""


def is_json(view: memoryview) -> bool:
    """Return whether this is exactly one valid JSON value, of any depth."""
    expected, stack, end = "value", [], 0
    while found := _TOKEN.match(view, end):
        end = found.end()
        mark = chr(view[end - 1])
        came = found.lastgroup if found.lastgroup != "mark" else mark
        expected = _FOLLOWS.get((expected, str(came)), "")
        if not expected:
            return False
        if came in _MEMBER:
            stack.append(mark)
        elif came in _OPENS and (not stack or stack.pop() != _OPENS[mark]):
            return False
        elif expected == "member":
            expected = _MEMBER.get(stack[-1] if stack else "", "")
    return expected == "end" and not stack and _SPACE.fullmatch(view, end) is not None


def fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield the start and end of each key and of its value in a text that is one object.

    Raises Truncated or Malformed, possibly after the first fields.
    """
    at = first_member(view, "{")
    while at >= 0:
        start, end, at = key(view, at)
        to = value_end(view, at)
        yield start, end, at, to
        at = next_member(view, to, "}")


def elements(view: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each element in a text that is one array; raises as `fields` does."""
    at = first_member(view, "[")
    while at >= 0:
        end = value_end(view, at)
        yield at, end
        at = next_member(view, end, "]")


def first_member(view: memoryview, bracket: str) -> int:
    """Return the start of the first member after the opening bracket, or -1 if there is none."""
    at = past_space(view, 0)
    if view[at] != ord(bracket):
        raise Malformed(f"it does not begin with {bracket}")
    at = past_space(view, at + 1)
    if chr(view[at]) in _OPENS and _OPENS[chr(view[at])] == bracket:
        _nothing_after(view, at + 1)
        return -1
    return at


def next_member(view: memoryview, at: int, close: str) -> int:
    """Return the start of the member after the comma at `at`, or -1 if `close` is at `at` and ends the text."""
    at = past_space(view, at)
    if view[at] == ord(close):
        _nothing_after(view, at + 1)
        return -1
    if view[at] != ord(","):
        raise Malformed(f"no comma at byte {at}")
    return past_space(view, at + 1)


def key(view: memoryview, at: int) -> tuple[int, int, int]:
    """Return the start and end of the field name at `at`, and the start of its value."""
    if view[at] != ord('"'):
        raise Malformed(f"no field name at byte {at}")
    end = value_end(view, at)
    colon = past_space(view, end)
    if view[colon] != ord(":"):
        raise Malformed(f"no colon at byte {colon}")
    return at, end, past_space(view, colon + 1)


def past_space(view: memoryview, at: int) -> int:
    """Return the end of the white space at `at`; raises Truncated if it ends the text."""
    found = _SPACE.match(view, at)
    if found is None or found.end() >= len(view):
        raise Truncated
    return found.end()


def value_end(view: memoryview, at: int) -> int:
    """Return the end of the value that begins at `at`; raise Truncated for a number at the end of the text."""
    if view[at] in b"[{":
        return _nest_end(view, at)
    found = (_STRING if view[at] == ord('"') else _SCALAR).match(view, at)
    if found is None and view[at] != ord('"'):
        raise Malformed(f"no value at byte {at}")
    if found is None or (view[at] != ord('"') and found.end() == len(view)):
        raise Truncated
    return found.end()


def _nest_end(view: memoryview, at: int) -> int:
    depth = 0
    for found in _NEST.finditer(view, at):
        first, run = view[found.start()], found.end() - found.start()
        if first == ord('"'):
            if run == 1:  # a quote that is not closed
                raise Truncated
        elif first in b"[{":
            depth += run
        elif depth > run:
            depth -= run
        else:
            return found.start() + depth
    raise Truncated


def _nothing_after(view: memoryview, at: int) -> None:
    if _SPACE.fullmatch(view, at) is None:
        raise Malformed(f"it goes on after its end at byte {at}")
