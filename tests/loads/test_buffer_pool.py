"""Tests that a buffer is reused only when no document refers to it any more."""

from __future__ import annotations

import random
import threading

from weblake.api import response_json
from weblake.arrow.documents import Parsed, parse
from weblake.http.bodies import BoundedBody, BufferPool
from weblake.steps import Request


def read(pool: BufferPool, text: bytes, *, parts: int = 7) -> bytes | bytearray:
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
        body = read(pool, text)
        assert body == text
        buffers.add(id(body))
        pool.give(body)
        del body
    assert len(buffers) == 1


def test_the_check_for_enough_bytes_sees_received_bytes_only() -> None:
    pool = BufferPool()
    pool.give(read(pool, b"o" * 1_000))
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
        body = read(pool, text + b"]}")
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
