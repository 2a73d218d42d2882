"""Reading hostile bytes takes time that grows with their length alone."""

from __future__ import annotations

import contextlib
import time

import pytest

from weblake.api import response_json
from weblake.errors import MalformedReply


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'"' + rb"\"" * 1_000_000,
        rb'"\"' * 500_000,
        b'"",' * 500_000,
        b'"\\ud800"' + b',"<a href=\\"x\\">\\n"' * 100_000,
        b"[]" * 500_000 + b"}" * 1_000_000,
        b"1 " * 1_000_000,
    ],
    ids=["opening", "one string", "strings", "elements", "bad first", "closing", "numbers"],
)
def test_time_grows_with_the_length_alone(data: bytes) -> None:
    """Megabytes that nothing can read: the square of their length would be hours."""
    begun = time.monotonic()
    body = b'{"status":"completed","data":[' + data
    for text in (body, body + b"]}"):
        for read in (response_json.read_chunk, response_json.loads, response_json.split_object):
            with contextlib.suppress(MalformedReply):
                read(text)
        response_json.is_json(text)
        response_json.mend(text)
        assert response_json.read_head(text) is None or text.startswith(b'{"status"')
    assert time.monotonic() - begun < 100
