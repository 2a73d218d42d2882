"""Tests that the time to parse hostile bytes is linear in their length."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from weblake.api import response_json
from weblake.errors import MalformedReply

#: What nothing can read, for a length.
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "opening": lambda n: b"[" * n,
    "one string": lambda n: b'"' + rb"\"" * n,
    "strings": lambda n: rb'"\"' * (n // 2),
    "elements": lambda n: b'"",' * (n // 2),
    "bad first": lambda n: b'"\\ud800"' + b',"<a href=\\"x\\">\\n"' * (n // 10),
    "closing": lambda n: b"[]" * (n // 2) + b"}" * n,
    "numbers": lambda n: b"1 " * n,
}


@pytest.mark.parametrize("length", [200_000, pytest.param(1_000_000, marks=pytest.mark.system)])
@pytest.mark.parametrize("case", HOSTILE)
def test_parsing_time_is_linear_in_the_length(case: str, length: int) -> None:
    """The square of the length would be minutes, and in the tier `system` hours."""
    data = HOSTILE[case](length)
    begun = time.monotonic()
    body = b'{"status":"completed","data":[' + data
    for text in (body, body + b"]}"):
        for read in (
            response_json.read_chunk,
            response_json.loads,
            response_json.split_object,
            response_json.repair,
        ):
            with contextlib.suppress(MalformedReply):
                read(text)
        assert response_json.read_head(text) is None or text.startswith(b'{"status"')
    assert time.monotonic() - begun < length / 10_000
