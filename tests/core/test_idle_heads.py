"""Decoding at once what stands before `data` finds what the reader for any bytes finds, or leaves it to that."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weblake.api import response_json

TAILS = [
    b'"data":[]}',
    b'"data" : [ ]\r\n}\n',
    b'"data":null}',
    b'"data":[1]}',
    b'"data":[]',
    b'"data":[]}}',
    b'"dat":[]}',
]
PARTS = [
    b'"status":"scraping",',
    b'"status" : "completed", ',
    b'"total":3,',
    b'"total":1e999,',
    b'"total":' + b"9" * 400 + b",",
    b'"creditsUsed":NaN,',
    b'"data":[],',
    b'"data":[{"a":1}],',
    rb'"d\u0061ta":[7],',
    rb'"warning":"\"data\":[]}",',
    rb'"warning":"\ud800",',
    b'"warning":"\xff",',
    b'"warning":"a\nb",',
    b'"note":{"data":[]},',
    b'"note":[[],"data"],',
    b'"x":"data",',
    b'"next":"https://service.test/v2/crawl/x?skip=3",',
    b'"next":null,',
    b'"deep":' + b"[" * 2000 + b"]" * 2000 + b",",
    b"",
    b",",
    b"}",
]
ORDINARY = (
    b'{"success":true,"status":"scraping","total":9,"completed":4,"creditsUsed":4,"next":"http://s/x?skip=4","data":[]}'
)


def head_by_steps(text: bytes | bytearray) -> response_json.Head | None:
    with mock.patch.object(response_json, "_front_at_once", return_value=None):
        return response_json.read_head(text)


def same(body: bytes) -> None:
    for text in (body, bytearray(body)):
        found, by_steps = response_json.read_head(text), head_by_steps(text)
        assert found == by_steps
        if found is not None and by_steps is not None:
            assert list(found.fields) == list(by_steps.fields)
    # What stands before `data`, decoded at once, against the same found step by step.
    front = response_json._front_at_once(body[: response_json.FRONT_BYTES])
    if front is not None:
        slowly = response_json._front_by_steps(memoryview(body))
        assert (front, list(front[0])) == (slowly, list(slowly[0]))


@given(
    st.lists(st.sampled_from(PARTS), max_size=6), st.sampled_from(TAILS), st.sampled_from([b"", b"\xef\xbb\xbf", b" "])
)
@example([b'"status":"a",', b'"status":"b",'], TAILS[0], b"")
@settings(max_examples=1500)
def test_it_agrees_on_replies_made_of_odd_parts(parts: list[bytes], tail: bytes, before: bytes) -> None:
    same(before + b"{" + b"".join(parts) + tail)


@given(
    st.integers(0, 200),
    st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"data", b",", b"}", b"[]", b'"data":[],']),
    st.booleans(),
)
@settings(max_examples=1500)
def test_it_agrees_on_damaged_replies(at: int, damage: bytes, over: bool) -> None:
    at %= len(ORDINARY) + 1
    same(ORDINARY[:at] + damage + ORDINARY[at + len(damage) * over :])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=6) | st.sampled_from(["status", "data", "next"]), json_values, max_size=6),
    st.booleans(),
)
@settings(max_examples=100)
def test_it_agrees_on_any_object_and_on_each_of_its_beginnings(head: dict[str, object], ascii_only: bool) -> None:
    body = json.dumps({**head, "data": []}, ensure_ascii=ascii_only, separators=(",", ":")).encode()
    for end in range(len(body) + 1):
        same(body[:end])


def test_the_ordinary_reply_is_read_in_one_step() -> None:
    assert response_json.read_head(ORDINARY) == head_by_steps(ORDINARY) is not None
    assert response_json.read_head(bytearray(ORDINARY.replace(b"[]", b" null "))) is not None


@pytest.mark.parametrize(
    "body",
    [
        ORDINARY.replace(b"4,", rb'"\u0022",', 1),
        ORDINARY.replace(b"[]", b"[1]"),
        ORDINARY[:-1] + b',"next":null}',
        ORDINARY.replace(b'"status":"scraping",', b""),
        b'{"status":"x","more":"' + b"x" * response_json.HEAD_BYTES + b'","data":[]}',
    ],
    ids=["an escape", "a document", "data is not last", "no status", "long"],
)
def test_any_other_is_read_as_by_the_reader_for_any_bytes(body: bytes) -> None:
    same(body)


def test_an_ordinary_front_is_decoded_at_once() -> None:
    for body in (ORDINARY, b'{"data":[1]}', b' {"status" : "x" , \n"data" : null}'):
        assert response_json._front_at_once(body) == response_json._front_by_steps(memoryview(body))


def test_what_was_read_can_go_on_growing() -> None:
    seen = bytearray(ORDINARY)
    assert response_json.read_head(seen)
    seen.extend(b"x" * 100_000)
