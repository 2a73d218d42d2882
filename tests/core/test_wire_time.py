"""Reading hostile bytes takes time that grows with their length alone."""

from __future__ import annotations

import contextlib
import time

import pytest

from weblake import wire
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
        for read in (wire.read_chunk, wire.loads, wire.split_object):
            with contextlib.suppress(MalformedReply):
                read(text)
        wire.is_json(text)
        wire.mend(text)
        assert wire.read_head(text) is None or text.startswith(b'{"status"')
    assert time.monotonic() - begun < 100
