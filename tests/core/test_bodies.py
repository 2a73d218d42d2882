"""Tests of what is read of a response body, and that a buffer is reused only when no document refers to it."""

from __future__ import annotations

import gzip
import random
import threading
import tracemalloc

import pytest
from catalogue import proves

from weblake.api import response_json
from weblake.arrow.documents import Parsed, parse
from weblake.http.bodies import BodyRefused, BoundedBody, BufferPool
from weblake.steps import Request

GZIP = [(b"Content-Encoding", b"gzip")]


def read(parts: list[bytes], request: Request, headers: list[tuple[bytes, bytes]] = GZIP) -> tuple[bytes, bool]:
    """Return the body of a response that arrives in these parts, and whether it was read to its end."""
    body = BoundedBody(headers, request)
    for part in parts:
        if body.feed(part):
            break
    response = body.response(200, 0.0)
    return bytes(response.body), response.complete


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
    line="if size > self._request.max_body:",
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


def read_into(pool: BufferPool, text: bytes, *, parts: int = 7) -> bytes | bytearray:
    """The body of this text, which comes in parts."""
    body = BoundedBody([], Request("GET", "/", buffer=pool.take))
    step = max(1, len(text) // parts)
    for at in range(0, len(text), step):
        assert not body.feed(text[at : at + step])
    return body.response(200, 0.0).body


def test_a_body_contains_nothing_of_the_previous_content_of_its_buffer() -> None:
    pool = BufferPool()
    dice = random.Random(3)
    buffers = set[int]()
    for _ in range(200):
        text = dice.randbytes(dice.choice([1, 10, 1_000, 100_000, 300_000]))
        body = read_into(pool, text)
        assert body == text
        buffers.add(id(body))
        pool.give(body)
        del body
    assert len(buffers) == 1


def test_the_check_for_enough_bytes_sees_received_bytes_only() -> None:
    pool = BufferPool()
    pool.give(read_into(pool, b"o" * 1_000))
    seen = []
    body = BoundedBody(
        [], Request("GET", "/", buffer=pool.take, stop_when=lambda view: seen.append(bytes(view)) or False)
    )
    body.feed(b"ab")
    body.feed(b"c")
    body.feed(b"de")
    assert seen == [b"ab", b"abc", b"abcde"]
    assert body.response(200, 0.0).body == b"abcde"


def test_a_document_does_not_change_when_its_buffer_is_reused() -> None:
    pool = BufferPool()
    dice = random.Random(11)
    kept: list[tuple[int, Parsed]] = []
    buffers = set[int]()
    for number in range(300):
        word = str(number)
        text = b'{"status":"completed","data":[' + b",".join(
            b'{"markdown":"%s","metadata":{"scrapeId":"%s"}}' % (word.encode() * 400, word.encode()) for _ in range(3)
        )
        body = read_into(pool, text + b"]}")
        buffers.add(id(body))
        chunk = response_json.read_chunk(body).documents
        kept += [(number, parse(chunk, place)) for place in range(len(chunk))]
        del chunk
        pool.give(body)
        del body
        dice.shuffle(kept)
        while len(kept) > 12:
            kept.pop()
        for of, parsed in kept:
            assert bytes(parsed.fields["markdown"]) == b'"' + str(of).encode() * 400 + b'"'
            assert parsed.scrape_id == str(of)
    assert len(buffers) < 60  # of 300


def test_two_concurrent_takers_never_get_the_same_buffer() -> None:
    pool, trouble = BufferPool(), list[str]()

    def use(mark: int) -> None:
        for _ in range(2_000):
            buffer = pool.take()
            buffer[:] = bytes([mark]) * 64
            if buffer != bytes([mark]) * 64:
                trouble.append(f"{mark} lost its buffer")
            pool.give(buffer)
            del buffer

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []


def test_the_pool_keeps_its_own_buffers_only_and_no_empty_one() -> None:
    pool = BufferPool()
    for other in (b"bytes", bytearray(b"of the caller"), pool.take()):
        pool.give(other)
        assert pool.take() is not other
