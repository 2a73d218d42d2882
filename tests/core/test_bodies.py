"""What is read of a response body."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from catalogue import proves

from weblake.api.steps import Request
from weblake.http.bodies import BodyRefused, BoundedBody

GZIP = [(b"Content-Encoding", b"gzip")]


def read(parts: list[bytes], request: Request, headers: list[tuple[bytes, bytes]] = GZIP) -> tuple[bytes, bool]:
    """Return the body of a response that arrives in these parts, and whether it was read to its end."""
    body = BoundedBody(headers, request)
    stopped = any(map(body.feed, parts))
    return bytes(body.response(200, 0.0).body), not stopped


def get(**more: object) -> Request:
    return Request("GET", "/x", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [b"", b"\0" * 100, b"padding"])
def test_all_members_of_a_compressed_body_are_read_and_what_follows_is_not(after: bytes) -> None:
    whole = gzip.compress(b"one ") + gzip.compress(b"two") + after
    assert read([whole], get()) == (b"one two", True)
    assert read([bytes((byte,)) for byte in whole], get()) == (b"one two", True)


@proves(
    "H8",
    at="src/weblake/http/bodies.py",
    line="if self._gzip is not None and not self._stopped and not self._gzip.finished:",
    becomes="if False:",
)
@pytest.mark.parametrize("missing", [1, 9, 20])
def test_h8_a_compressed_body_that_was_cut_off_may_be_requested_again(missing: int) -> None:
    cut = gzip.compress(b"one") + gzip.compress(b"two")[:-missing]
    with pytest.raises(BodyRefused, match="cut off") as caught:
        read([cut], get())
    assert not caught.value.final


def test_no_more_is_read_than_is_needed() -> None:
    packed = gzip.compress(b"head" + bytes(range(256)) * 1000)
    enough = get(stop_when=lambda body: body[:4] == b"head")
    found, whole = read([packed[:200], b"this is not read"], enough)
    assert (found[:4], whole) == (b"head", False)


@proves(
    "H10",
    at="src/weblake/http/bodies.py",
    line="if len(self._data) + len(piece) > self._request.max_body:",
    becomes="if False:",
)
@pytest.mark.parametrize("headers", [GZIP, []])
def test_h10_a_body_has_at_most_the_allowed_size(headers: list[tuple[bytes, bytes]]) -> None:
    def sent(size: int) -> list[bytes]:
        return [gzip.compress(b"x" * size) if headers else b"x" * size]

    assert read(sent(1 << 20), get(max_body=1 << 20), headers) == (b"x" * (1 << 20), True)
    with pytest.raises(BodyRefused, match="larger than 1 MiB") as caught:
        read(sent((1 << 20) + 1), get(max_body=1 << 20), headers)
    assert caught.value.final


@pytest.mark.parametrize("encodings", [(b"gzip", b"br"), (b"br", b"gzip"), (b"gzip", b"gzip")])
def test_a_body_that_was_encoded_twice_is_refused(encodings: tuple[bytes, bytes]) -> None:
    with pytest.raises(BodyRefused, match="not asked for"):
        BoundedBody([(b"content-encoding", each) for each in encodings], get())


def test_a_body_that_is_not_gzip_may_be_requested_again() -> None:
    with pytest.raises(BodyRefused, match="Content-Encoding says") as caught:
        read([b"<html>of a proxy"], get())
    assert not caught.value.final


def test_a_decompression_bomb_needs_little_memory_until_it_is_refused() -> None:
    bomb = gzip.compress(bytes(32 << 20), 1)
    body = BoundedBody(GZIP, get(max_body=1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(BodyRefused, match="larger than 1 MiB"):
            body.feed(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
